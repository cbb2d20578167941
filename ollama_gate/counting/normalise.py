"""What Ollama makes of a request before any template sees it: one frozen `Conversation`.

Whatever renders the prompt afterwards (a Go template, the GGUF's jinja, Ollama itself), the server first decodes the
request into its structs, puts the Modelfile's SYSTEM and MESSAGEs in front, settles `think`, removes old thinking and
renames tools. Sources: `server/routes.go` (`ChatHandler`, `GenerateHandler`, `filterThinkTags`), `server/prompt.go`,
`harmony/harmonyparser.go`, Ollama v0.33.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, TypeVar

from ollama_gate.counting.structs import (
    Message,
    Tool,
    ToolCall,
    ToolProperty,
    decode_messages,
    decode_text,
    decode_tools,
)
from ollama_gate.errors import RenderError, TemplateRefused

T = TypeVar("T")
Think = bool | str | None
"""A request's `think`: true, false, a level, or None where it is unset."""

_INT64: Final = 2**63
LEVELS: Final = frozenset({"high", "medium", "low", "max"})
R1: Final = "deepseek-r1"
GO_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # noqa: E501
"""What Go's `unicode.IsSpace` takes for white space; Python's strip() takes more."""


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What of a model, beyond its template, changes the prompts that are made for it. All from `/api/show`."""

    name: str = ""
    """The model's name; only its last part without the tag matters."""
    family: str = ""
    """`details.family`."""
    capabilities: frozenset[str] = frozenset()
    system: str = ""
    """The Modelfile's SYSTEM."""
    messages: tuple[Message, ...] = ()
    """The Modelfile's MESSAGEs (`structs.decode_messages` makes them)."""
    parser: str = ""
    """The Modelfile's PARSER."""
    template: str = ""
    """The Go template, where there is one: with family gpt-oss it tells whether harmony is spoken."""
    bare: bool = False
    """It has no template at all: /api/generate then renders the prompt alone (`template.DefaultTemplate`)."""

    @property
    def harmony(self) -> bool:
        """Whether the server takes the model for a harmony one (`server/routes.go:shouldUseHarmony`)."""
        return self.family in {"gptoss", "gpt-oss"} and "<|start|>" in self.template and "<|end|>" in self.template


class Flow(StrEnum):
    """By which of the server's ways a request becomes text."""

    CHAT = "chat"
    """Messages go through whatever renders for the model."""
    OVERRIDE = "override"
    """/api/generate with a `template`: the messages go into that Go template, whatever the model's mode."""
    SUFFIX = "suffix"
    """/api/generate with a `suffix`: the Go template sees prompt and suffix only, no system and no messages."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request as the renderers get it."""

    messages: tuple[Message, ...] = ()
    """Everything in order, the Modelfile's part included. Empty: nothing is rendered (a load or unload request)."""
    tools: tuple[Tool, ...] | None = None
    """None where Go has a nil list."""
    think: Think = None
    flow: Flow = Flow.CHAT
    prompt: str = ""
    """Flow.SUFFIX: the text before the gap."""
    suffix: str = ""
    override: str = ""
    """Flow.OVERRIDE: the request's own template."""
    context: tuple[int, ...] = ()
    """/api/generate: tokens whose text goes in front of what is rendered."""
    raw: str | None = None
    """/api/generate with `raw`: the prompt itself; nothing is rendered."""

    @property
    def think_level(self) -> str:
        """What templates see as `.ThinkLevel` (`api/types.go:ThinkValue.String`)."""
        if isinstance(self.think, str):
            return self.think
        return "medium" if self.think else ""

    @property
    def images(self) -> int:
        """How many images the messages carry."""
        return sum(message.images for message in self.messages)


def chat_conversation(body: Mapping[str, Any], model: ModelTraits, *, relax_thinking: bool = False) -> Conversation:
    """Prepare a request to /api/chat.

    Args:
        body: the native body, top-level keys folded.
        model: what the prompt depends on besides the template.
        relax_thinking: the request came through /v1/messages, where Ollama forgives `think` to a model without it.

    Raises:
        TemplateRefused: Ollama answers 400 to this request.
        RenderError: what Ollama would make of it cannot be known here.
    """
    return _guarded(lambda: _chat(body, model, relax_thinking=relax_thinking))


def generate_conversation(body: Mapping[str, Any], model: ModelTraits) -> Conversation:
    """Prepare a request to /api/generate.

    Args:
        body: the native body, top-level keys folded.
        model: what the prompt depends on besides the template.

    Raises:
        TemplateRefused: Ollama answers 400 to this request.
        RenderError: what Ollama would make of it cannot be known here.
    """
    return _guarded(lambda: _generate(body, model))


def tag_images(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Put Ollama's markers for images into the contents (`server/prompt.go:imageTaggedMessages`).

    Each takes the place of a literal `[img]`, else stands in front. Not for native chat, where images are parts of
    their own, but for native /api/generate.
    """
    out = []
    count = 0
    for message in messages:
        prefix, content = "", message.content
        for number in range(count, count + message.images):
            tag = f"[img-{number}]"
            if "[img]" in content:
                content = content.replace("[img]", tag, 1)
            else:
                prefix += tag
        count += message.images
        out.append(replace(message, content=prefix + content) if message.images else message)
    return tuple(out)


def native_tools(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools as a native (jinja) template gets them: Ollama's JSON of its structs, read again by llama.cpp.

    Keys stand in the structs' order, free-form values have sorted keys, whole numbers are ints, and `description` is
    there even when empty, because llama.cpp puts it back.
    """
    return [
        {
            "type": tool.type,
            **_present(items=native_value(tool.items)),
            "function": {
                "name": tool.function.name,
                "description": tool.function.description,
                "parameters": {
                    "type": tool.function.parameters.type,
                    **_present(**{"$defs": native_value(tool.function.parameters.defs)}),
                    **_present(items=native_value(tool.function.parameters.items)),
                    **_filled(required=tool.function.parameters.required),
                    "properties": _native_properties(tool.function.parameters.properties),
                },
            },
        }
        for tool in tools
    ]


def native_arguments(call: ToolCall) -> dict[str, Any] | None:
    """A call's arguments as llama.cpp reads them: the client's key order, sorted further down; None for `null`."""
    if call.arguments is None:
        return None if call.null_arguments else {}
    return {key: native_value(value) for key, value in call.arguments.items()}


def native_value(value: Any) -> Any:
    """A free-form value after Go's JSON and llama.cpp's parser: keys sorted, whole numbers ints."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return _native_number(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: native_value(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [native_value(item) for item in value]
    return value


def _native_number(value: float) -> float:
    """A whole number: Go writes its fewest digits and zeros, the parser reads that as int64, uint64 or a double.

    The template engine has int64 only, so that what was read as uint64 turns negative there (`common/jinja/value.cpp`,
    llama.cpp b10488).
    """
    if abs(value) < _INT64 // 1024:
        return int(value)  # every digit of it is written
    whole = int(Decimal(repr(value)))
    if _INT64 <= whole < 2 * _INT64:
        return whole - 2 * _INT64
    return whole if -_INT64 <= whole < _INT64 else value


def is_r1(name: str) -> bool:
    """Whether old thinking is taken out because of a model's name alone (`server/routes.go:filterThinkTags`)."""
    return name.rpartition("/")[2].partition(":")[0] == R1


def strip_thinking(content: str) -> str:
    """Drop a leading `<think>…</think>`, as `thinking/parser.go` does with a whole text.

    An unclosed one leaves nothing, and neither does a text that is only a beginning of the tag.
    """
    text = content.lstrip(GO_SPACE)
    if not text.startswith("<think>"):
        return "" if "<think>".startswith(text) else content
    _, closed, answer = text.removeprefix("<think>").partition("</think>")
    return answer.lstrip(GO_SPACE) if closed else ""


HARMONY_BUILT_IN: Final = frozenset({"browser.open", "browser.search", "browser.find", "python"})


def harmony_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names under which harmony models are offered tools (`harmony/harmonyparser.go:FunctionNameMap`)."""
    taken: set[str] = set()
    return tuple([name and _harmony_name(name, taken) for name in names])


def _harmony_name(name: str, taken: set[str]) -> str:
    valid = "".join(
        "_" if rune in " -." else rune for rune in name if rune in " -._$" or rune.isalpha() or rune.isdecimal()
    )
    valid = valid or "unnamed"
    if valid[0] in "0123456789":
        valid = "_" + valid
    candidate, number = valid, 2
    while candidate in taken:
        candidate = f"{valid}_{number}"
        number += 1
    if name in HARMONY_BUILT_IN:
        candidate = name
    taken.add(candidate)
    return candidate


def _guarded(prepare: Callable[[], T]) -> T:
    try:
        return prepare()
    except RecursionError:
        raise RenderError("the request is nested too deeply") from None


def _chat(body: Mapping[str, Any], model: ModelTraits, *, relax_thinking: bool) -> Conversation:
    messages = decode_messages(body.get("messages"))
    tools = decode_tools(body.get("tools"))
    if tools and "tools" not in model.capabilities:
        raise TemplateRefused(f"{model.name!r} does not support tools")
    think = _think(body.get("think"), model, relax=relax_thinking)
    if not messages:
        return Conversation(tools=tools, think=think)
    system = (Message("system", model.system),) if model.system and messages[0].role != "system" else ()
    messages = system + model.messages + messages
    if model.family == "qwen3" or is_r1(model.name):
        messages = _without_old_thinking(messages)
    if tools and (model.parser == "harmony" or (model.harmony and not model.parser)):
        tools = _renamed(tools, harmony_names([tool.function.name for tool in tools]))
    return Conversation(messages, tools, think)


def _generate(body: Mapping[str, Any], model: ModelTraits) -> Conversation:
    think = _think(body.get("think"), model, relax=False)
    prompt = decode_text(body.get("prompt"), "prompt")
    suffix = decode_text(body.get("suffix"), "suffix")
    system = decode_text(body.get("system"), "system") or model.system
    override = decode_text(body.get("template"), "template")
    context = body.get("context")
    if suffix and "insert" not in model.capabilities:
        raise TemplateRefused(f"{model.name!r} does not support insert")
    if not prompt:
        return Conversation(think=think)
    if body.get("raw") is True:
        if override or context or body.get("system"):
            raise TemplateRefused("raw mode does not support template, system, or context")
        return Conversation(raw=prompt)
    tokens = _tokens(context)
    images = decode_messages([{"images": body.get("images")}])[0].images
    if suffix:
        return Conversation(
            think=think, flow=Flow.SUFFIX, prompt=prompt, suffix=suffix, override=override, context=tokens
        )
    messages: tuple[Message, ...] = (Message("user", prompt, images=images),)
    if context is None:
        messages = model.messages + messages
    if system:
        messages = (Message("system", system), *messages)
    if override or model.bare:
        override = override or "{{ .Prompt }}"
        return Conversation(messages, None, think, Flow.OVERRIDE, override=override, context=tokens)
    return Conversation(messages, (), think, context=tokens)


def _tokens(value: Any) -> tuple[int, ...]:
    """The tokens of a `context`."""
    if value is None:
        return ()
    if not isinstance(value, list) or any(isinstance(token, bool) or not isinstance(token, int) for token in value):
        raise TemplateRefused("json: cannot unmarshal context into a Go value of type []int")
    return tuple(value)


def _think(value: Any, model: ModelTraits, *, relax: bool) -> Think:
    """`think` as it reaches the templates: on by itself where the model can think, a 400 where it cannot."""
    if not (value is None or isinstance(value, bool) or (isinstance(value, str) and value in LEVELS)):
        raise TemplateRefused('think must be a boolean or string ("high", "medium", "low", "max", true, or false)')
    if "thinking" in model.capabilities:
        if value is None:
            return True
        return "high" if value == "max" and model.harmony else value
    if value and not relax:
        raise TemplateRefused(f"{model.name!r} does not support thinking")
    return None if value else value


def _without_old_thinking(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
    return tuple(
        [
            replace(message, content=strip_thinking(message.content))
            if message.role == "assistant" and i < last_user
            else message
            for i, message in enumerate(messages)
        ]
    )


def _renamed(tools: tuple[Tool, ...], names: tuple[str, ...]) -> tuple[Tool, ...]:
    return tuple(
        [replace(tool, function=replace(tool.function, name=name)) for tool, name in zip(tools, names, strict=True)]
    )


def _native_properties(properties: Mapping[str, ToolProperty] | None) -> dict[str, Any] | None:
    if properties is None:
        return None
    return {name: _native_property(value) for name, value in properties.items()}


def _native_property(value: ToolProperty) -> dict[str, Any]:
    made: dict[str, Any] = {}  # key by key, because there are many: a tenth of what counting a warm agent's turn takes
    if value.any_of:
        made["anyOf"] = [_native_property(choice) for choice in value.any_of]
    if value.type:
        made["type"] = value.type[0] if len(value.type) == 1 else list(value.type)
    if value.items is not None:
        made["items"] = native_value(value.items)
    if value.description:
        made["description"] = value.description
    if value.enum:
        made["enum"] = native_value(value.enum)
    if value.properties is not None:
        made["properties"] = _native_properties(value.properties)
    if value.required:
        made["required"] = list(value.required)
    return made


def _present(**fields: Any) -> dict[str, Any]:
    """Go's `omitempty` on an interface or a pointer: left out when nil."""
    return {name: value for name, value in fields.items() if value is not None}


def _filled(**fields: Sequence[Any] | None) -> dict[str, Any]:
    """Go's `omitempty` on a list: left out when empty."""
    return {name: list(value) for name, value in fields.items() if value}
