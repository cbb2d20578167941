"""What the gate says when a prompt does not fit, and what it remembers of having said so.

The sentence is one that every client and agent tried so far recognises as "the context is full" and reacts to by
compacting or by telling its user; the page `docs/refusals.md` lists them. N in it is the budget that is really applied,
because some agents drop M - N tokens.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ollama_gate.errors import Refusal
from ollama_gate.requests import InferenceRequest, Kind, PromptCount, Rung
from ollama_gate.window import EmbedLimit, Window

CODE: Final = "context_length_exceeded"
REASON: Final = "Context Length Exceeded"
HEADERS: Final[Mapping[str, str]] = {"x-should-retry": "false"}
"""Understood by the OpenAI and Anthropic SDKs; nothing is gained by sending the same prompt again."""


def sentence(tokens: int, limit: int) -> str:
    """The one sentence, in plain digits."""
    return (
        f"prompt is too long: {tokens} tokens > {limit} maximum. "
        f"This model's maximum context length is {limit} tokens. "
        f"However, your messages resulted in {tokens} tokens. Please reduce the length of the messages or completion."
    )


def prompt_too_long(request: InferenceRequest, count: PromptCount, window: Window) -> Refusal:
    """The refusal of a prompt over the budget, with what takes the room and what to do about it."""
    parts = count.parts
    tokens = count.at_most if count.rung is Rung.BOUND else count.tokens
    param = "prompt" if request.kind is Kind.GENERATE else "messages"
    advice = "Shorten or summarise older messages, or ask the operator for a larger budget."
    if request.kind is Kind.GENERATE:
        advice = "Shorten the prompt, or ask the operator for a larger budget."
    if parts.tools > window.budget:
        param = "tools"
        advice = f"The tools alone take {parts.tools} tokens: offer fewer tools, or shorten their schemas."
    elif parts.tools > max(parts.messages, window.budget // 2):
        advice = f"The tools take {parts.tools} of these tokens: offering fewer tools would help most."
    because = f", because {count.why}." if count.why else "."
    how = {
        Rung.EXACT: "",
        Rung.ESTIMATE: " The count is an estimate on the safe side.",
        Rung.BOUND: f" The count is an upper bound from the text's bytes{because}",
    }[count.rung]
    split = (
        f"messages {parts.messages}, tools {parts.tools}, template {parts.template}, media {parts.media}; "
        f"budget {window.budget} of a window of {window.num_ctx}, {window.reserve} reserved for the answer"
    )
    return Refusal(
        status=400,
        code=CODE,
        message=f"{sentence(tokens, window.budget)} ({split}.{how}) {advice}",
        param=param,
        reason=REASON,
        details={**facts(count, window), "reserved_output": window.reserve},
        headers=HEADERS,
    )


def reply_too_long(request: InferenceRequest, count: PromptCount, window: Window) -> Refusal:
    """The refusal of a prompt that fits with an asked answer that does not (`on_long_reply = "refuse"`)."""
    asked = request.asked_output or 0
    return Refusal(
        status=400,
        code=CODE,
        message=(
            f"{sentence(count.tokens + asked, window.num_ctx)} (prompt {count.tokens} tokens and {asked} asked for the "
            f"answer, in a window of {window.num_ctx}.) Ask for at most {window.room(count.tokens)} tokens of answer."
        ),
        param="options.num_predict",
        reason=REASON,
        details={**facts(count, window), "asked_output": asked, "room": window.room(count.tokens)},
        headers=HEADERS,
    )


def input_too_long(
    request: InferenceRequest, index: int, tokens: int, limit: EmbedLimit, rung: Rung, *, why: str = ""
) -> Refusal:
    """The refusal of an embedding request, naming the input that is too long."""
    param = "prompt" if request.path == "/api/embeddings" else "input"
    if param == "input" and isinstance(request.body.get("input"), list):
        param = f"input[{index}]"
    how = ""
    if rung is not Rung.EXACT:
        how = f" The count is {'an estimate' if rung is Rung.ESTIMATE else 'an upper bound'}"
        how += f", because {why}." if why else "."
    return Refusal(
        status=400,
        code=CODE,
        message=(
            f"{sentence(tokens, limit.tokens)} ({param} has {tokens} tokens; the limit of this embedding model is "
            f"{limit.tokens}, its {limit.by}.{how}) "
            "Split the text into shorter pieces; nothing of this request was embedded."
        ),
        param=param,
        reason=REASON,
        details={"prompt_tokens": tokens, "limit": limit.tokens, "limit_is": limit.by, "rung": rung.value},
        headers=HEADERS,
    )


def facts(count: PromptCount, window: Window) -> dict[str, Any]:
    """Numbers of a count and its window, for programs."""
    parts = count.parts
    return {
        "prompt_tokens": count.tokens,
        "at_most": count.at_most,
        "rung": count.rung.value,
        "budget": window.budget,
        "window": window.num_ctx,
        "parts": {
            "messages": parts.messages,
            "tools": parts.tools,
            "template": parts.template,
            "media": parts.media,
        },
    }


class RefusalMemory:
    """Refused bodies of the last seconds, so that a body sent again and again costs nothing to refuse.

    Keys are hashes of (route, body); time is passed in as seconds of any steady clock.
    """

    def __init__(self, seconds: float, capacity: int = 256) -> None:
        """Remember up to `capacity` refusals for `seconds`; zero seconds switch it off."""
        self._seconds = seconds
        self._capacity = capacity
        self._held: OrderedDict[bytes, tuple[float, Refusal]] = OrderedDict()

    def __len__(self) -> int:
        """How many refusals are held, late ones included."""
        return len(self._held)

    def recall(self, key: bytes, now: float) -> Refusal | None:
        """The refusal of this body, if it was given less than `seconds` ago."""
        found = self._held.get(key)
        if found is None:
            return None
        if now >= found[0]:
            del self._held[key]
            return None
        headers = {**found[1].headers, "x-ollama-gate-repeated": "true"}
        return replace(found[1], headers=headers)

    def keep(self, key: bytes, refusal: Refusal, now: float) -> None:
        """Remember a refusal; the oldest goes when there is no room."""
        if self._seconds <= 0:
            return
        self._held[key] = (now + self._seconds, refusal)
        self._held.move_to_end(key)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)

    def forget(self) -> None:
        """Drop everything: a configuration or a model has changed."""
        self._held.clear()


class GraceBook:
    """Conversations that were refused, each of which may pass once over the budget.

    Agents compact with a request that is as long as the one that was refused; refused again, they give up.
    """

    def __init__(self, seconds: float = 600.0, capacity: int = 1024) -> None:
        """Hold up to `capacity` conversations, each for `seconds` after its refusal."""
        self._seconds = seconds
        self._capacity = capacity
        self._held: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        """How many conversations have a pass, late ones included."""
        return len(self._held)

    def grant(self, conversation: bytes, now: float) -> None:
        """Note that this conversation was refused."""
        self._held[conversation] = now + self._seconds
        self._held.move_to_end(conversation)
        if len(self._held) > self._capacity:
            self._held.popitem(last=False)

    def take(self, conversation: bytes, now: float) -> bool:
        """Use up the pass of this conversation; False when it has none."""
        until = self._held.pop(conversation, None)
        return until is not None and now < until
