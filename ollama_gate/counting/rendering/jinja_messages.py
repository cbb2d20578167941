"""What llama.cpp hands to a model's template: the messages as it rebuilds them, in the form the template can take.

llama.cpp tries a template out when it loads it, to learn whether it takes content as text or as parts, knows a system
role, and wants the arguments of tool calls as an object (`common/jinja/caps.cpp`); messages are then shaped accordingly
(`common/chat.cpp:common_chat_templates_apply_jinja`, b10488). What arrives there is what Ollama sends
(`llm/llama_server.go:llamaServerChatMessage`, v0.33): no thinking of earlier turns, and arguments as JSON text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ollama_gate.counting.normalise import native_arguments
from ollama_gate.counting.rendering.gotemplate.gojson import ordered_map
from ollama_gate.counting.rendering.gotemplate.values import ANY
from ollama_gate.counting.rendering.jinja_values import TooMuchWork, WatchedMapping, WatchedText
from ollama_gate.counting.structs import Message, ToolCall
from ollama_gate.errors import RenderError, TemplateRefused

Run = Callable[[Mapping[str, Any]], str]
"""Renders the template with these variables; raises RenderError or TemplateRefused."""

_MARKER: Final = "STRING_MARKER"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template takes; found by trying it out."""

    text_content: bool = True
    """Message content as text."""
    part_content: bool = False
    """Message content as a list of parts."""
    system_role: bool = True
    tool_calls: bool = True
    object_arguments: bool = False
    """Tool calls with their arguments as an object; else as JSON text."""

    @classmethod
    def of(cls, run: Run) -> "Capabilities":
        """Try a template out as `caps.cpp:caps_get` does."""
        content = WatchedText(_MARKER)
        text = _tried(run, [{"role": "user", "content": content}], [])
        system = WatchedMapping(role="system", content="System message")
        _tried(run, [system, {"role": "user", "content": "User message"}], [])
        arguments = WatchedMapping(arg="value")
        calling = WatchedMapping(role="assistant", content="")
        called = _tried(run, _called(calling, arguments), [_TOOL])
        tool_calls = called is None or "tool_calls" in calling.seen
        object_arguments = called is not None and tool_calls and "arg" in arguments.seen
        if not object_arguments:
            calling.seen.clear()
            called = _tried(run, _called(calling, '{"arg": "value"}'), [_TOOL])
            tool_calls = tool_calls and called is not None and "tool_calls" in calling.seen
        return cls(
            text_content=text is not None and not (content.as_list and _MARKER not in text),
            part_content=content.as_list,
            system_role="content" in system.seen,
            tool_calls=tool_calls,
            object_arguments=object_arguments,
        )

    def content(self, text: str) -> str | list[dict[str, Any]]:
        """Message content in the form that the template takes."""
        return [{"type": "text", "text": text}] if self.part_content and not self.text_content else text


def _tried(run: Run, messages: Sequence[Mapping[str, Any]], tools: list[Any]) -> str | None:
    variables = {
        "messages": list(messages),
        "tools": tools,
        "bos_token": "",
        "eos_token": "",
        "add_generation_prompt": True,
    }
    return tried(run, variables)


def tried(run: Run, variables: Mapping[str, Any]) -> str | None:
    """What a template makes of made-up variables; None when it fails on them, which tells something too.

    Raises:
        TooMuchWork: the template cannot be tried out.
    """
    try:
        return run(variables)
    except TooMuchWork:
        raise
    except (RenderError, TemplateRefused):
        return None


def _called(calling: WatchedMapping, arguments: Any) -> list[dict[str, Any]]:
    call = {"id": "call00001", "type": "function", "function": {"name": "tool1", "arguments": arguments}}
    calling["tool_calls"] = [call]
    return [
        {"role": "user", "content": "User message"},
        calling,
        {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "The tool response was 'tool response'"},
        {"role": "user", "content": "User message"},
    ]


_TOOL: Final = {
    "name": "tool",
    "type": "function",
    "function": {
        "name": "tool1",
        "description": "Tool description",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "Arg description"}},
            "required": ["arg"],
        },
    },
}


def messages_for(messages: Sequence[Message], source: str, takes: Capabilities) -> list[dict[str, Any]]:
    """The messages as the template gets them, made anew for each rendering because templates may change them.

    Args:
        messages: the conversation, or all but the last message of one that the model is to continue.
        source: the template; some are recognised by what they hold.
        takes: what the template takes.

    Raises:
        RenderError: the template cannot be given these messages.
    """
    trims = "You have access to the following functions in JSONSchema format" in source
    made = [_message(message, takes, trims=trims) for message in messages]
    if "<|channel|>" not in source:
        for message in made:
            if message["role"] == "developer":
                message["role"] = "system"
    if not takes.system_role and made and made[0]["role"] == "system":
        first = made.pop(0)
        if made:
            if not isinstance(first["content"], str) or not isinstance(made[0]["content"], str):
                raise RenderError("a system message cannot be merged into a list of parts")
            made[0]["content"] = f"{first['content']}\n{made[0]['content']}"
    return made


def _message(message: Message, takes: Capabilities, *, trims: bool) -> dict[str, Any]:
    content = message.content.strip(" \t\n\v\f\r") if trims else message.content
    made: dict[str, Any] = {"role": message.role, "content": takes.content(content)}
    if takes.part_content and message.images:
        # A picture's marker is not text; what it costs is counted elsewhere.
        parts = [{"type": "text", "text": content}] if content else []
        made["content"] = parts + [{"type": "media_marker", "text": ""}] * message.images
    if message.tool_name:
        made["name"] = message.tool_name
    if message.tool_call_id:
        made["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": native_arguments(call) if takes.object_arguments else _argument_text(call),
                },
                **({"id": call.id} if call.id else {}),
            }
            for call in message.tool_calls
        ]
    return made


def _argument_text(call: ToolCall) -> str:
    """Arguments as the JSON text that Ollama sends them as."""
    if call.arguments is None and not call.null_arguments:
        return "{}"
    return ordered_map(ANY, call.arguments)
