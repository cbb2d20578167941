"""Conversations as agents and people hold them, made from a seed: sound ones, and the same with one thing broken.

A transcript is a list of turns; a turn is the native messages (and tools) of one request as a client would send it.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from ollama_gate.requests import InferenceRequest, Kind
from support.pages import ROOT

Json = dict[str, Any]
_WORDS: Final = [
    "parser", "window", "token", "budget", "queue", "ledger", "answer", "worker", "socket", "header", "client",
    "stream", "reply", "vector", "column", "index", "schema", "cache", "buffer", "thread", "signal", "session",
    "model", "prompt", "layer", "folder", "branch", "commit", "review", "release", "fixture", "record", "matrix",
    "route", "handler", "timeout", "retry", "backoff", "metric", "label", "gauge", "secret", "cookie", "tenant",
    "invoice", "customer", "order", "basket", "payment", "refund", "shipment", "warehouse",
]  # fmt: skip
_VERBS: Final = [
    "find", "fix", "rename", "extract", "simplify", "document", "test", "measure", "move", "split", "merge",
    "validate",
]  # fmt: skip
_FOLDERS: Final = ["api", "core", "web", "jobs", "models", "storage", "billing", "search"]


def tool(name: str, *arguments: str) -> Json:
    """A tool as a request offers it."""
    properties = {one: {"type": "string"} for one in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"type": "function", "function": {"name": name, "description": f"{name} it", "parameters": parameters}}


TOOLS: Final = [
    tool("read_file", "path", "offset"),
    tool("grep", "pattern", "path"),
    tool("edit_file", "path", "old", "new"),
    tool("shell", "command"),
    tool("list_dir", "path"),
]


@dataclass(frozen=True)
class Turn:
    """One request."""

    messages: list[Json]
    tools: list[Json] | None = None
    session: str | None = None
    cut_at: int | None = None
    """Characters that the upstream evaluates at most; None where nothing is cut."""

    @property
    def request(self) -> InferenceRequest:
        """The request in its native form, with strings of its own as a decoder makes them."""
        body = json.loads(json.dumps({"messages": self.messages, "tools": self.tools}))
        return InferenceRequest(Kind.CHAT, "/api/chat", "m:latest", body, True, session=self.session)

    @property
    def prompt_eval_count(self) -> int:
        """About what an Ollama would report."""
        chars = len(json.dumps(self.messages)) + len(json.dumps(self.tools or []))
        return (chars if self.cut_at is None else min(chars, self.cut_at)) // 4


class Writer:
    """Writes sound conversations."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._before = ""

    def words(self, low: int, high: int) -> str:
        return " ".join(self.rng.choice(_WORDS) for _ in range(self.rng.randint(low, high)))

    def path(self) -> str:
        return f"src/{self.rng.choice(_FOLDERS)}/{self.rng.choice(_WORDS)}_{self.rng.randint(1, 9)}.py"

    def task(self) -> str:
        place = self.path()
        return f"Please {self.rng.choice(_VERBS)} the {self.words(2, 4)} in {place} so that the {self.words(5, 25)}."

    def source(self) -> str:
        lines = self.rng.randint(5, 60)
        return "\n".join(f"    {self.rng.choice(_WORDS)} = {self.words(1, 6)}" for _ in range(lines))

    def _call(self, name: str, said: str = "", **arguments: str) -> Json:
        return {"role": "assistant", "content": said, "tool_calls": [_called(name, arguments)]}

    def _result(self, name: str, text: str) -> Json:
        return {"role": "tool", "tool_name": name, "content": text}

    def agent(self, tasks: int = 2) -> list[Turn]:
        """A coding agent: it looks, edits, runs the tests, looks again, and says what it did."""
        messages: list[Json] = [{"role": "system", "content": "You are a coding agent. " + self.words(150, 400)}]
        turns: list[Turn] = []
        files: dict[str, str] = {}
        for _ in range(tasks):
            messages = [*messages, {"role": "user", "content": self.task()}]
            for _ in range(self.rng.randint(4, 14)):
                turns.append(Turn(messages, TOOLS))
                messages = [*messages, *self._step(files)]
            turns.append(Turn(messages, TOOLS))
            messages = [*messages, {"role": "assistant", "content": f"Done: {self.words(20, 80)}."}]
        return turns

    def _step(self, files: dict[str, str]) -> list[Json]:
        said = self.words(0, 15)
        step = self.rng.choices(("read", "parallel", "again", "edit", "test", "grep", "list"), (6, 2, 1, 4, 3, 3, 1))[0]
        if (step in {"again", "edit"} and not files) or (step == self._before and step in {"test", "list"}):
            step = "read"  # nobody sound runs the same again at once
        self._before = step
        match step:
            case "read":
                return self._read(files, self.path(), said)
            case "parallel":
                paths = [self.path() for _ in range(self.rng.randint(2, 4))]
                calls = [_called("read_file", {"path": path}) for path in paths]
                results = [self._result("read_file", files.setdefault(path, self.source())) for path in paths]
                return [{"role": "assistant", "content": said, "tool_calls": calls}, *results]
            case "again":
                return self._read(files, self.rng.choice(list(files)), said)
            case "edit":
                path = self.rng.choice(list(files))
                files[path] += f"\n    {self.words(1, 6)}"
                call = self._call("edit_file", said, path=path, old=self.words(3, 9), new=self.words(3, 9))
                return [call, self._result("edit_file", f"edited {path}")]
            case "test":
                told = f"{self.rng.randint(1, 90)} passed in {self.rng.random():.2f}s\n{self.words(0, 60)}"
                return [self._call("shell", said, command="pytest -q"), self._result("shell", told)]
            case "grep":
                pattern = self.rng.choice(_WORDS)
                return [self._call("grep", said, pattern=pattern, path="src"), self._result("grep", self.source())]
            case _:
                return [self._call("list_dir", said, path="src"), self._result("list_dir", "\n".join(_FOLDERS))]

    def patient(self) -> list[Turn]:
        """An agent that looks at two dozen files before it changes one, and runs the tests twice after each change."""
        messages: list[Json] = [{"role": "system", "content": self.words(100, 200)}]
        messages.append({"role": "user", "content": self.task()})
        turns = []
        for number in range(24):
            turns.append(Turn(messages, TOOLS))
            messages = [*messages, *self._read({}, f"src/{number}.py", self.words(0, 9))]
        told = f"{self.rng.randint(100, 900)} passed\n{self.source()}"
        for number in range(self.rng.randint(2, 6)):
            call = self._call("edit_file", path=f"src/{number}.py", old=self.words(3, 9), new=self.words(3, 9))
            for step in ([call, self._result("edit_file", "edited")], *[self._tests(told)] * 2):
                turns.append(Turn(messages, TOOLS))
                messages = [*messages, *step]
        return [*turns, Turn(messages, TOOLS)]

    def _tests(self, told: str) -> list[Json]:
        return [self._call("shell", command="pytest -q"), self._result("shell", told)]

    def _read(self, files: dict[str, str], path: str, said: str) -> list[Json]:
        call = self._call("read_file", said, path=path, offset="0")
        return [call, self._result("read_file", files.setdefault(path, self.source()))]

    def chat(self) -> list[Turn]:
        """A person and a model."""
        messages: list[Json] = [{"role": "system", "content": self.words(20, 100)}]
        turns = []
        for _ in range(self.rng.randint(3, 15)):
            messages = [*messages, {"role": "user", "content": self.words(3, 60)}]
            turns.append(Turn(messages))
            messages = [*messages, {"role": "assistant", "content": self.words(20, 300)}]
        return turns

    def talk(self, questions: int) -> list[Turn]:
        """Question and long answer in turn, behind a system prompt."""
        messages: list[Json] = [{"role": "system", "content": self.words(50, 80)}]
        turns = []
        for _ in range(questions):
            messages.append({"role": "user", "content": self.task()})
            turns.append(Turn(list(messages)))
            messages.append({"role": "assistant", "content": self.words(120, 200)})
        return turns

    def compacted(self) -> list[Turn]:
        """An agent that puts a summary in the place of what is old, and goes on."""
        turns = self.agent()
        last = turns[-1].messages
        begun = [last[0], {"role": "user", "content": f"Summary of what was done: {self.words(150, 300)}"}]
        tail = next(at for at in range(len(last) - 4, 0, -1) if last[at]["role"] == "assistant")
        after = [*begun, *last[tail:]]
        return [*turns, Turn(after, TOOLS), Turn([*after, *self._read({}, self.path(), "")], TOOLS)]

    def edited(self) -> list[Turn]:
        """A person who writes a question anew, and has an answer made again."""
        turns = self.chat()
        last = turns[-1].messages
        half = [at for at, message in enumerate(last) if message["role"] == "user"][len(turns) // 2]
        anew = [*last[:half], {"role": "user", "content": self.words(3, 60)}]
        return [
            *turns,
            turns[-1],
            Turn(anew),
            Turn([*anew, {"role": "assistant", "content": self.words(9, 90)}, anew[1]]),
        ]

    def titled(self) -> list[Turn]:
        """An agent that asks for a title and a memory beside its turns, all in one session."""
        name = f"s-{self.rng.randint(0, 10**9)}"
        out: list[Turn] = []
        for turn in self.agent():
            out.append(replace(turn, session=name))
            aside = [
                {"role": "system", "content": "Make a title."},
                turn.messages[1],
                {"role": "user", "content": "Now."},
            ]
            remember = [*turn.messages[1:], {"role": "user", "content": "What is worth remembering of this?"}]
            out += [Turn(aside, session=name), Turn(remember, TOOLS[:1], session=name)]
        return out


def _called(name: str, arguments: Json) -> Json:
    return {"function": {"name": name, "arguments": arguments}}


SOUND: Final[dict[str, Callable[[Writer], list[Turn]]]] = {
    "coding agents": Writer.agent,
    "agents that look long, and test twice": Writer.patient,
    "chats": Writer.chat,
    "agents that compact": Writer.compacted,
    "edited and repeated questions": Writer.edited,
    "agents with requests beside": Writer.titled,
}


def repeated_call(writer: Writer) -> list[Turn]:
    """The same call again and again, in another order of its arguments and with other words."""
    turns = writer.agent(1)
    messages = turns[-1].messages
    path = writer.path()
    for number in range(4):
        arguments = {"path": path, "pattern": "x"} if number % 2 else {"pattern": "x", "path": path}
        messages = [*messages, writer._call("grep", writer.words(3, 9), **arguments), writer._result("grep", "nothing")]
        turns.append(Turn(messages, TOOLS))
    return turns


def reread(writer: Writer) -> list[Turn]:
    """Files read again that lie in the conversation already."""
    turns = writer.agent(1)
    files = {writer.path(): writer.source() + writer.words(60, 90) for _ in range(3)}
    messages = turns[-1].messages
    for _ in range(3):
        for path in files:
            messages = [*messages, *writer._read(files, path, writer.words(2, 9))]
            turns.append(Turn(messages, TOOLS))
    return turns


def goal_restated(writer: Writer) -> list[Turn]:
    """A model that begins each step with what it was asked."""
    turns = writer.agent(1)
    messages = [turns[-1].messages[0], {"role": "user", "content": writer.task()}]
    goal = messages[-1]["content"]
    for _ in range(6):
        said = f"I have to do this: {goal} {writer.words(3, 20)}"
        messages = [*messages, *writer._read({}, writer.path(), said)]
        turns.append(Turn(messages, TOOLS))
    return turns


def call_as_text(writer: Writer) -> list[Turn]:
    """Calls that come as text from one turn on."""
    turns = writer.agent(1)
    call = json.dumps({"name": "read_file", "arguments": {"path": writer.path()}})
    said = writer.rng.choice(("<tool_call>\n{}\n</tool_call>", "{}", "```json\n{}\n```", "[TOOL_CALLS][{}]")).format
    messages = [
        *turns[-1].messages,
        {"role": "assistant", "content": said(call)},
        {"role": "user", "content": "Go on."},
    ]
    return [*turns, Turn(messages, TOOLS)]


def few_changes(writer: Writer) -> list[Turn]:
    """An agent that looks and looks."""
    messages: list[Json] = [{"role": "system", "content": "agent"}, {"role": "user", "content": writer.task()}]
    turns = []
    for number in range(35):
        messages = [*messages, *writer._read({}, f"src/{number}.py", writer.words(2, 9))]
        turns.append(Turn(messages, TOOLS))
    return turns


def prompt_standstill(writer: Writer) -> list[Turn]:
    """An upstream that cuts what is longer than so much."""
    turns = writer.agent(3)
    cut = len(json.dumps(turns[len(turns) // 3].messages))
    return [replace(turn, cut_at=cut) for turn in turns]


def clock_in_the_system_prompt(writer: Writer) -> list[Turn]:
    """A system prompt that tells the time."""
    out = []
    for number, turn in enumerate(writer.agent()):
        system = {"role": "system", "content": f"It is 12:{number:02}. {turn.messages[0]['content']}"}
        out.append(replace(turn, messages=[system, *turn.messages[1:]]))
    return out


def sliding_window(writer: Writer) -> list[Turn]:
    """A client that drops the oldest messages behind the first question, a few with each turn."""
    turns = writer.agent(3)
    return [replace(turn, messages=[*turn.messages[:2], *turn.messages[2:][-20:]]) for turn in turns]


def dropped_pairs(writer: Writer) -> list[Turn]:
    """A client that drops the oldest question with its answer, the first one too, each time it asks another."""
    return [replace(turn, messages=[turn.messages[0], *turn.messages[1:][-9:]]) for turn in writer.talk(14)]


def shuffled_tools(writer: Writer) -> list[Turn]:
    """Tools that come in another order with each turn."""
    turns = writer.agent()
    return [replace(turn, tools=TOOLS[at % 5 :] + TOOLS[: at % 5]) for at, turn in enumerate(turns)]


BROKEN: Final[dict[str, Callable[[Writer], list[Turn]]]] = {
    "repeated-call": repeated_call,
    "reread": reread,
    "goal-restated": goal_restated,
    "call-as-text": call_as_text,
    "few-changes": few_changes,
    "prompt-standstill": prompt_standstill,
    "prefix-break": clock_in_the_system_prompt,
    "prefix-break by a sliding window": sliding_window,
    "prefix-break by a window that slides over the first question": dropped_pairs,
    "prefix-break by tools in another order": shuffled_tools,
}


def recorded() -> Iterator[tuple[str, list[Turn]]]:
    """Every conversation of three messages and more in the recorded data, grown turn by turn."""
    for file in sorted((ROOT / "tests" / "data").rglob("*.json*")):
        name = str(file.relative_to(ROOT))
        text = file.read_text("utf-8")
        for line in text.split("\n") if file.suffix == ".jsonl" else [text]:
            if '"messages"' not in line:
                continue
            for messages, tools in _conversations(json.loads(line)):
                ends = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
                yield name, [Turn(messages[:at], tools) for at in [*ends, len(messages)] if at]


def _conversations(value: Any) -> Iterator[tuple[list[Json], Any]]:
    if isinstance(value, str) and '"messages"' in value:  # a body as it was sent
        try:
            value = json.loads(value)
        except ValueError:
            return
    if isinstance(value, list):
        for one in value:
            yield from _conversations(one)
    if not isinstance(value, dict):
        return
    messages = value.get("messages")
    if isinstance(messages, list) and len(messages) >= 3 and all(_native(message) for message in messages):
        yield messages, value.get("tools")
    for one in value.values():
        yield from _conversations(one)


def _native(message: Any) -> bool:
    content = message.get("content", "") if isinstance(message, dict) else 0
    if not isinstance(content, str | None) or not isinstance(message.get("role"), str):
        return False
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(call, dict | None) for call in calls)
