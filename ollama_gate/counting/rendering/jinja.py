"""Prompts of native models: the GGUF's own chat template, applied as llama.cpp applies it for Ollama.

Ollama hands the messages of such a model to llama-server, which renders the jinja template in the model's metadata
(`llm/llama_server.go:llamaServerChatRequest`, Ollama v0.33; `common/chat.cpp`, llama.cpp b10488). Byte for byte the
same text is made here, or `RenderError` says that it cannot be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jinja2 import Template, TemplateError

from ollama_gate.counting.normalise import Conversation, native_tools
from ollama_gate.counting.rendering.jinja_engine import Engine
from ollama_gate.counting.rendering.jinja_families import Family, close_turn, continuation, family_of, thinks_by_default
from ollama_gate.counting.rendering.jinja_filters import BUDGET
from ollama_gate.counting.rendering.jinja_messages import Capabilities, messages_for
from ollama_gate.counting.rendering.jinja_thinking import Thinking
from ollama_gate.counting.rendering.jinja_values import Budget
from ollama_gate.counting.structs import Message
from ollama_gate.errors import RenderError, TemplateRefused

CHATML: Final = """{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""
"""What llama.cpp takes for a model without a template."""

MOST_SOURCE: Final = 512 * 1024
"""Characters of a template. The longest known one has some ten thousand."""

_ENGINE: Final = Engine()
_ANY_DAY: Final = datetime(2026, 1, 1)  # noqa: DTZ001 (local time of wherever the server runs)
_TEMPLATE_FAILURES: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template's own mistakes raise. Code of strangers runs here, so the list is long."""
_COMPILE_FAILURES: Final = (*_TEMPLATE_FAILURES, SyntaxError, MemoryError)
"""What jinja2 and Python's compiler raise on source that is too deep for them."""


@dataclass(frozen=True, slots=True)
class JinjaTemplate:
    """A model's chat template, ready to render. Several threads may use one."""

    source: str
    """With llama.cpp's corrections."""
    template: Template
    takes: Capabilities
    thinking: Thinking
    family: Family | None
    bos_token: str
    eos_token: str
    adds_bos: bool
    adds_eos: bool

    @classmethod
    def compile(
        cls, source: str, bos_token: str, eos_token: str, *, adds_bos: bool = False, adds_eos: bool = False
    ) -> "JinjaTemplate":
        """Compile a template and try it out. Takes some milliseconds; belongs in a thread.

        Args:
            source: the template, `template` in `/api/show`.
            bos_token: the text of the vocabulary's BOS token, empty when it has none.
            eos_token: the text of its EOS token.
            adds_bos: whether the tokenizer puts BOS first; then llama.cpp takes one off the text.
            adds_eos: whether it puts EOS last; then llama.cpp takes one off the end.

        Raises:
            RenderError: the template is not one that can be rendered here.
        """
        source = _corrected(source)
        if len(source) > MOST_SOURCE:
            raise RenderError(f"the template has more than {MOST_SOURCE} characters")
        try:
            template = _ENGINE.from_string(source)
        except _COMPILE_FAILURES as error:
            raise RenderError(f"the template does not compile: {error}") from error
        family = family_of(source)
        special = {"bos_token": bos_token, "eos_token": eos_token}
        takes = Capabilities.of(lambda variables: _run(template, variables, Budget(_ANY_DAY)))
        if family is None:
            thinking = Thinking.of(
                lambda variables: _run(template, {**special, **variables}, Budget(_ANY_DAY)), source, takes
            )
        else:
            thinking = Thinking(thinks_by_default(family, source))
        return cls(source, template, takes, thinking, family, bos_token, eos_token, adds_bos, adds_eos)

    @classmethod
    def chatml(
        cls, bos_token: str = "", eos_token: str = "", *, adds_bos: bool = False, adds_eos: bool = False
    ) -> "JinjaTemplate":
        """The template of a model that has none."""
        return cls.compile(CHATML, bos_token, eos_token, adds_bos=adds_bos, adds_eos=adds_eos)

    @property
    def dated(self) -> bool:
        """Whether the text may depend on the day."""
        return any(word in self.source for word in ("strftime_now", "date_string", "datetime"))

    def render(self, conversation: Conversation, *, now: datetime) -> str:
        """The text of a conversation, as `/apply-template` of llama-server gives it.

        Args:
            conversation: the request as Ollama's server has prepared it.
            now: local time where Ollama runs.

        Raises:
            TemplateRefused: llama-server would refuse it, mostly because the template calls `raise_exception`.
            RenderError: the text cannot be made here.
        """
        messages = conversation.messages
        tools = [_tool(tool) for tool in native_tools(conversation.tools or ())]
        if not messages:
            raise RenderError("there is nothing to render")
        if messages[-1].role != "assistant":
            text = self._apply(messages, tools, conversation, now)
            return close_turn(self.family, text)
        if len(messages) > 1 and messages[-2].role == "assistant":
            raise TemplateRefused("Cannot have 2 or more assistant messages at the end of the list.")
        return self._continued(conversation, tools, now)

    def _continued(self, conversation: Conversation, tools: list[dict[str, Any]], now: datetime) -> str:
        """A conversation whose last message is an answer that the model is to go on with."""
        *earlier, last = conversation.messages
        text = self._apply(earlier, tools, conversation, now, generation_prompt=False)
        if not (last.content or last.tool_calls or last.tool_name or last.tool_call_id or last.images):
            return text
        whole = self._apply(earlier, tools, conversation, now)
        begun = _after_common_prefix(text, whole)
        if self.family is not None:
            return text + continuation(self.family, self.source, text, begun) + last.content
        if self.thinking.opening:
            begun = begun.partition(self.thinking.opening)[0] + self.thinking.opening + self.thinking.closing
        return text + begun + last.content

    def _apply(
        self,
        messages: tuple[Message, ...] | list[Message],
        tools: list[dict[str, Any]],
        conversation: Conversation,
        now: datetime,
        *,
        generation_prompt: bool = True,
    ) -> str:
        made = messages_for(messages, self.source, self.takes)
        if self.family is not None and self.family.reshape is not None:
            made = self.family.reshape(made)
        variables: dict[str, Any] = {
            "messages": made,
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "enable_thinking": self.thinking.known if conversation.think is None else bool(conversation.think),
            "datetime": now.strftime("%b %d %Y"),
            "date_string": now.strftime("%d %b %Y"),
        }
        if tools:
            variables["tools"] = tools
        if isinstance(conversation.think, str) and conversation.think:
            variables["reasoning_effort"] = variables["reasoning_strength"] = conversation.think
        if generation_prompt:
            variables["add_generation_prompt"] = True
        written = sum(len(message.content) for message in messages)
        budget = Budget(now, items=len(messages) + len(tools), characters=written)
        text = _run(self.template, variables, budget)
        if self.adds_bos and self.bos_token:
            text = text.removeprefix(self.bos_token)
        if self.adds_eos and self.eos_token:
            text = text.removesuffix(self.eos_token)
        return text


def _corrected(source: str) -> str:
    """Take out of two families' templates what llama.cpp takes out (`common_chat_templates_init`): their refusals."""
    if "<|channel|>" in source and "in message.content or" in source:
        source = source.replace(
            '{%- if "<|channel|>analysis<|message|>" in message.content or '
            '"<|channel|>final<|message|>" in message.content %}',
            "{%- if false %}",
        )
    if "[TOOL_CALLS]" in source and "if (message['content'] is none or" in source:
        source = source.replace(
            "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and "
            "(message['tool_calls'] is not defined or message['tool_calls'] is none or "
            "message['tool_calls']|length == 0) %}",
            "{%- if false %}",
        )
    return source


def _run(template: Template, variables: Mapping[str, Any], budget: Budget) -> str:
    context = template.new_context({**variables, BUDGET: budget})
    pieces = []
    try:
        for piece in template.root_render_func(context):
            budget.write(len(piece))
            pieces.append(piece)
    except _TEMPLATE_FAILURES as error:
        raise RenderError(f"the template fails here: {type(error).__name__}: {error}") from error
    return "".join(pieces)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as llama.cpp rebuilds it: of the tool itself only type and function are left."""
    if tool["type"] != "function":
        raise TemplateRefused(f"Unsupported tool type: {tool['type']}")
    return {"type": tool["type"], "function": tool["function"]}


def _after_common_prefix(shorter: str, longer: str) -> str:
    """The end of `longer` that `shorter` does not begin with."""
    if longer.startswith(shorter):
        return longer[len(shorter) :]
    length = 0
    for ours, theirs in zip(shorter, longer, strict=False):
        if ours != theirs:
            break
        length += 1
    return longer[length:]
