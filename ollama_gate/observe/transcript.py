"""What the messages of one conversation show, read once each: calls, results, restated goals and changed files.

A reading goes on where it stopped, so that a conversation that grows costs its new messages only. It keeps hashes and
numbers, never text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

import orjson

Message = Mapping[str, Any]
"""A native message (`api/types.go:Message`, Ollama v0.33)."""

RECENT_CALLS: Final = 20
RECENT_ANSWERS: Final = 8
_REMEMBERED_CALLS: Final = 512
_WORTH_READING: Final = 200
"""Characters of a result below which it is an acknowledgement and not something that was read."""
_HEAD: Final = 400
"""Characters of a request, and of an answer, in which a goal is told."""
_PHRASE: Final = 4
_PHRASES: Final = 8
_FEWEST: Final = 3
"""A request of fewer phrases says too little to be told from chance."""
_LONGEST_LOOK: Final = 20_000

_PATHS: Final = ("path", "file_path", "filePath", "filepath", "file", "filename", "target_file", "notebook_path")
_CHANGES: Final = re.compile(
    r"edit|write|patch|replace|create|insert|apply|append|delete|remove|rename|move|save|update", re.IGNORECASE
)
_SHELLS: Final = re.compile(r"shell|bash|terminal|command|exec", re.IGNORECASE)
_SHELL_CHANGES: Final = re.compile(
    r"apply_patch|\bsed\s+(?:-\w+\s+)*-\w*i|\btee\b|>\s*(?!/dev/|&)[\w./~$\"']|\bgit (?:apply|checkout|mv|rm)\b|"
    r"\b(?:mv|cp|rm|touch|mkdir)\s"
)
_FAILED: Final = re.compile(r"error|fail|not found|no match|no such|denied|invalid", re.IGNORECASE)
_WRITTEN_CALLS: Final = (
    "<tool_call>",
    "<|tool_call",
    "[TOOL_CALLS]",
    "<function=",
    "<function_call>",
    '<invoke name="',
    "```tool_code",
    "<|python_tag|>",
)
"""How the templates of the families mark a call; in an answer's text they are a call that was not understood as one."""
_WRITTEN_JSON: Final = re.compile(
    r'\{\s*"(?:name|tool|function)"\s*:\s*"[\w.-]{1,64}"\s*,\s*"(?:arguments|parameters|args)"\s*:'
)


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, with its arguments in canonical form."""

    tool: str
    mark: int
    """Hash of name and arguments, the same for every order of keys."""
    changes: int
    """Hash of the file, or else of the call, that it changes something by; 0 when it changes no file."""


class Tools:
    """What is known of tools by their names."""

    def __init__(self, exempt: Sequence[str] = ()) -> None:
        """Tools that fit one of these patterns may be called again and again."""
        self._exempt = tuple(exempt)
        self._known: dict[str, tuple[bool, bool, bool]] = {}

    def of(self, name: str) -> tuple[bool, bool, bool]:
        """Whether a tool is exempt, whether it may change files, whether it is a shell."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= 4096:
                self._known.clear()
            exempt = any(fnmatchcase(name, pattern) for pattern in self._exempt)
            found = exempt, _CHANGES.search(name) is not None, _SHELLS.search(name) is not None
            self._known[name] = found
        return found

    def calls(self, message: Message) -> list[Call]:
        """The tool calls of an assistant message; what is not formed like a call is passed over."""
        functions = _functions(message.get("tool_calls") or ())
        return [self._call(name, function.get("arguments")) for name, function in functions]

    def _call(self, name: str, arguments: Any) -> Call:
        if isinstance(arguments, str):
            try:
                arguments = orjson.loads(arguments)
            except orjson.JSONDecodeError:
                return Call(name, hash((name, arguments)), 0)
        raw = written(arguments, orjson.OPT_SORT_KEYS)
        mark = hash((name, raw))
        _, changes, shell = self.of(name)
        changed = 0
        if (changes or shell) and isinstance(arguments, dict):
            path = next((arguments[one] for one in _PATHS if isinstance(arguments.get(one), str)), None)
            if shell:
                changed = mark if _SHELL_CHANGES.search(raw[:_LONGEST_LOOK].decode("utf-8", "replace")) else 0
            elif path is not None:
                changed = hash(path) or 1
            elif "patch" in name.lower():
                changed = mark
        return Call(name, mark, changed)

    def can_change(self, offered: Any) -> bool:
        """Whether one of the tools that a request offers is made to change files."""
        return any(self.of(name)[1] for name in names_of(offered))


@dataclass(slots=True)
class Reading:
    """What was seen of a conversation so far."""

    run: int = 0
    """Identical calls in a row."""
    run_tool: str = ""
    turns: int = 0
    """Answers with tool calls since the user spoke."""
    restated: int = 0
    """Answers that told the user's request again since it was made."""
    reread_bits: int = 0
    """A bit for each of the last calls with results, the newest lowest: 1 where the same result was fetched before."""
    text_bits: int = 0
    """A bit for each of the last answers, the newest lowest: 1 where a call was written as text."""
    clean: int = 0
    """Calls so far that were formed as calls, and not as text."""
    changed: set[int] = field(default_factory=set)
    """Files changed since the user spoke."""
    _unit: frozenset[int] = frozenset()
    """Marks of the calls of the last answer that made any."""
    _results: dict[int, int] = field(default_factory=dict)
    """Mark of a call → hash of its last result and of how many changes came before it."""
    _pending: list[Call] = field(default_factory=list)
    """Calls whose results have not come yet, in order."""
    _goal: dict[int, int] = field(default_factory=dict)
    """Phrases of the user's request (`_phrases`)."""
    _answers: int = 0
    """Answers since the user spoke."""
    _changes: int = 0
    """Changes of files so far."""
    _last: int = 0
    """Mark of the last call whose result was read."""

    @property
    def rereads(self) -> int:
        """Calls among the last ones that fetched what was known."""
        return (self.reread_bits & ((1 << RECENT_CALLS) - 1)).bit_count()

    @property
    def calls_as_text(self) -> int:
        """Answers among the last ones that wrote a call as text."""
        return (self.text_bits & ((1 << RECENT_ANSWERS) - 1)).bit_count()

    @property
    def size(self) -> int:
        """Bytes of memory that this takes, roughly."""
        return 600 + 120 * (len(self._results) + len(self.changed))

    def read(self, messages: Iterable[Message], tools: Tools) -> None:
        """Read the messages that follow those that were read before."""
        asked: str | None = None
        for message in messages:
            role, text = message.get("role"), message.get("content") or ""
            if role == "assistant":
                self._answers += 1
                if asked is not None and self._answers > 1:
                    self._goal, asked = _phrases(asked), None
                self._answer(message, text, tools)
            elif role == "tool":
                self._result(text, tools)
            elif role == "user" and text.lstrip()[:1] != "<":
                # What begins with a tag is a reminder that the agent puts in, not its user.
                self._asked()
                asked = text
        if asked is not None:
            self._goal = _phrases(asked)

    def _asked(self) -> None:
        self.run = self.turns = self.restated = self._answers = 0
        self._unit = frozenset()
        self.changed.clear()
        self._pending.clear()

    def _answer(self, message: Message, text: str, tools: Tools) -> None:
        calls = tools.calls(message) if message.get("tool_calls") else []
        self._pending = calls
        if self._answers > 1 and self._goal and text:
            self.restated += _tells(text, self._goal)
        written = not calls and bool(text) and self.clean > 0 and _writes_call(text)
        self.text_bits = (self.text_bits << 1 | written) & 0xFFFF
        if not calls:
            if not written:
                self._unit, self.run = frozenset(), 0
            return
        self.turns += 1
        self.clean += len(calls)
        self._repeats([call for call in calls if not tools.of(call.tool)[0]])

    def _repeats(self, calls: list[Call]) -> None:
        if not calls:
            return
        unit = frozenset(call.mark for call in calls)
        within = 1 if len(unit) == len(calls) else max(Counter(call.mark for call in calls).values())
        if unit == self._unit:
            self.run += within
        else:
            self._unit, self.run, self.run_tool = unit, within, calls[0].tool

    def _result(self, text: str, tools: Tools) -> None:
        if not self._pending:
            return
        call = self._pending.pop(0)
        if call.changes and not _FAILED.search(text[:200]):
            self.changed.add(call.changes)
            self._changes += 1
        if tools.of(call.tool)[0]:
            return
        # What was changed in between may be looked at again; the same call at once is a repeated one.
        mark = hash((text, self._changes))
        again = self._results.get(call.mark) == mark and call.mark != self._last
        self.reread_bits = (self.reread_bits << 1 | (again and len(text) >= _WORTH_READING)) & 0xFFFFFFFF
        self._results[call.mark] = mark
        self._last = call.mark
        if len(self._results) > _REMEMBERED_CALLS:
            del self._results[next(iter(self._results))]


def names_of(offered: Any) -> Iterator[str]:
    """The names of the tools that a request offers; what is not formed like a tool is passed over."""
    return (name for name, _ in _functions(offered if isinstance(offered, list) else ()))


def _functions(holders: Iterable[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and object of the function in each tool or call that has one."""
    for holder in holders:
        function = holder.get("function") if isinstance(holder, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(function, dict) and isinstance(name, str):
            yield name, function


def written(value: Any, option: int = 0) -> bytes:
    """A value as bytes, to take a hash of."""
    try:
        return orjson.dumps(value, option=option | orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # numbers beyond 64 bits, halves of surrogate pairs
        return repr(value).encode("utf-8", "surrogatepass")


def _phrases(text: str) -> dict[int, int]:
    """A few phrases of a request, evenly out of its head: hash of the first word → hash of the phrase."""
    words = text[:_HEAD].lower().split()
    last = len(words) - _PHRASE
    if last < _PHRASE:
        return {}
    step = max(last // (_PHRASES - 1), 1)
    phrases = {hash(words[at]): hash(tuple(words[at : at + _PHRASE])) for at in range(0, last + 1, step)}
    return phrases if len(phrases) >= _FEWEST else {}


def _tells(text: str, goal: Mapping[int, int]) -> bool:
    """Whether an answer begins by telling at least half of a request's phrases again."""
    words = text[:_HEAD].lower().split()
    found = {
        phrase
        for at, word in enumerate(words)
        if (phrase := goal.get(hash(word))) is not None and hash(tuple(words[at : at + _PHRASE])) == phrase
    }
    return len(found) * 2 >= len(goal)


def _writes_call(text: str) -> bool:
    text = text[:_LONGEST_LOOK]
    return any(mark in text for mark in _WRITTEN_CALLS) or ('"name"' in text and bool(_WRITTEN_JSON.search(text)))
