"""Bounds on a prompt count that cost next to nothing: from the bytes of its texts, without rendering or tokenizing.

No byte-level BPE and no SPM vocabulary makes more tokens than a text has UTF-8 bytes (`docs/counting.md` has the
argument and its two exceptions, which are handled here). What a template adds is measured once for each model by
rendering probe conversations (`measure`), and taken with a margin; until then, and for prompts that Ollama renders,
generous constants stand in. The bound decides only requests that are far inside the budget, and every answer's
prompt_eval_count is held against it: a model that breaks its bound once is never admitted by it again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest, Json, Kind, Texts

_CHAT: Final = Kind.CHAT  # an enum's members are slow to get (Python 3.11)
SPECIALS: Final = 2
"""BOS and EOS, whether or not the tokenizer adds them."""
IMAGE_TOKENS: Final = 768
"""What Ollama itself reckons for an image whose cost it does not know (`server/prompt.go`, v0.33)."""


@dataclass(frozen=True, slots=True)
class TemplateCost:
    """How many bytes a template adds to the texts it is given, at most."""

    fixed: int = 2048
    """Bytes of a prompt with nothing in it, default system prompt included."""
    each: int = 160
    """Bytes around one message."""
    times: int = 2
    """How often a text of a message can appear in the prompt."""
    tools_times: int = 2
    """How often the tools can appear."""
    tool_each: int = 160
    """Bytes around one tool."""
    indents: int = 2
    """JSON is set in by so many pairs of blanks at each level; 0 where it stands in one line."""


def most_bytes(request: InferenceRequest, cost: TemplateCost) -> tuple[int, int] | None:
    """The longest text that the prompt of a chat or generate request can have: its bytes, and how many images.

    None where there is no telling: a request's own template may repeat its texts as often as it likes, and the tokens
    of `context` stand for a text that is not known here.

    Args:
        request: what is counted.
        cost: what the model's template adds.
    """
    body = request.body
    if request.kind is _CHAT:
        weight = None if request.weight is None else request.weighed
        texts = None if weight is None else weight.texts
        told, spaces, messages, images, printed, tool_spaces = texts or _texts_of(body, set_in=cost.indents > 0)
        size = cost.fixed + cost.each * (messages + 1) + cost.times * (told + cost.indents * spaces)
        tools = body.get("tools")
        if tools:
            size += cost.tools_times * (printed + cost.indents * tool_spaces) + cost.tool_each * len(tools)
        return size, images
    if body.get("template") or body.get("context"):
        return None
    prompt, images = byte_length(body.get("prompt") or ""), len(body.get("images") or ())
    if body.get("raw"):
        return prompt, images
    told = prompt + byte_length(body.get("system") or "") + byte_length(body.get("suffix") or "")
    return cost.fixed + 2 * cost.each + cost.times * told, images


def tokens_of_bytes(size: int, tokenizer_model: str) -> int | None:
    """The most tokens that a text of so many bytes can have, from the kind of vocabulary alone.

    Byte-level BPE and Gemma 4 never make more than one token of a byte, WordPiece never more than one of a character.
    SPM vocabularies that put a blank in front of every run of text can make one more for each special token, and those
    have at least one byte each. Unigram ones normalise with NFKC, which has no useful bound: None.
    """
    if tokenizer_model in ("gpt2", "gemma4", "bert"):
        return size + SPECIALS
    if tokenizer_model == "llama":
        return 2 * size + 1 + SPECIALS
    return None


def at_least(request: InferenceRequest, longest_token: int) -> int:
    """A lower bound: the user's own words cannot be told in fewer tokens than their bytes over the longest token's.

    Only what every template must show is taken: the prompt, or the texts of user messages without the white space
    around them.
    """
    if longest_token <= 0:
        return 0
    if request.kind is Kind.GENERATE:
        if request.body.get("template"):
            return 0
        return byte_length((request.body.get("prompt") or "").strip()) // longest_token
    weight = request.weighed
    users = weight.users if weight is not None else users_of(request.body)
    return sum([size // longest_token for size in users])


def users_of(body: Json) -> Iterable[int]:
    """Bytes of each user message of a chat, without the white space around it."""
    for message in body.get("messages") or ():
        if message.get("role") == "user":
            yield byte_length((message.get("content") or "").strip())


MANY: Final = 1000
"""Texts to embed from which on `of_inputs` is nothing for an event loop."""


def of_inputs(texts: Iterable[str], tokenizer_model: str) -> list[int | None]:
    """The most tokens that each of these texts can have, from its bytes; None where that says nothing."""
    return [tokens_of_bytes(byte_length(text), tokenizer_model) for text in texts]


def byte_length(text: str) -> int:
    """UTF-8 bytes of a text; free for ASCII."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def texts_of(body: Json, *, set_in: bool = True) -> Texts:
    """What the texts and tools of a chat's body are long.

    Args:
        body: of a chat.
        set_in: whether the blanks are wanted by which JSON may be set in; they take as long again.
    """
    return Texts(*_texts_of(body, set_in=set_in))


def _texts_of(body: Json, *, set_in: bool) -> tuple[int, int, int, int, int, int]:
    """The same without names, because every request asks for it."""
    size = spaces = number = images = 0
    for message in body.get("messages") or ():
        number += 1
        content = message.get("content") or ""
        size += len(content) if content.isascii() else byte_length(content)
        if len(message) > 2:
            for key in ("thinking", "tool_name", "tool_call_id"):
                size += byte_length(message.get(key) or "")
            calls = message.get("tool_calls")
            if calls:
                length, blanks = _printed(calls, set_in=set_in)
                size += length
                spaces += blanks
            images += len(message.get("images") or ())
        role = message.get("role")
        if role is not None and role not in _ROLES:
            size += byte_length(role)
    tools = body.get("tools")
    return size, spaces, number, images, *(_printed(tools, set_in=set_in) if tools else (0, 0))


_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})


def _printed(value: Any, *, set_in: bool) -> tuple[int, int]:
    """Bytes of JSON as a template may print it, and the blanks of it for each pair by which it is set in at each level.

    Renderers put a blank after each separator, Go writes `<`, `>` and `&` in six bytes each, and a text inside a text
    is escaped once more.
    """
    raw = orjson.dumps(value)
    marks = raw.count(b",") + raw.count(b":")
    angles = raw.count(b"<") + raw.count(b">") + raw.count(b"&")
    return len(raw) + marks + 5 * angles + 2 * raw.count(b"\\"), _spaces(value, len(raw)) if set_in else 0


def _spaces(value: Any, in_one_line: int) -> int:
    """Line ends and blanks of JSON that is set in by one pair of blanks at each level."""
    return len(orjson.dumps(value, option=orjson.OPT_INDENT_2)) - in_one_line


def unmeasured(system: str, messages: Iterable[Mapping[str, Any]]) -> TemplateCost:
    """The generous constants for a template that was not measured yet, with the Modelfile's own texts in them."""
    own = 2 * byte_length(system)
    for message in messages:
        own += 2 * byte_length(str(message.get("content") or "")) + 160
    return TemplateCost(fixed=2048 + own)


_MARK: Final = "kXqVzJw"
"""Stands in probe conversations for a text; it is found again in what a template makes of it."""


def measure(render: Callable[[Mapping[str, Any]], str]) -> TemplateCost:
    """Learn what a template adds, by rendering probe bodies of /api/chat.

    Args:
        render: gives the prompt's text for a body with messages and tools; it may raise for shapes that the template
            does not take, and those probes are then left out.

    Returns:
        The cost with a margin, or the generous constants when no probe could be rendered.
    """
    base = _rendered(render, [("user", "")])
    if base is None:
        return TemplateCost()
    fixed, each, times = len(base.encode()), 0, 1
    for roles in _PROBES:
        empty = _rendered(render, [(role, "") for role in roles])
        if empty is not None:
            each = max(each, -(-(len(empty.encode()) - fixed) // len(roles)))
        marked = _rendered(render, [(role, _MARK) for role in roles])
        if marked is not None:
            times = max(times, -(-marked.count(_MARK) // len(roles)), _most_repeated(render, roles))
    if _most_repeated(render, _LONG) > _most_repeated(render, _LONG[: len(_LONG) // 2]):
        return TemplateCost(fixed=_NO_BOUND)
    tools = _measured_tools(render)
    return TemplateCost(
        fixed=max(fixed, tools.fixed) + len(base.encode()) + 64,
        each=each + 32,
        times=times,
        tools_times=tools.tools_times,
        tool_each=tools.tool_each + 32,
        indents=tools.indents,
    )


_NO_BOUND: Final = 1 << 40
"""Bytes; stands for a template that repeats one message with every other one, so that no number of times is enough."""


def _measured_tools(render: Callable[[Mapping[str, Any]], str]) -> TemplateCost:
    """What a template adds to tools: how often each part of one shows, what stands around it, and how it is set in."""
    first, second, deep = _tool("a", _FLAT), _tool("b", _FLAT), _tool("a", _nested(8))
    times, shown = 1, []
    for roles in _PROBES:
        texts = [_rendered(render, [(role, "") for role in roles], tools) for tools in ([first], [first, second])]
        without = _rendered(render, [(role, "") for role in roles])
        for text in texts:
            for mark in ("a", "b"):
                if text is not None:
                    times = max(times, *(-(-text.count(_MARK + mark + part) // usual) for part, usual in _PARTS))
        if texts[0] is not None and texts[1] is not None:
            added = len(texts[0].encode()) - (len(without.encode()) if without is not None else 0)
            shown.append((roles, texts[0], added, len(texts[1].encode()) - len(texts[0].encode())))
    fixed = each = indents = 0
    for roles, text, added, more in shown:
        fixed = max(fixed, added)
        each = max(each, more - times * _printed(second, set_in=False)[0])
        set_in = _rendered(render, [(role, "") for role in roles], [deep])
        if set_in is not None:
            marks = sum(orjson.dumps(deep).count(mark) - orjson.dumps(first).count(mark) for mark in (b",", b":"))
            blanks = sum(set_in.count(blank) - text.count(blank) for blank in " \n\t") - times * marks
            indents = max(indents, -(-blanks // (times * _spaces(deep, len(orjson.dumps(deep))))))
    return TemplateCost(fixed=fixed, tools_times=times, tool_each=each, indents=indents)


_PARTS: Final = (("n", 1), ("d", 1), ("p", 2), ("q", 1))
"""The marked parts of a probe tool, and how often each stands in its JSON."""
_FLAT: Final[Mapping[str, Any]] = {"type": "string"}


def _tool(mark: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A probe tool in which every part is marked."""
    name, description, parameter, said = (_MARK + mark + part for part, _ in _PARTS)
    properties = {parameter: {**schema, "description": said}}
    parameters = {"type": "object", "required": [parameter], "properties": properties}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _nested(depth: int) -> dict[str, Any]:
    """A schema that is an object in an object and so on; a part that Ollama keeps whatever it is goes deep too."""
    if not depth:
        return {"type": "string", "enum": ["a", "b", "c"]}
    inner = _nested(depth - 1)
    return {"type": "object", "properties": {"a": inner}, "items": inner if depth == 1 else {"x": [{"y": ["z"]}]}}


_PROBES: Final = (
    ("user",),
    ("system", "user"),
    ("system", "user", "assistant", "user"),
    ("user", "assistant", "user", "assistant", "user"),
    ("system", "user", "assistant", "tool", "user"),
    ("user", "assistant"),
    ("system", "system", "user", "system"),
)
_LONG: Final = ("system", "user", "assistant", "user", "assistant", "user", "assistant", "user")
"""A conversation whose first half is one as well."""


def _most_repeated(render: Callable[[Mapping[str, Any]], str], roles: tuple[str, ...]) -> int:
    """How often the text of one message shows, for the message that shows most often."""
    most = 1
    for place in range(len(roles)):
        shown = _rendered(render, [(role, _MARK if at == place else "x") for at, role in enumerate(roles)])
        if shown is not None:
            most = max(most, shown.count(_MARK))
    return most


def _rendered(
    render: Callable[[Mapping[str, Any]], str], messages: list[tuple[str, str]], tools: list[Any] | None = None
) -> str | None:
    body: dict[str, Any] = {"messages": [{"role": role, "content": text} for role, text in messages]}
    if tools is not None:
        body["tools"] = tools
    try:
        return render(body)
    except RenderError:
        return None
