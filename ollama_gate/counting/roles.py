"""Messages of roles that a model's prompt has no place for, and that Ollama drops without a word.

A Go template sees in `.System` what the role `system` says, and of other messages what its own conditions ask for; most
of them know no developer, whom OpenAI's clients have in place of the system (`template/template.go:collate`, `Execute`,
Ollama v0.33). Some built-in renderers know one (`model/renderers/qwen35.go`, `gemma4.go`); llama-server takes a
developer for the system by itself, but for templates that speak harmony (`common/chat.cpp`, llama.cpp b10488).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting.normalise import ModelTraits, chat_conversation
from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest, Json, Kind

if TYPE_CHECKING:
    from ollama_gate.counting.rendering.gotemplate import GoTemplate

Place = tuple[str, str]
"""A template, and a role that it names or `_ANYBODY`."""
Shown = Mapping[Place, bool]

NOTE_DEVELOPER: Final = "developer messages are sent as system messages: the model's prompt knows no developer"

_CHAT, _GO, _RENDERER = Kind.CHAT, Mode.GO_TEMPLATE, Mode.RENDERER  # an enum's members are slow to get (Python 3.11)
_SPOKEN: Final = frozenset({"user", "assistant"})
"""Roles that every template shows."""
_COMMON: Final = frozenset({"system", "developer", "tool"})
_ANYBODY: Final = "anybody"
"""Stands for every role that a template does not name."""
_MOST: Final = 512
"""Templates and roles that are remembered."""
_NAMED: Final = 32
"""Texts in quotes, from a template's begin on, that may be roles; it names a handful. A role behind them is taken for
one that it shows: nothing is changed for it and nothing said, and the count stays that of what is sent."""
_SAID: Final = "kXqVzJw"
"""What a message of the role in question says; found again where it is shown."""
_USER: Final[Json] = {"role": "user", "content": "x"}
_CALL: Final[Json] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": "b"}}}],
}
_DAY: Final = date(2026, 1, 1)


def strange(request: InferenceRequest, card: ModelCard) -> frozenset[str]:
    """The roles in a chat, beside user and assistant, that the model's prompt may have no place for; in lower case."""
    if request.kind is not _CHAT or (card.mode is not _GO and card.mode is not _RENDERER):
        return frozenset()
    weight = request.weighed
    said = weight.roles if weight else {message.get("role") for message in request.body.get("messages") or ()}
    roles = said - _SPOKEN
    return frozenset([(role or "").lower() for role in roles]) - _SPOKEN if roles else frozenset()


class Roles:
    """Which roles each template shows, learnt once by rendering."""

    def __init__(self) -> None:
        """Begin without knowing any template."""
        self._shown: dict[Place, bool] = {}

    def to_learn(self, card: ModelCard, roles: frozenset[str]) -> Callable[[], Shown] | None:
        """What has to be found out, for some milliseconds and in a thread, before `heard` knows; None where it does."""
        if card.mode is not _GO:
            return None
        places = {place for role in roles if (place := _place(role, card.template)) is not None}
        # All of them where one is new: the others may be forgotten meanwhile.
        return partial(_found, card.template, [role for _, role in places]) if places - self._shown.keys() else None

    def learn(self, found: Shown) -> None:
        """Remember what `to_learn` has found out; to be called where `heard` is, with nothing else between them."""
        if len(self._shown) + len(found) > _MOST:
            self._shown.clear()
        self._shown.update(found)

    def heard(self, request: InferenceRequest, card: ModelCard, roles: frozenset[str]) -> InferenceRequest:
        """The request with a system for each developer that would not be heard, and a note of who else is not.

        Args:
            request: a chat.
            card: its model.
            roles: those that are `strange`.
        """
        template, shown = card.template, self._shown
        if card.mode is _RENDERER:  # what else a renderer knows is not to be seen from here
            lost = roles & {"developer"}
        else:
            lost = frozenset(
                [role for role in roles if (place := _place(role, template)) and not shown.get(place, True)]
            )
        notes = list(request.notes)
        if unheard := sorted(lost - {"developer"}):
            named = ", ".join(role or "(none)" for role in unheard)
            notes.append(f"not seen by the model, whose prompt has no place for their role: messages of {named}")
        if "developer" not in lost:
            return replace(request, notes=tuple(notes)) if unheard else request
        notes.append(NOTE_DEVELOPER)
        messages = [
            {**message, "role": "system"} if (message.get("role") or "").lower() == "developer" else message
            for message in request.body["messages"]
        ]
        body = {**request.body, "messages": messages}
        weight = request.weighed and replace(request.weighed, body=body)  # the role's name is shorter now
        return replace(request, body=body, notes=tuple(notes), weight=weight)


def _place(role: str, template: str) -> Place | None:
    """Under what it is remembered whether a template shows a role; None for one that is not looked into."""
    if role in _COMMON:
        return template, role
    at = _quoted(template).get(role) if role else None
    if at is None:
        return template, _ANYBODY
    return (template, role) if at < _NAMED else None


@lru_cache(maxsize=64)
def _quoted(template: str) -> Mapping[str, int]:
    """What stands between two quotes in a template, and where among the others; it may be a role's name."""
    return {text: at for at, text in enumerate(dict.fromkeys(template.split('"')[1:-1]))}


def _found(template: str, roles: Iterable[str]) -> Shown:
    """Whether each role is shown; also where that cannot be known."""
    from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate  # noqa: PLC0415 - see `local.load_engines`

    try:
        parsed = GoTemplate.parse(template, era=Era.of(""))
    except RenderError:
        return {(template, role): True for role in roles}
    return {(template, role): _shows(parsed, role) for role in roles}


def _shows(parsed: "GoTemplate", role: str) -> bool:
    """Whether what a role says can be found in what a template makes of a chat; also where that cannot be known."""
    message: Json = {"role": role, "content": _SAID, "tool_name": "f", "tool_call_id": "c"}
    rendered = False
    for talk in ([message, _USER], [_USER, message, _USER], [_USER, _CALL, message]):
        try:
            text = parsed.render(chat_conversation({"messages": talk}, ModelTraits()), today=_DAY)
        except RenderError:
            continue
        if _SAID in text:
            return True
        rendered = True
    return not rendered
