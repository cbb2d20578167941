"""Writing prompts: each style is a template text for `/api/show` and, where Ollama would run it, its twin in Python.

A jinja style is run from its text. A Go style's text is never run here: `text` and `write` were written side by side,
so that an interpreter of Go templates can be checked against something that is not one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ollama_gate.rehearsal import gojson
from ollama_gate.rehearsal.errors import StatusError, llama_server

Message = Mapping[str, Any]
Think = bool | str | None
"""What was asked of a thinking model: nothing, on, off, or a level."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What there is to render."""

    messages: Sequence[Message]
    """role, content, and where given thinking, tool_calls, tool_name, tool_call_id, images (already normalised)."""
    tools: Sequence[Any] = ()
    think: Think = None
    bos: str = ""
    eos: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """One way of writing a prompt."""

    text: str
    """What `/api/show` gives as template."""
    write: Callable[[Conversation], str]


_CHATML_JINJA = """\
{%- if tools %}
    {{- '<|im_start|>system\\nFunctions you may call, one a line:\\n' }}
    {%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
        {{- call.function.arguments | tojson + '}</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

_THINKING_JINJA = (
    _CHATML_JINJA
    + """\
{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking %}
    {{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
"""
)

_ALTERNATING_JINJA = (
    """\
{%- for message in messages if message.role != 'system' %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
{%- endfor %}
"""
    + _CHATML_JINJA
)

_CHATML_GO = """\
{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
"""

_ROLES_GO = """\
{{- if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}
{{- range .Messages }}
{{- if or (eq .Role "user") (eq .Role "assistant") }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}
{{- end }}<|im_start|>assistant
"""

_FIM_GO = f"""\
{{{{- if .Suffix }}}}<|fim_prefix|>{{{{ .Prompt }}}}<|fim_suffix|>{{{{ .Suffix }}}}<|fim_middle|>
{{{{- else }}}}
{_CHATML_GO}{{{{ end }}}}"""

_TOOLS_GO = """\
{{- if .Tools }}<|im_start|>system
Functions you may call, one a line:
{{ range .Tools }}{{ json . }}
{{ end }}<|im_end|>
{{ end }}
{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}
{{- range .ToolCalls }}
<tool_call>{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}</tool_call>
{{- end }}<|im_end|>
{{ end }}<|im_start|>assistant
"""

_THINKING_GO = """\
{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}<|im_end|>
{{ end }}<|im_start|>assistant
{{ if and .IsThinkSet (not .Think) }}<think>

</think>

{{ end }}"""


def _chatml(talk: Conversation) -> str:
    """The chatml that llama-server falls back to, and what the plain Go template writes."""
    said = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in talk.messages)
    return said + "<|im_start|>assistant\n"


def _go_chatml(talk: Conversation) -> str:
    return _chatml(Conversation(collate(talk.messages)))


def _go_roles(talk: Conversation) -> str:
    """As most templates of Ollama's library: who is neither user, assistant nor system is left out."""
    rules = "\n\n".join(m["content"] for m in talk.messages if m["role"] == "system")
    shown = [m for m in collate(talk.messages) if m["role"] in ("user", "assistant")]
    return _chatml(Conversation([{"role": "system", "content": rules}, *shown] if rules else shown))


def _go_thinking(talk: Conversation) -> str:
    return _go_chatml(talk) + ("<think>\n\n</think>\n\n" if talk.think is False else "")


def _go_tools(talk: Conversation) -> str:
    out = ""
    if talk.tools:
        lines = "".join(f"{gojson.marshal(_sorted_properties(tool))}\n" for tool in talk.tools)
        out = f"<|im_start|>system\nFunctions you may call, one a line:\n{lines}<|im_end|>\n"
    for message in collate(talk.messages):
        out += f"<|im_start|>{message['role']}\n{message['content']}"
        for call in message.get("tool_calls") or ():
            arguments = gojson.marshal(gojson.in_key_order(call["function"].get("arguments") or {}))
            out += (
                f'\n<tool_call>{{"name": "{call["function"].get("name", "")}", "arguments": {arguments}}}</tool_call>'
            )
        out += "<|im_end|>\n"
    return out + "<|im_start|>assistant\n"


def _sorted_properties(tool: Any) -> Any:
    """A tool as Ollama's Go templates get it: properties of the first level in a Go map, so sorted."""
    parameters = tool["function"]["parameters"]
    properties = parameters["properties"]
    if properties is None:
        return tool
    ordered = {key: properties[key] for key in sorted(properties)}
    return tool | {"function": tool["function"] | {"parameters": parameters | {"properties": ordered}}}


def _renderer(talk: Conversation) -> str:
    """A built-in renderer: nothing outside can know that it numbers its turns."""
    turns = [
        f"<|im_start|>{m['role']} {at}\n{m['content'].strip()}<|im_end|>\n" for at, m in enumerate(talk.messages, 1)
    ]
    return "".join(turns) + "<|im_start|>assistant\n"


def _bare(talk: Conversation) -> str:
    return talk.messages[-1]["content"] if talk.messages else ""


def collate(messages: Sequence[Message]) -> list[Message]:
    """Neighbours of one role, except tool, become one message (`template/template.go:collate`, v0.33)."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and message["role"] == out[-1]["role"] != "tool":
            out[-1]["content"] += "\n\n" + message["content"]
        else:
            out.append(dict(message))
    return list(out)


def _raise(message: str) -> str:
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    """llama.cpp's filter; numbers went through Go's JSON before, and reals get six digits."""
    if indent is not None:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_tojson(key)}: {_tojson(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_tojson, value)) + "]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _read_number(gojson.marshal(value))
    return json.dumps(value, ensure_ascii=False)


def _read_number(text: str) -> str:
    """A number of a JSON text as it is printed again: an int64, what was a uint64 as one, else a double."""
    if text.lstrip("-").isdecimal() and -(2**63) <= int(text) < 2**64:
        return str(int(text) - 2**64 if int(text) >= 2**63 else int(text))
    return f"{float(text):g}"


_JINJA = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
_JINJA.filters["tojson"] = _tojson
_JINJA.globals["raise_exception"] = _raise
_compiled = lru_cache(maxsize=64)(_JINJA.from_string)


def run_jinja(text: str, talk: Conversation) -> str:
    """A chat template as llama-server runs it (`/apply-template`, llama.cpp b10488).

    Raises:
        StatusError: 400 with llama-server's JSON for what the template itself refuses.
    """
    messages, begun = list(talk.messages), ""
    switches: dict[str, Any] = {} if talk.think is None else {"enable_thinking": bool(talk.think)}
    if isinstance(talk.think, str):
        switches["reasoning_effort"] = talk.think
    prompts = True
    if messages and messages[-1]["role"] == "assistant":
        # An answer already begun is written after the prompt for one. What it calls is dropped, and where it has
        # nothing at all there is no prompt for it either.
        if len(messages) > 1 and messages[-2]["role"] == "assistant":
            refused = "Cannot have 2 or more assistant messages at the end of the list."
            raise llama_server(400, refused, "invalid_request_error")
        last = messages.pop()
        begun = last["content"]
        if "reasoning_content" in text:  # what can show thoughts shows that this answer has none
            switches = {"enable_thinking": False}
        prompts = any(last.get(key) for key in ("content", "tool_calls", "tool_name", "tool_call_id", "images"))
    try:
        out = _compiled(text).render(
            messages=[_for_jinja(message, text) for message in messages],
            tools=[{"type": tool["type"], "function": tool["function"]} for tool in talk.tools] or None,
            add_generation_prompt=prompts,
            bos_token=talk.bos,
            eos_token=talk.eos,
            **switches,
        )
    except TemplateError as refused:
        message = (
            "Unable to generate parser for this template. Automatic parser generation failed: \n------------\n"
            f"Error: Jinja Exception: {refused}"
        )
        raise llama_server(400, message, "invalid_request_error") from None
    return out + begun


def _for_jinja(message: Message, text: str) -> dict[str, Any]:
    """A message as Ollama sends it to llama-server: past thinking is left out (`llamaServerChatMessage`).

    There a developer is the system, but for templates that speak harmony.
    """
    role = "system" if message["role"] == "developer" and "<|channel|>" not in text else message["role"]
    out = {"role": role, "content": message["content"]}
    if message.get("tool_calls"):
        out["tool_calls"] = [
            {
                "id": call.get("id", ""),
                "type": "function",
                "function": {
                    "name": call["function"].get("name", ""),
                    "arguments": _arguments(call["function"].get("arguments", {})),
                },
            }
            for call in message["tool_calls"]
        ]
    if message.get("tool_call_id"):
        out["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_name"):
        out["name"] = message["tool_name"]
    return out


def _arguments(given: Any) -> Any:
    """A call's arguments: the keys in the client's order, those further down sorted; null stays null."""
    return {key: gojson.in_key_order(item) for key, item in given.items()} if given is not None else None


def _jinja(text: str) -> Style:
    return Style(text, lambda talk: run_jinja(text, talk))


PROMPT_ONLY = "{{ .Prompt }}"
FALLBACK = Style(PROMPT_ONLY, _chatml)
"""What llama-server writes when it was started without jinja."""
STYLES: Mapping[str, Style] = {
    "chatml": _jinja(_CHATML_JINJA),
    "chatml-thinking": _jinja(_THINKING_JINJA),
    "alternating": _jinja(_ALTERNATING_JINJA),
    "go-chatml": Style(_CHATML_GO, _go_chatml),
    "go-roles": Style(_ROLES_GO, _go_roles),
    "go-fim": Style(_FIM_GO, _go_chatml),
    "go-tools": Style(_TOOLS_GO, _go_tools),
    "go-thinking": Style(_THINKING_GO, _go_thinking),
    "renderer": Style(PROMPT_ONLY, _renderer),
    "none": Style(PROMPT_ONLY, _bare),
}


def style_of(text: str) -> Style:
    """The style of that name; anything else is a jinja template of its own."""
    return STYLES.get(text) or _jinja(text)


def override(template: str, prompt: str, system: str) -> str:
    """`template` of a generate request: the rehearsal knows `{{ .Prompt }}` and `{{ .System }}` and nothing else."""
    out = template.replace(PROMPT_ONLY, prompt).replace("{{ .System }}", system)
    if "{{" in out.replace(prompt, "").replace(system, ""):
        raise StatusError(400, "template: the rehearsal only knows {{ .Prompt }} and {{ .System }} here")
    return out


def fill_in_the_middle(prompt: str, suffix: str) -> str:
    """A generate request with `suffix`, as `go-fim` writes it."""
    return f"<|fim_prefix|>{prompt}<|fim_suffix|>{suffix}<|fim_middle|>"
