"""Which result belongs to which call: by id, by name, or by position.

Results may come in another order than their calls, far from them, twice, or not at all; a result without a call stays
what it is. Native messages carry `tool_calls[].id` and `tool_call_id` or only `tool_name`, and old clients neither
(`api/types.go:Message`, Ollama v0.33).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages that stay or go together: one message with calls and all its results, or a result without a call."""

    first: int
    """The message with the calls, or the orphan."""
    members: tuple[int, ...]
    """All of them in order, `first` included."""
    answers: tuple[tuple[int, ...], ...] = ()
    """For each call of the message its results; empty for an orphan."""

    @property
    def orphan(self) -> bool:
        """Whether it is a result without a call."""
        return not self.answers

    def at(self, places: Sequence[int]) -> "Unit":
        """The same unit where message i is found at places[i]."""
        members, answers = tuple(places[at] for at in self.members), self.answers
        return Unit(places[self.first], members, tuple(tuple(places[at] for at in each) for each in answers))


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    results: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """Calls so far, found by what a result may name."""

    ids: dict[str, _Call] = field(default_factory=dict)
    latest: list[_Call] = field(default_factory=list)
    """The calls of the last message that made any, while nobody but tools spoke since."""


def units(messages: Sequence[Message]) -> list[Unit]:
    """The tool units of a conversation, in the order of their first messages."""
    found: dict[int, list[_Call]] = {}
    calls = _Open()
    for at, message in enumerate(messages):
        role = role_of(message)
        if role == "tool":
            answered = _answered(message, calls)
            if answered is None:
                found[at] = []
            else:
                answered.results.append(at)
        elif message.get("tool_calls"):
            found[at] = calls.latest = [_Call(_id(call), name_of(call)) for call in message["tool_calls"]]
            calls.ids.update((call.id, call) for call in calls.latest if call.id)
        elif role == "user":
            calls.latest = []
    return [
        Unit(
            first, (first, *sorted(at for one in made for at in one.results)), tuple(tuple(one.results) for one in made)
        )
        for first, made in found.items()
    ]


def _answered(message: Message, calls: _Open) -> _Call | None:
    """The call that a result answers."""
    wanted, name = message.get("tool_call_id") or "", message.get("tool_name") or ""
    found = calls.ids.get(wanted) if wanted else None
    if found is None:
        # An id that no call has says nothing where the calls have none; else the result is somebody else's.
        nameless = [call for call in calls.latest if not call.results and not (wanted and call.id)]
        same = [call for call in nameless if call.name == name] if name else nameless
        found = same[0] if same else None
    return found


def role_of(message: Message) -> str:
    """The role as templates see it: in lower case (`api/types.go:Message.UnmarshalJSON`), a developer as the system.

    What OpenAI's clients have the developer say are the system's instructions, and have to stay as those have.
    """
    role = str(message.get("role") or "").lower()
    return "system" if role == "developer" else role


def name_of(call: Any) -> str:
    """The name of the function that a call names."""
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def arguments_of(call: Any) -> Mapping[str, Any]:
    """The arguments of a call."""
    function = call.get("function") if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    return arguments if isinstance(arguments, Mapping) else {}


def _id(call: Any) -> str:
    found = call.get("id") if isinstance(call, Mapping) else None
    return found if isinstance(found, str) else ""
