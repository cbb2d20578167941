"""Speaking an answer token by token: pace, limits, stop texts, context shift, repeat guard, prompt cache."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ollama_gate.rehearsal import errors, gojson
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.journal import Entry, Journal
from ollama_gate.rehearsal.runner import Runner
from ollama_gate.rehearsal.speech import Said, filler
from ollama_gate.rehearsal.vocabulary import Encoder
from ollama_gate.rehearsal.window import context_shift

_REPEATS = 30
"""More equal tokens than this, and Ollama ends the stream without a word (`llm/llama_server.go:Completion`)."""
_PROMPT_TOKEN_NS = 200_000
"""What evaluating a prompt token is said to take when the rehearsal takes no time for it."""


@dataclass(frozen=True, slots=True)
class Task:
    """One generation."""

    prompt: Sequence[int]
    said: Said
    limit: int
    """Most tokens; negative for none."""
    num_keep: int
    stop: Sequence[str] = ()
    repeat_guard: bool = True
    """Only Ollama's `/completion` path has it."""
    rate: float = 0.0
    """Tokens a second; 0 as fast as they can be sent."""
    prompt_rate: float = 0.0
    dies_after: int | None = None
    ends_after: int | None = None
    """End cleanly but without a final chunk."""
    long_line: tuple[int, int] | None = None
    """After so many tokens, one of so many bytes."""
    image_tokens: int = 0
    """Prompt tokens that images cost, beside `prompt`."""


@dataclass(slots=True)
class Delta:
    """One piece of an answer."""

    content: str = ""
    thinking: str = ""
    calls: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Done:
    """How an answer ended. Durations in nanoseconds."""

    reason: str
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int


async def generate(runner: Runner, task: Task, entry: Entry, journal: Journal) -> AsyncGenerator[Delta | Done]:
    """Wait for a slot, evaluate the prompt, speak; the last thing given is Done, unless the stream just ends.

    Raises:
        StatusError: 400 when the prompt fills the slot; 500 when the runner dies.
    """
    count = len(task.prompt) + task.image_tokens
    if count >= runner.slot_size:
        raise errors.prompt_too_long(count, runner.slot_size)
    async with runner.slot_for(task.prompt) as (slot, held):
        entry.prompt_tokens = count
        journal.changed()
        new = count - held
        started = time.monotonic_ns()
        if task.prompt_rate:
            await asyncio.sleep(new / task.prompt_rate)
        prompt_ns = max(time.monotonic_ns() - started, new * _PROMPT_TOKEN_NS)
        slot.cached = task.prompt
        began = time.monotonic_ns()
        speech = _Speech(runner, task, entry, journal)
        async for delta in speech.speak(count):
            yield delta
        if speech.reason:
            took = max(time.monotonic_ns() - began, 1000)
            yield Done(speech.reason, count, prompt_ns // 1000 * 1000, entry.generated, took // 1000 * 1000)


class _Speech:
    def __init__(self, runner: Runner, task: Task, entry: Entry, journal: Journal) -> None:
        self.runner = runner
        self.task = task
        self.entry = entry
        self.journal = journal
        self.vocabulary: Encoder = runner.model.vocabulary
        self.reason = ""
        self.used = 0
        self.held = _Held(task.stop)

    async def speak(self, used: int) -> AsyncGenerator[Delta]:
        """Deltas until something ends the answer; `reason` says what, empty for an end without one."""
        task = self.task
        loop = asyncio.get_running_loop()
        start = loop.time()
        self.used = used
        same, last = 0, None
        self.entry.generated = 0
        for token, part in _tokens(task.said, self.vocabulary):
            done = self.entry.generated
            if task.dies_after is not None and done >= task.dies_after:
                raise StatusError(500, errors.RUNNER_DIED, of_runner=True)
            if task.ends_after is not None and done >= task.ends_after:
                return
            if not self._room():
                self.reason = "length"
                break
            due = start + (done + 1) / task.rate - loop.time() if task.rate else 0
            await asyncio.sleep(max(due, 0))
            self.entry.generated += 1
            self.journal.changed()
            same, last = (same + 1, last) if token == last else (0, token)
            if task.repeat_guard and same > _REPEATS:
                return
            if delta := self._say(part):
                yield delta
            if self.held.stopped:
                self.reason = "stop"
                break
            if self.entry.generated == task.limit:
                self.reason = "length"
                break
        else:
            if task.said.length is None:
                self.entry.generated += 1  # the end-of-turn token is generated too
            self.reason = "stop"
        if rest := self.held.rest():
            yield Delta(content=rest)

    def _room(self) -> bool:
        """Whether the slot takes one more token, after a context shift if that is allowed."""
        if self.used < self.runner.slot_size:
            self.used += 1
            return True
        if not self.runner.shifts_context:
            return False
        # The newest token is not in the cache yet: llama-server counts without it.
        shift = context_shift(self.used - 1, self.task.num_keep, adds_bos=bool(self.vocabulary.specials[0]))
        self.used += 1 - shift.discard
        self.runner.shifts += 1
        self.entry.notes.append(f"shift: {shift.discard} tokens forgotten after the first {shift.keep}")
        return True

    def _say(self, part: "Part") -> Delta | None:
        if part.call is not None:
            return Delta(calls=[part.call]) if part.ends else None
        text = part.text
        if self.task.long_line and self.entry.generated == self.task.long_line[0] + 1:
            text += "x" * self.task.long_line[1]
        if not text:
            return None
        if part.thinking:
            return Delta(thinking=text)
        text = self.held.take(text)
        return Delta(content=text) if text else None


@dataclass(frozen=True, slots=True)
class Part:
    """What one token is to the listener."""

    text: str = ""
    thinking: bool = False
    call: Any = None
    """The tool call it belongs to; nothing is told before its last token."""
    ends: bool = False


def _tokens(said: Said, vocabulary: Encoder) -> Iterator[tuple[int, Part]]:
    if said.endless is not None:
        part = Part(vocabulary.decode([said.endless]))
        while True:
            yield said.endless, part
    if said.length is not None:
        for token, text in islice(filler(vocabulary), said.length):
            yield token, Part(text)
        return
    if said.thinking:
        yield from _spoken(f"<think>\n{said.thinking}\n</think>\n\n", said.thinking, vocabulary)
    for call in said.calls:
        text = f'<tool_call>\n{{"name": "{call["name"]}", "arguments": {gojson.write(call["arguments"]).decode()}}}'
        ids = vocabulary.encode(text + "\n</tool_call>")
        for at, token in enumerate(ids, 1):
            yield token, Part(call=call, ends=at == len(ids))
    yield from _text(vocabulary.encode(said.text), vocabulary, thinking=False)


def _spoken(written: str, heard: str, vocabulary: Encoder) -> Iterator[tuple[int, Part]]:
    """Thinking between its marks: the marks are tokens, but nobody is told them."""
    before, after = written.split(heard)
    for token in vocabulary.encode(before):
        yield token, Part()
    yield from _text(vocabulary.encode(heard), vocabulary, thinking=True)
    for token in vocabulary.encode(after):
        yield token, Part()


def _text(ids: Sequence[int], vocabulary: Encoder, *, thinking: bool) -> Iterator[tuple[int, Part]]:
    """Tokens with their text; one that ends inside a character is told with the token that completes it."""
    pending: list[int] = []
    for at, token in enumerate(ids, 1):
        pending.append(token)
        text = vocabulary.decode(pending)
        if text.endswith("\ufffd") and at < len(ids) and len(pending) < 8:
            yield token, Part(thinking=thinking)
            continue
        pending.clear()
        yield token, Part(text, thinking)


class _Held:
    """Text on its way, of which nothing is told that may turn out to begin a stop text."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop = [text for text in stop if text]
        self.text = ""
        self.stopped = False

    def take(self, text: str) -> str:
        if not self.stop:
            return text
        self.text += text
        ends = [at for at in (self.text.find(stop) for stop in self.stop) if at >= 0]
        if ends:
            self.stopped = True
            out, self.text = self.text[: min(ends)], ""
            return out
        keep = max(_overlap(self.text, stop) for stop in self.stop)
        out, self.text = self.text[: len(self.text) - keep], self.text[len(self.text) - keep :]
        return out

    def rest(self) -> str:
        out, self.text = self.text, ""
        return out


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` may begin `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
