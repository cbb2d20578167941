"""What the gate says when a prompt does not fit, or Ollama does not answer.

The sentence is one that every client and agent tried so far recognises as "the context is full" and reacts to by
compacting or by telling its user; the page `docs/refusals.md` lists them. N in it is the budget that is really applied,
because some agents drop M - N tokens.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from ollama_gate.errors import Refusal, Refused, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from ollama_gate.requests import LOAD_OPTIONS, InferenceRequest, Kind, PromptCount, Rung
from ollama_gate.window import EmbedLimit, Window

CODE: Final = "context_length_exceeded"
REASON: Final = "Context Length Exceeded"
HEADERS: Final[Mapping[str, str]] = {"x-should-retry": "false"}
"""Understood by the OpenAI and Anthropic SDKs; nothing is gained by sending the same prompt again."""
ROUNDS: Final = 5
"""Refusals in a row that told a conversation nothing new; the next one is told otherwise."""


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
    # What an estimate may be off by can alone be too much; clients drop as many tokens as the sentence says.
    tokens = count.tokens if count.tokens > window.budget else count.at_most
    param = "prompt" if request.kind is Kind.GENERATE else "messages"
    advice = "Shorten or summarise older messages, or ask the operator for a larger budget."
    if request.kind is Kind.GENERATE:
        advice = "Shorten the prompt, or ask the operator for a larger budget."
    if parts.tools > window.budget:
        param = "tools"
        advice = f"The tools alone take {parts.tools} tokens: offer fewer tools, or shorten their schemas."
    elif parts.tools > max(parts.messages, window.budget // 2):
        advice = f"The tools take {parts.tools} of these tokens: offering fewer tools would help most."
    elif parts.media > max(parts.messages, window.budget // 2):
        advice = f"Pictures or sound take {parts.media} of these tokens: sending fewer would help most."
    because = f", because {count.why}." if count.why else "."
    side = "upper" if count.tokens == count.at_most else "lower"
    how = {
        Rung.EXACT: "",
        Rung.ESTIMATE: " The count is an estimate on the safe side.",
        Rung.BOUND: f" The count is the {side} bound that the text's bytes give{because}",
    }[count.rung]
    split = (
        f"messages {parts.messages}, tools {parts.tools}, template {parts.template}, media {parts.media}; "
        f"budget {window.budget} of a window of {window.num_ctx}, {window.reserve} reserved for the answer"
    )
    return Refusal(
        status=400,
        code=CODE,
        message=f"{sentence(tokens, window.budget)} ({split}.{how}) {advice}{_own_num_ctx(request, window.num_ctx)}",
        param=param,
        reason=REASON,
        details={**facts(count, window), "reserved_output": window.reserve},
        headers=HEADERS,
    )


def reply_too_long(asked: int, count: PromptCount, window: Window) -> Refusal:
    """The refusal of a prompt that fits with an answer that does not (`on_long_reply = "refuse"`).

    Args:
        asked: tokens of the answer, as the client asked or, where it did not, as the Modelfile does.
        count: the prompt's.
        window: the model's.
    """
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


def check_load_options(request: InferenceRequest, window: Window) -> None:
    """Refuse options that would load the model again (`on_load_option = "refuse"`); what it is loaded with would not.

    Raises:
        Refused: 400, naming them.
    """
    options = request.body.get("options") or {}
    names = sorted(
        name
        for name in LOAD_OPTIONS
        if (value := options.get(name)) is not None and (name, value) not in window.load_options
    )
    if names:
        raise Refused(
            Refusal(
                status=400,
                code="load_options_not_allowed",
                message=f"{', '.join(names)} would make Ollama load the model again, and the operator of this gate "
                "allows that to nobody. Leave them out of options.",
                param=f"options.{names[0]}",
            )
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
            f"{_own_num_ctx(request, limit.tokens) if limit.by == 'num_ctx' else ''}"
        ),
        param=param,
        reason=REASON,
        details={"prompt_tokens": tokens, "limit": limit.tokens, "limit_is": limit.by, "rung": rung.value},
        headers=HEADERS,
    )


def _own_num_ctx(request: InferenceRequest, in_force: int) -> str:
    """What to say to a client whose own num_ctx would have been larger: most show nothing but the message."""
    asked = request.asked_num_ctx
    if asked is None or asked <= in_force:
        return ""
    return f" Your own num_ctx of {asked} has no effect here: the window is the operator's."


def refused_upstream(request: InferenceRequest, tokens: int | None, limit: int | None, window: Window) -> Refusal:
    """The refusal of a prompt that the gate let pass and Ollama found too long; nothing was cut."""
    most = min(window.largest_prompt, limit - 1 if limit is not None else window.largest_prompt)
    known = tokens if tokens is not None else most + 1
    param = {Kind.CHAT: "messages", Kind.GENERATE: "prompt"}.get(request.kind, "input")
    return Refusal(
        status=400,
        code=CODE,
        message=(
            f"{sentence(known, most)} (Ollama's own count{'' if tokens is not None else ' was not told'}; "
            "the gate had let this request pass.) Shorten it."
        ),
        param=param,
        reason=REASON,
        details={"prompt_tokens": tokens, "limit": most, "window": window.num_ctx, "counted_by": "ollama"},
        headers=HEADERS,
    )


def facts(count: PromptCount, window: Window) -> dict[str, Any]:
    """Numbers of a count and its window, for programs."""
    return {
        "prompt_tokens": count.tokens,
        "at_most": count.at_most,
        "rung": count.rung.value,
        "budget": window.budget,
        "window": window.num_ctx,
        "parts": asdict(count.parts),
    }


def upstream_failed(failure: UpstreamError, url: str) -> Refusal:
    """What the client is told when Ollama gave no answer."""
    if isinstance(failure, UpstreamUnreachable):
        return Refusal(
            503,
            failure.code,
            f"Ollama does not answer at {url} ({failure}). The gate goes on by itself when it is back.",
            type="api_error",
            headers={"Retry-After": "5"},
        )
    if isinstance(failure, UpstreamTimeout):
        return Refusal(504, failure.code, f"{failure}. Nothing was sent to you before.", type="api_error")
    return Refusal(502, failure.code, f"Ollama broke off before its answer was whole: {failure}", type="api_error")


def hopeless(refusal: Refusal) -> Refusal:
    """The same refusal for somebody who goes round: no word in it that starts another compaction."""
    details: dict[str, Any] = dict(refusal.details)
    needed, allowed = details.get("prompt_tokens"), details.get("budget", details.get("limit"))
    return Refusal(
        status=400,
        code="prompt_cannot_fit",
        message=(
            f"This conversation was refused {ROUNDS} times in a row and did not become smaller: it needs {needed} of "
            f"{allowed}. What is sent each time (system prompt, tools, summary) leaves no room. Stop, and ask the "
            "operator of the gate for a larger budget, offer fewer tools, or begin a new conversation."
        ),
        param=refusal.param,
        reason="Prompt Cannot Fit",
        details=details,
        headers=HEADERS,
    )


def cannot_embed(model: str) -> Refusal:
    """The refusal of an embedding that was asked of a model for chat."""
    return Refusal(
        400,
        "model_cannot_embed",
        f'"{model}" does not support embeddings: it is a model for chat and completion. Use an embedding model; '
        "`ollama pull all-minilm` gets a small one.",
        param="model",
    )


def not_counted(model: str, *, remote: bool) -> Refusal:
    """The refusal of a count of a model that Ollama does not have, or only in the cloud."""
    if remote:
        return Refusal(
            400, "not_countable", f'"{model}" runs in the cloud: its tokens cannot be counted here', param="model"
        )
    return Refusal(404, "model_not_found", f"model '{model}' not found", type="not_found_error", param="model")
