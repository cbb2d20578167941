"""A model's Go template: parsed once, rendered for any number of conversations.

Source: `template/template.go` (`Parse`, `Execute`) and `server/prompt.go:renderPrompt`, Ollama v0.33.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, TypeVar

from ollama_gate.counting.normalise import Conversation, Flow, tag_images
from ollama_gate.counting.rendering.gotemplate import nodes
from ollama_gate.counting.rendering.gotemplate.era import Era
from ollama_gate.counting.rendering.gotemplate.functions import BUILTINS, SHORT_CIRCUIT
from ollama_gate.counting.rendering.gotemplate.limits import MAX_SOURCE, Budget
from ollama_gate.counting.rendering.gotemplate.ollama import (
    FUNCTIONS,
    collate,
    messages_value,
    root_value,
    tools_value,
)
from ollama_gate.counting.rendering.gotemplate.parser import parse
from ollama_gate.counting.rendering.gotemplate.program import Program, compile_all
from ollama_gate.counting.rendering.gotemplate.shape import before_response, identifiers, mentions
from ollama_gate.counting.rendering.gotemplate.values import visible
from ollama_gate.counting.structs import Message, ToolProperty, clean_text
from ollama_gate.errors import RenderError, TemplateRefused

T = TypeVar("T")
_NAMES: Final = frozenset(FUNCTIONS) | SHORT_CIRCUIT
_APPENDED: Final = nodes.Action(nodes.Pipeline((nodes.Command((nodes.Field(("Response",)),)),)))
"""What Ollama appends to a template that mentions neither the messages nor the response."""


@dataclass(frozen=True, slots=True)
class GoTemplate:
    """A parsed template. It is immutable, and several threads may render it at once."""

    source: str
    era: Era
    mentioned: frozenset[str]
    """Every name of a field, variable or function in it, in lower case."""
    by_messages: bool
    """Whether Ollama gives it all messages at once; else it runs once a turn, the legacy way."""
    main: Program
    """The whole template."""
    opening: Program | TemplateRefused | None
    """What the last turn is rendered with the legacy way, or why Ollama fails on it."""

    @classmethod
    def parse(cls, source: str, *, era: Era) -> "GoTemplate":
        """Parse a template.

        Args:
            source: the text of TEMPLATE.
            era: which Ollama will render it.

        Raises:
            TemplateRefused: Ollama would refuse it (or the model that has it).
            RenderError: it is too big, nested too deeply, or uses what is not known here.
        """
        return _guarded(lambda: cls._parse(source, era))

    @classmethod
    def _parse(cls, source: str, era: Era) -> "GoTemplate":
        if len(source) > MAX_SOURCE:
            raise RenderError("the template is too big")
        definitions = parse(clean_text(source), _NAMES)
        names = identifiers(definitions)
        if "messages" not in names and "response" not in names:
            definitions[""] = (*definitions[""], _APPENDED)
        by_messages = "messages" in names
        main = compile_all(definitions, FUNCTIONS, missing_is_zero=True)[""]
        opening = None if by_messages else _opening(definitions[""])
        return cls(source, era, mentions(definitions), by_messages, main, opening)

    def uses(self, name: str) -> bool:
        """Whether the template mentions a field (`Tools`, `Thinking`, `Suffix` …) or a function (`currentDate`)."""
        return name.lower() in self.mentioned

    @property
    def dated(self) -> bool:
        """Whether its text may change at midnight of the server."""
        return self.uses("currentDate") or self.uses("yesterdayDate")

    def render(self, conversation: Conversation, *, today: date, context_text: str | None = None) -> str:
        """Render the prompt that Ollama would send to the model.

        Args:
            conversation: the prepared request.
            today: the date where Ollama runs.
            context_text: what the tokens of the request's `context` mean, when it has any.

        Returns:
            The text as it goes to the runner, each byte that is not UTF-8 as U+FFFD; empty for an empty conversation.

        Raises:
            TemplateRefused: the template fails on this conversation, as it would in Ollama.
            RenderError: the text cannot be known here, or it takes more work than is allowed.
        """
        if conversation.raw is not None:
            return conversation.raw
        if conversation.context and context_text is None:
            raise RenderError("the text of the request's context is not known")
        return (context_text or "") + _guarded(lambda: self._render(conversation, today))

    def _render(self, conversation: Conversation, today: date) -> str:
        budget = _budget(conversation)
        think = {
            "Think": bool(conversation.think),
            "ThinkLevel": conversation.think_level,
            "IsThinkSet": conversation.think is not None,
        }
        run = _Run(self, think, budget, today)
        if conversation.flow is Flow.SUFFIX:
            return visible(run.whole({"Prompt": conversation.prompt, "Suffix": conversation.suffix, "Response": ""}))
        if not conversation.messages:
            return ""
        if self.era is Era.API_STRUCTS and (
            conversation.tools or any(message.tool_calls for message in conversation.messages)
        ):
            raise RenderError("what tools look like to a template is not known for this version of Ollama")
        messages = conversation.messages
        if conversation.flow is Flow.CHAT and conversation.images:
            messages = tag_images(messages)
        system, messages = collate(messages)
        if not self.by_messages:
            return visible(run.turns(messages))
        data = {
            "System": system,
            "Messages": messages_value(messages),
            "Tools": tools_value(conversation.tools, self.era),
            "Response": "",
        }
        return visible(run.whole(data))


class _Run:
    """One rendering: the template over one or more sets of data, paid from one budget."""

    def __init__(self, template: GoTemplate, think: Mapping[str, Any], budget: Budget, today: date) -> None:
        self.template = template
        self.think = think
        self.budget = budget
        self.today = today

    def over(self, program: Program, data: Mapping[str, Any]) -> str:
        """A program over the data and the think values."""
        return program.run(root_value({**data, **self.think}), budget=self.budget, today=self.today)

    def whole(self, data: Mapping[str, Any]) -> str:
        """The whole template over the data."""
        return self.over(self.template.main, data)

    def turns(self, messages: tuple[Message, ...]) -> str:
        """The legacy way: the template runs once for each turn, and its opening for the last one."""
        out: list[str] = []
        turn = {"System": "", "Prompt": "", "Response": ""}
        for message in messages:
            full = turn["Response"] or (message.role == "system" and turn["Prompt"])
            if message.role in {"system", "user"} and full:
                out.append(self.whole(turn))
                turn = dict.fromkeys(turn, "")
            slot = _SLOTS.get(message.role)
            if slot is not None:
                turn[slot] = message.content
        opening = self.template.opening
        if not isinstance(opening, Program):
            raise opening or RenderError("the template has no opening")
        out.append(self.over(opening, turn))
        return "".join(out)


def _opening(body: nodes.Body) -> Program | TemplateRefused:
    """The template up to its first `.Response`, in a copy that knows Go's own functions only."""
    try:
        return compile_all({"": before_response(body)}, BUILTINS, missing_is_zero=False)[""]
    except TemplateRefused as refused:
        return refused


_SLOTS: Final = {"system": "System", "user": "Prompt", "assistant": "Response"}


def _budget(conversation: Conversation) -> Budget:
    """What a rendering may use up: it grows with the request, and only with it."""
    items, characters = 1, len(conversation.prompt) + len(conversation.suffix)
    for message in conversation.messages:
        items += 1 + len(message.tool_calls)
        characters += len(message.content) + len(message.thinking)
        for call in message.tool_calls:
            items, characters = _grown(call.arguments, items, characters)
    for tool in conversation.tools or ():
        parameters = tool.function.parameters
        items, characters = items + 8, characters + len(tool.function.description)
        items, characters = _grown([tool.items, parameters.defs, parameters.items], items, characters)
        items, characters = _grown(parameters.properties, items, characters)
    return Budget(items, characters + 16 * items)


def _grown(data: Any, items: int, characters: int) -> tuple[int, int]:
    """The two numbers with those of free-form data, or of properties, added."""
    if isinstance(data, str):
        return items, characters + len(data)
    if isinstance(data, ToolProperty):
        inside = [data.any_of, data.items, data.enum, data.properties]
        return _grown(inside, items + 1, characters + len(data.description))
    if isinstance(data, Mapping):
        items, characters = items + len(data), characters + sum(map(len, data))
        data = data.values()
    elif not isinstance(data, list | tuple):
        return items, characters
    for item in data:
        items, characters = _grown(item, items + 1, characters)
    return items, characters


def _guarded(work: Callable[[], T]) -> T:
    """Let nothing but RenderError out: whatever else a hostile template or request brings about is one, too."""
    try:
        return work()
    except RenderError:
        raise
    except RecursionError:
        raise RenderError("the template or the request is nested too deeply") from None
    except Exception as error:
        raise RenderError(f"the template could not be rendered: {type(error).__name__}") from error
