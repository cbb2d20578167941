"""What all translated dialects share: how a native request is put together, and what an answer says of itself."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal

from ollama_gate.dialects.go_fields import bad_request
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import AnswerFacts, Control, InferenceRequest, Json, Kind
from ollama_gate.window import Ending, ending
from ollama_gate.wire.ndjson import error_text

JSON_HEADERS: Final[Mapping[str, str]] = MappingProxyType({"Content-Type": "application/json"})
"""As Ollama sends with a translated whole answer."""

ServerTools = Literal["drop", "refuse", "pass"]
"""What to do with tools that Ollama itself would run, which no gate could guard: leave out, refuse, or hand on."""

KEEP_ALIVE_HEADER: Final = "x-ollama-gate-keep-alive"
SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "x-session-id",
    "session-id",
    "session_id",
    "thread-id",
    "x-session-affinity",
)
"""Where agents put a conversation id: Claude Code, opencode, Codex."""

NOTE_TOOL_CHOICE_NONE: Final = "tool_choice none: the tools were left out"
NOTE_TOOL_CHOICE_IGNORED: Final = "tool_choice is not enforced by Ollama"
NOTE_CONTENT_LEFT_OUT: Final = "content blocks of a kind Ollama does not know were left out"
NOTE_TOOLS_LEFT_OUT: Final = "tools of a kind Ollama does not know were left out"
NOTE_NO_FORMAT: Final = "the answer's format is not enforced: it names none that Ollama has, or has no schema"
NOTE_NO_STATE: Final = "previous_response_id and conversation are ignored: Ollama keeps no responses"
NOTE_NUM_CTX: Final = "num_ctx ignored: it is no number of tokens, and the window is the operator's"
NOTE_ONE_CHOICE: Final = "n is ignored: Ollama gives one choice"

_INT64: Final = 2**63
_LONGEST_SESSION: Final = 256
_DURATION: Final = re.compile(r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_NUMBER: Final = re.compile(r"[-+]?\d{1,15}(?:\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stamp:
    """When an answer began and what it is called; chosen outside, because translation has no clock and no dice."""

    created: int
    """Unix time in seconds."""
    id: str
    """Letters and digits, unique enough; each dialect puts its own prefix before it."""


def inference_request(
    kind: Kind,
    dialect: str,
    client: Json,
    headers: Mapping[str, str],
    native: dict[str, Any],
    *,
    asked_output: int | None = None,
    notes: Iterable[str] = (),
    empty: bool = False,
    as_it_came: bool = False,
) -> InferenceRequest:
    """A native request around a translated body.

    Args:
        kind: chat, generate or embed; it decides the route.
        dialect: the caller's dialect.
        client: the client's own body, for what it asked of the window.
        headers: the client's headers, looked up by lower-case names.
        native: the translated body; `model` must be there.
        asked_output: tokens the client asked for.
        notes: what was left out or changed.
        empty: there is no prompt, so that the request only loads or unloads the model.
        as_it_came: it has to be answered by Ollama's own layer for the dialect.

    Raises:
        Refused: 400 for a keep-alive header that is no duration; 400 or 404, as Ollama has it, without a model.
    """
    if not native["model"]:
        if kind is Kind.CHAT:
            raise bad_request("model is required")
        raise Refused(Refusal(404, "not_found", "model '' not found", type="not_found_error"))
    control, noted = Control.NONE, list(notes)
    keep_alive = _keep_alive(headers)
    if keep_alive is not None:
        native["keep_alive"] = keep_alive
    if empty:
        control = Control.UNLOAD if keep_alive == 0 else Control.LOAD
    return InferenceRequest(
        kind=kind,
        path=f"/api/{kind.value}",
        model=native["model"],
        body=native,
        stream=native.get("stream") is True,
        dialect=dialect,
        control=control,
        asked_output=asked_output,
        asked_num_ctx=asked_num_ctx(client, noted),
        session=session_of(headers),
        notes=tuple(dict.fromkeys(noted)),
        as_it_came=as_it_came,
    )


def session_of(headers: Mapping[str, str]) -> str | None:
    """The conversation id that an agent sends, from headers that are looked up by lower-case names."""
    if headers.keys().isdisjoint(SESSION_HEADERS):
        return None
    for name in SESSION_HEADERS:
        value = headers.get(name, "").strip()
        if value:
            return value[:_LONGEST_SESSION]
    return None


def _keep_alive(headers: Mapping[str, str]) -> float | str | None:
    """Seconds, or a Go duration with a unit, from the gate's own header: /v1 bodies have no field for it."""
    value = headers.get(KEEP_ALIVE_HEADER, "").strip()
    if not value:
        return None
    if _NUMBER.fullmatch(value):
        seconds = float(value)
        return int(seconds) if seconds.is_integer() else seconds
    if not _DURATION.fullmatch(value):
        raise bad_request(f"{KEEP_ALIVE_HEADER} must be seconds or a duration such as 5m or 1h30m", KEEP_ALIVE_HEADER)
    return 0 if not re.search(r"[1-9]", value) else value


def asked_num_ctx(client: Json, notes: list[str]) -> int | None:
    """The num_ctx of a client's own; only told back.

    Ollama reads it in the options of /api alone; anywhere else it drops it, of whatever type, and so it is noted.
    """
    options = client.get("options")
    for holder in (options, client) if isinstance(options, dict) else (client,):
        value = holder.get("num_ctx")
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _INT64:
            return int(value)
        if value is not None:
            notes.append(NOTE_NUM_CTX)
            return None
    return None


def without_thinking(request: InferenceRequest) -> InferenceRequest:
    """The same request for a model that cannot think.

    Anthropic's clients ask every model to think; Ollama then drops the wish where other dialects get a 400
    (`server/routes.go:ChatHandler`, `relax_thinking`, v0.33). To be applied once the model's capabilities are known.
    """
    if request.dialect != "anthropic" or request.body.get("think") in (None, False):
        return request
    body = {key: value for key, value in request.body.items() if key != "think"}
    weight = request.weighed and replace(request.weighed, body=body)  # thinking is no part of it
    notes = (*request.notes, "the model does not think: thinking was left out")
    return replace(request, body=body, notes=notes, weight=weight)


def think_of_effort(effort: str) -> bool | str | None:
    """Ollama's `think` for one of OpenAI's reasoning efforts (`openai/openai.go:thinkFromReasoningEffort`, v0.33)."""
    match effort:
        case "":
            return None
        case "none":
            return False
        case "minimal":
            return "low"
        case "low" | "medium" | "high" | "max":
            return effort
        case "xhigh" | "ultra":
            return "max"
        case _:
            raise bad_request(
                f"invalid reasoning value: {quoted(effort)} "
                '(must be "minimal", "low", "medium", "high", "xhigh", "ultra", "max", or "none")'
            )


def note_left_out(body: Json, names: frozenset[str], notes: list[str]) -> None:
    """Add a note of the fields that would change the answer and that Ollama does not know, where they are set."""
    found = sorted(name for name in body.keys() & names if body[name])
    if found:
        notes.append(f"{', '.join(found)} left out: Ollama has nothing of the kind")


def note_elsewhere(body: Json, places: Mapping[str, str], notes: list[str]) -> None:
    """Add a note of the fields that another API has and this route reads elsewhere, where they are set.

    Args:
        body: the client's own.
        places: where this route reads what such a field says.
        notes: to be added to.
    """
    if body.keys().isdisjoint(places):
        return
    found: dict[str, list[str]] = {}
    for name in sorted(body.keys() & places.keys()):
        if body[name] not in (None, ""):
            found.setdefault(places[name], []).append(name)
    notes.extend(f"{', '.join(names)} ignored: this route reads {place}" for place, names in found.items())


def note_in_messages(messages: Iterable[Json], places: Mapping[str, str], notes: list[str]) -> None:
    """Add a note of what messages say in fields that another API has, where nothing stands in this route's own.

    Args:
        messages: those with such a field.
        places: the field of a message that this route reads instead. A `name` is one of a tool's result only.
        notes: to be added to.
    """
    found = {
        name
        for message in messages
        for name in message.keys() & places.keys()
        if message[name] and not message.get(places[name]) and (name != "name" or message.get("role") == "tool")
    }
    notes.extend(f"{name} of messages ignored: this route reads {places[name]}" for name in sorted(found))


def note_beside_functions(tools: Iterable[Any], notes: list[str]) -> None:
    """Add a note of parameters beside a tool's function: Ollama reads those inside it (`api/types.go:Tool`, v0.33)."""
    for tool in tools:
        function = tool.get("function") if tool else None
        if isinstance(function, dict) and tool.get("parameters") and not function.get("parameters"):
            notes.append("parameters of tools ignored: this route reads function.parameters")
            return


def note_without_prompt(body: Json, notes: list[str]) -> None:
    """Add a note of what stands beside no prompt: Ollama only loads then (`server/routes.go:GenerateHandler`)."""
    if lost := [name for name in ("suffix", "system", "images", "context") if body.get(name)]:
        notes.append(f"{', '.join(lost)} ignored: without a prompt the model is only loaded")


def nothing_said(param: str) -> Refused:
    """The refusal of a conversation of which nothing is left: without messages it would only load the model."""
    return bad_request(f"{param} has nothing in it that a model could answer: send some text, or an image", param)


def nameless_tool(param: str) -> Refused:
    """The refusal of a tool whose name stands nowhere in the form of this route: no model could ever call it."""
    return bad_request(f"{param} is missing: without a name there the model cannot call the tool", param)


def nameless_call(param: str) -> Refused:
    """The refusal of an earlier call whose name stands nowhere in the form of this route."""
    return bad_request(f"{param} is missing: without a name there the model cannot see what it called", param)


def quoted(value: str) -> str:
    """A text in quotes, as Go's `%q` has it for ordinary characters."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost, in tokens."""

    prompt: int
    completion: int
    cached: int | None = None
    """How much of the prompt was in the KV cache; None when nobody said."""

    @property
    def total(self) -> int:
        """Prompt and completion together."""
        return self.prompt + self.completion


def usage_of(answer: Mapping[str, Any], facts: AnswerFacts) -> Usage:
    """The counts in a native final chunk; the gate's own prompt count stands in for one that Ollama left out."""
    completion = _count(answer, "eval_count")
    prompt = _count(answer, "prompt_eval_count")
    if prompt is None:
        prompt = facts.prompt_tokens if completion and facts.prompt_tokens is not None else 0
    # prompt_eval_cached_count is what newer versions of Ollama call it.
    cached = _count(answer, "prompt_eval_cached_count")
    return Usage(prompt, completion or 0, facts.cached_tokens if cached is None else cached)


def _count(answer: Mapping[str, Any], key: str) -> int | None:
    value = answer.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def window_is_full(answer: Mapping[str, Any], request: InferenceRequest) -> bool:
    """Whether an answer ended because the window was full, and not at the length that was asked for."""
    end = ending(text_of(answer, "done_reason"), eval_count=_count(answer, "eval_count"), limit=request.asked_output)
    return end is Ending.WINDOW


def message_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message of a native chat answer or chunk; empty when there is none."""
    message = answer.get("message")
    return message if isinstance(message, dict) else {}


def text_of(holder: Mapping[str, Any], key: str) -> str:
    """A text of a native answer; empty when there is none."""
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def failure_of(chunk: Mapping[str, Any]) -> str | None:
    """What an error line inside a native stream says; None for an ordinary chunk."""
    return error_text(chunk.get("error"))


def unix_seconds(timestamp: Any, otherwise: int) -> int:
    """Unix time of an RFC 3339 timestamp such as `2026-11-30T08:16:03.923650675Z`."""
    if not isinstance(timestamp, str):
        return otherwise
    try:
        moment = datetime.fromisoformat(timestamp)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return otherwise
