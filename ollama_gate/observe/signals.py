"""Signals: symptoms of a full or broken context, seen in the messages of a conversation and its counts over time.

A conversation is found again by its session (where the client names one), its model and its first question, or by the
next ones where a client has dropped the first. What is kept of it are hashes and numbers, in bounds. Time is passed in
as seconds of any steady clock.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ollama_gate.config.signals import SignalKind, Signals
from ollama_gate.observe.transcript import Message, Reading, Tools, names_of, written
from ollama_gate.requests import InferenceRequest, Kind

QUIET: Final = 6 * 3600.0
"""Seconds after which a conversation is taken for a new one."""
BYTES: Final = 16 * 1024**2
"""Most memory of all conversations together, about."""
_LINES: Final = 3
"""Conversations of one beginning that are told apart: an agent's turns, and what it asks beside them."""
_LATER: Final = 3
"""Questions after the first that a conversation is found by when the first is gone."""
_EARLY: Final = 64
"""Messages in which they are looked for."""
_READ_ON_MEETING: Final = 64
"""Messages of a conversation that is met in its middle; older ones are not read."""
_MOST_MESSAGES: Final = 4096
"""Messages of a request above which it is not looked at: no conversation is that long."""
_HASHED_WHOLE: Final = 2_000_000
"""Characters of one request that are hashed whole; of long contents behind them only head and tail are."""
_SAMPLED: Final = 512
"""Characters of such a head and tail."""
_PROMPT_READ: Final = 200_000
"""Characters of a system prompt in which the place of a change is looked for."""
_PROMPT_LINES: Final = 255
"""Lines and sentences of it that are hashed by themselves; what follows is hashed as one."""
_CHARS_PER_TOKEN: Final = 4.0
"""For tokens of a conversation that Ollama has not counted yet."""
_LATER_BYTES: Final = 150
_STILL: Final = 1.01
"""A prompt count that has grown by less stands still."""
_GROWN: Final = 1.05
"""A conversation has grown when it has so many times the characters, and `_GROWN_LEAST` more."""
_GROWN_LEAST: Final = 400


@dataclass(frozen=True, slots=True)
class Signal:
    """One symptom."""

    kind: SignalKind
    amount: int
    """How much of it: calls, times, turns or tokens, as its threshold."""
    where: str = ""
    """A tool's name, or the message that changed; for the client only."""

    def __str__(self) -> str:
        """As the header `x-ollama-gate-signals` shows it: `kind=amount (where)`."""
        return f"{self.kind}={self.amount}" + (f" ({self.where})" if self.where else "")


@dataclass(slots=True, eq=False)
class _Line:
    """One conversation as its last turn left it."""

    marks: "array[int]"
    """A hash of the tools, then one of each message."""
    sizes: "array[int]"
    """Characters of each of them."""
    chars: int
    reading: Reading
    prompt: "array[int]"
    """A hash of each line of its system prompt."""
    prompt_sizes: "array[int]"
    """Characters of each of them."""
    tools: "array[int]"
    """A hash of each tool that it offers."""
    tool_sizes: "array[int]"
    """Characters of each of them."""
    tokens: int = 0
    """Ollama's count of its last prompt; 0 until there is one."""
    still_tokens: int = 0
    """The count above which Ollama's has not risen since the turn with `still_chars`."""
    still_chars: int = 0
    stills: int = 0
    """Turns since then in which the conversation grew and the count did not."""

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, roughly."""
        return 400 + 12 * (len(self.marks) + len(self.prompt) + len(self.tools)) + self.reading.size


@dataclass(slots=True)
class _Held:
    lines: list[_Line] = field(default_factory=list)
    seen: float = 0.0
    size: int = 0
    later: list[int] = field(default_factory=list)
    """Keys that it would have without its first questions."""


class Look:
    """What one request showed; tell it Ollama's count when there is one."""

    __slots__ = ("_chars", "_limits", "_line", "signals")

    def __init__(self, line: _Line, limits: Signals, signals: tuple[Signal, ...]) -> None:
        """Remember which turn of the conversation this was."""
        self._line = line
        self._limits = limits
        self._chars = line.chars
        self.signals = signals

    def answered(self, prompt_eval_count: int) -> None:
        """Compare Ollama's count of this prompt with those of the turns before."""
        line = self._line
        line.tokens = prompt_eval_count
        if prompt_eval_count > line.still_tokens * _STILL or self._chars < line.still_chars:
            line.still_tokens, line.still_chars, line.stills = prompt_eval_count, self._chars, 0
        elif self._chars > max(line.still_chars * _GROWN, line.still_chars + _GROWN_LEAST):
            line.stills += 1
        known = any(signal.kind is SignalKind.PROMPT_STANDSTILL for signal in self.signals)
        if not known and (still := _standstill(line, self._limits)) is not None:
            self.signals = (*self.signals, still)

    def not_counted(self) -> None:
        """Forget the counts: Ollama gets a compacted prompt this time, whose count says nothing of these messages."""
        line = self._line
        line.tokens = line.still_tokens = line.still_chars = line.stills = 0


class SignalBook:
    """The conversations that are watched, least recently seen first to go."""

    def __init__(self, limits: Signals, most_bytes: int = BYTES) -> None:
        """Watch with these thresholds, in about so many bytes."""
        self._limits = limits
        self._tools = Tools(limits.exempt_tools)
        self._most_bytes = most_bytes
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._later: dict[int, int] = {}
        """The key that a conversation is held under, by each of its `later` ones."""
        self.size = 0
        """Bytes in use, about."""

    def __len__(self) -> int:
        """How many conversations are held, quiet ones included."""
        return len(self._held)

    def look(self, request: InferenceRequest, now: float) -> Look | None:
        """What a request that is about to be sent shows; None for one without a past (fewer than three messages)."""
        messages = request.body.get("messages")
        if not isinstance(messages, list) or not 3 <= len(messages) <= _MOST_MESSAGES or request.kind is not Kind.CHAT:
            return None
        offered = request.body.get("tools")
        marks, sizes = _marked(messages, offered)
        # Other tools are another conversation.
        tools = frozenset(names_of(offered)) if offered else None
        first, later = _questions(messages)
        who = (request.session, request.model.lower(), tools)
        key = hash((who, first))
        held = self._find(key, now)
        before = None if held.lines else self._later.get(key)
        longer = None if before is None else self._held.get(before)
        line, signals = self._continue(held, longer, marks, sizes, messages, offered)
        self._symptoms(line, offered, signals)
        for question in later[len(held.later) :]:
            held.later.append(hash((who, question)))
            self._later[held.later[-1]] = key
        if longer is not None:
            self._weigh(longer)
        self._weigh(held)
        return Look(line, self._limits, tuple(signals))

    def _continue(
        self,
        held: _Held,
        longer: _Held | None,
        marks: "array[int]",
        sizes: "array[int]",
        messages: Sequence[Message],
        offered: Any,
    ) -> tuple[_Line, list[Signal]]:
        """The line that these messages continue, read up to the last of them, or a new one.

        `longer` is what may be the same conversation, before its first question was dropped.
        """
        signals: list[Signal] = []
        line = None
        for known in held.lines:
            length = len(known.marks)
            if (line is None or length > len(line.marks)) and marks[:length] == known.marks:
                line = known
        if line is not None:
            if len(marks) > len(line.marks):
                line.reading.read(messages[len(line.marks) - 1 :], self._tools)
        else:
            line = _Line(marks, sizes, 0, Reading(), *_by_line(messages[0]), *_by_tool(offered))
            line.reading.read(messages[-_READ_ON_MEETING:], self._tools)
            past = held if longer is None else longer
            old, at = _nearest(past.lines, marks)
            broken = _broken(old, line, at, self._limits.prefix_break) if old is not None else None
            if old is not None and broken is not None:
                signals.append(broken)
                line.still_tokens, line.still_chars, line.stills = old.still_tokens, old.still_chars, old.stills
                line.tokens = old.tokens
                past.lines.remove(old)
        if not held.lines or held.lines[-1] is not line:
            if line in held.lines:
                held.lines.remove(line)
            held.lines.append(line)
            del held.lines[:-_LINES]
        line.marks, line.sizes, line.chars = marks, sizes, sum(sizes)
        return line, signals

    def _symptoms(self, line: _Line, offered: Any, signals: list[Signal]) -> None:
        """Add the signals that the line shows now."""
        limits, reading = self._limits, line.reading
        if 0 < limits.repeated_calls <= reading.run:
            signals.append(Signal(SignalKind.REPEATED_CALL, reading.run, reading.run_tool))
        if reading.reread_bits and 0 < limits.rereads <= reading.rereads:
            signals.append(Signal(SignalKind.REREAD, reading.rereads))
        if 0 < limits.goal_restated <= reading.restated:
            signals.append(Signal(SignalKind.GOAL_RESTATED, reading.restated))
        written = reading.calls_as_text if reading.text_bits and offered and reading.clean >= limits.clean_calls else 0
        if 0 < limits.calls_as_text <= written:
            signals.append(Signal(SignalKind.CALL_AS_TEXT, written))
        if 0 < limits.turns_per_change <= reading.turns:
            per_change = reading.turns // max(len(reading.changed), 1)
            if per_change >= limits.turns_per_change and self._tools.can_change(offered):
                signals.append(Signal(SignalKind.FEW_CHANGES, per_change))
        if line.stills and (still := _standstill(line, limits)) is not None:
            signals.append(still)

    def _find(self, key: int, now: float) -> _Held:
        held = self._held.get(key)
        if held is None or now - held.seen > QUIET:
            if held is not None:
                self._forget(key, held)
            held = self._held[key] = _Held()
        held.seen = now
        self._held.move_to_end(key)
        return held

    def _weigh(self, held: _Held) -> None:
        """Bring the book back within its bounds; the conversation that was just seen stays."""
        size = held.lines[0].size if len(held.lines) == 1 else sum(line.size for line in held.lines)
        size += _LATER_BYTES * len(held.later)
        self.size += size - held.size
        held.size = size
        while len(self._held) > 1 and (len(self._held) > self._limits.conversations or self.size > self._most_bytes):
            self._forget(*self._held.popitem(last=False))

    def _forget(self, key: int, gone: _Held) -> None:
        self.size -= gone.size
        for later in gone.later:
            if self._later.get(later) == key:
                del self._later[later]


def _standstill(line: _Line, limits: Signals) -> Signal | None:
    if 0 < limits.standstill <= line.stills:
        return Signal(SignalKind.PROMPT_STANDSTILL, line.stills)
    return None


def _nearest(lines: Sequence[_Line], marks: "array[int]") -> tuple[_Line | None, int]:
    """The line that shares most of its beginning with these messages, and where they part."""
    best, parts = None, -1
    for line in lines:
        at = _parting(line.marks, marks)
        if at >= parts:
            best, parts = line, at
    return best, parts


def _parting(was: "array[int]", now: "array[int]") -> int:
    """Where two sequences differ first."""
    pairs = enumerate(zip(was, now, strict=False))
    return next((at for at, (before, after) in pairs if before != after), min(len(was), len(now)))


def _sent_again(was: "array[int]", sizes: "array[int]", now: "array[int]", at: int) -> int:
    """Characters of what stood behind a difference and stands behind it again."""
    again = set(now[at:])
    return sum(size for mark, size in zip(was[at:], sizes[at:], strict=True) if mark in again)


def _broken(old: _Line, new: _Line, at: int, least: int) -> Signal | None:
    """Whether what was evaluated for `old` has to be evaluated again, because something before it changed.

    Lost is what stood behind the first difference and is sent again. A summary in the place of old messages, or an
    edited question, loses little of that; a clock in the system prompt, or a window that slides, loses nearly all.
    Of a system prompt that has changed, the lines behind the first one that differs are lost too; of tools likewise.
    """
    if not least or at >= len(new.marks) or at >= len(old.marks):
        return None
    lost = _sent_again(old.marks, old.sizes, new.marks, at)
    if at == 0:
        lost += _sent_again(old.tools, old.tool_sizes, new.tools, _parting(old.tools, new.tools))
    if at == 1:
        lost += _sent_again(old.prompt, old.prompt_sizes, new.prompt, _parting(old.prompt, new.prompt))
    tokens = int(lost * (old.tokens / old.chars if old.tokens and old.chars else 1 / _CHARS_PER_TOKEN))
    if tokens < least or lost * 2 < old.chars:
        return None
    return Signal(SignalKind.PREFIX_BREAK, tokens, f"messages[{at - 1}]" if at else "tools")


def _by_line(message: Message) -> tuple["array[int]", "array[int]"]:
    """A hash and the length of each line and sentence of a system prompt; nothing of another message."""
    if message.get("role") != "system":
        return array("q"), array("I")
    lines = (message.get("content") or "")[:_PROMPT_READ].replace(". ", ".\n").split("\n", _PROMPT_LINES)
    return array("q", map(hash, lines)), array("I", map(len, lines))


def _by_tool(offered: Any) -> tuple["array[int]", "array[int]"]:
    """A hash and the length of each tool that a request offers."""
    tools = [written(tool) for tool in offered] if isinstance(offered, list) else []
    return array("q", map(hash, tools)), array("I", map(len, tools))


def _questions(messages: Sequence[Any]) -> tuple[str | None, list[str | None]]:
    """The first question, which stays the same when a system prompt or what follows changes, and those after it."""
    questions: list[str | None] = []
    for at, message in enumerate(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            questions.append(content if isinstance(content, str) else None)
        if len(questions) > _LATER or (questions and at >= _EARLY):
            break
    return (questions[0], questions[1:]) if questions else (None, [])


def _marked(messages: Sequence[Any], offered: Any) -> tuple["array[int]", "array[int]"]:
    """A hash and the length of the tools and of each message, without what is not part of the prompt (ids)."""
    tools = written(offered) if offered else b""
    marks, sizes = [hash(tools)], [len(tools)]
    left = _HASHED_WHOLE
    for message in messages:
        content = message.get("content") or ""
        size = len(content)
        left -= size
        if left < 0 and size > 2 * _SAMPLED:
            content = f"{size} {content[:_SAMPLED]} {content[-_SAMPLED:]}"
        calls = message.get("tool_calls")
        if calls:
            said = written([call.get("function") for call in calls if isinstance(call, dict)])
            size += len(said)
            marks.append(hash((message.get("role"), content, said)))
        else:
            marks.append(hash((message.get("role"), content)))
        sizes.append(size)
    return array("q", marks), array("I", sizes)
