"""What counting costs, in a process of its own: times, memory, and how long the event loop is held meanwhile.

python -m bench.counting --vocabulary FILE.gguf     prints one JSON object
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Self

import click
import uvloop

from ollama_gate.catalog import gguf
from ollama_gate.catalog.card import ModelCard, card_from_show
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.learned import LearnedBook
from ollama_gate.counting.policy import CountingPolicy
from ollama_gate.counting.remote import RemoteTokenizer
from ollama_gate.counting.store import TokenizerSource, TokenizerStore
from ollama_gate.dialects import native
from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest
from ollama_gate.window import Window, Wish, resolve

_MESSAGES: Final = 120
_TOKENS: Final = 74_000
_GAP_TEXT: Final = 1_000_000
"""Bytes counted while the loop is watched."""
_BEAT: Final = 0.001
"""Seconds between two looks at a loop that has nothing to do."""
_TEXT: Final = (
    "the a of to in that is was for on with as by at this from have not are which window budget token prompt model "
    "message system answer request stream gate count template context vocabulary memory slot queue ledger lease "
    "def return class import self async await None True False if else for while try except raise with lambda "
    "über straße naïve café 東京 日本語 文字 привет мир"
)
_TEMPLATES: Final = {
    "gemma": (
        "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message.role }}\n{{ message.content }}"
        "<end_of_turn>\n{% endfor %}<start_of_turn>model\n"
    ),
    "chatml": (
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}{% for message in messages %}"
        "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    ),
}


class _Ready:
    """A tokenizer that is there already."""

    def __init__(self, tokenizer: RemoteTokenizer) -> None:
        self._tokenizer = tokenizer

    def mark(self, card: ModelCard) -> str:
        """It is the model's own."""
        del card
        return ""

    async def get(self, card: ModelCard) -> RemoteTokenizer:
        """Hand it out."""
        del card
        return self._tokenizer


async def _nobody_to_ask(*_: object) -> str:
    raise RenderError("there is no Ollama here")


async def _loaded(_: ModelCard) -> bool:
    return False


class Heartbeat:
    """The longest time, in seconds, that the event loop was held while the block ran."""

    def __init__(self, clock: Callable[[], float] = perf_counter, pause: float = _BEAT) -> None:
        """Nothing seen yet.

        Args:
            clock: seconds; those of `time.process_time` are told whatever else runs on the machine.
            pause: what passes on this clock between two beats of a loop that has nothing to do.
        """
        self.longest = 0.0
        self._clock = clock
        self._pause = pause
        self._stopped = False
        self._last = 0.0

    async def __aenter__(self) -> Self:
        """Beat every millisecond."""
        self._last = self._clock()
        self._beat()
        await asyncio.sleep(0.02)
        self.longest = 0.0
        return self

    def _beat(self) -> None:
        now = self._clock()
        self.longest = max(self.longest, now - self._last - self._pause)
        self._last = now
        if not self._stopped:
            asyncio.get_running_loop().call_later(_BEAT, self._beat)

    async def __aexit__(self, *_: object) -> None:
        """Let a last beat see what was held."""
        await asyncio.sleep(0.005)
        self._stopped = True


def counter_of(tokenizer: RemoteTokenizer) -> Counter:
    """A counter as the gate makes one, but for an Ollama to ask."""
    return Counter(
        _Ready(tokenizer),
        ask=_nobody_to_ask,
        probe=_nobody_to_ask,
        loaded=_loaded,
        version=lambda: "0.33.0",
        report=lambda *_: None,
        demoted=lambda *_: None,
        policy=CountingPolicy(ask_upstream=False),
        book=LearnedBook(Path("nothing is kept")),
        clock=perf_counter,
    )


def text_of(seed: int, characters: int) -> str:
    """Words, numbers and code-like marks, always the same for a seed."""
    told = random.Random(seed)
    vocabulary = _TEXT.split()
    words: list[str] = []
    length = 0
    while length < characters:
        word = told.choice(vocabulary)
        word = f"{word}_{told.randrange(1000)}" if told.random() < 0.15 else word
        word += told.choice(("", "", "", "", ",", ".", ":\n    ", "()", " =", "\n"))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)


def conversation(tokenizer: RemoteTokenizer) -> list[dict[str, str]]:
    """A long conversation: 120 messages, about 74 000 tokens in all."""
    sample = text_of(0, 20_000)
    each = int(20_000 / tokenizer.count([sample])[0] * _TOKENS / _MESSAGES)
    return [
        {"role": "assistant" if number % 2 else "user", "content": text_of(number + 1, each)}
        for number in range(_MESSAGES)
    ]


async def measure(path: Path) -> dict[str, float | int | str]:
    """Everything that is measured of one vocabulary; times in seconds."""
    metadata = gguf.read(path, tensors=False).metadata
    store = TokenizerStore()
    tokenizer = await store.get(TokenizerSource(path.stem, path.stem, blob=path))
    card = talk_card(metadata)
    room = resolve(Wish(1 << 20), modelfile_num_ctx=None, default_num_ctx=1 << 20, trained=None, vision=False)
    counter = counter_of(tokenizer)
    try:
        messages = conversation(tokenizer)
        await counter.count(_chat(card, messages[:1]), card, room)  # the model is known from here on
        cold, count = await _timed(counter, card, room, messages)
        appended = [
            *messages,
            {"role": "assistant", "content": text_of(900, 1500)},
            {"role": "user", "content": "Go on."},
        ]
        turn, _ = await _timed(counter, card, room, appended)
        repeat, _ = await _timed(counter, card, room, appended)
        tools = [_tool(number) for number in range(12)]
        system = [{"role": "system", "content": text_of(901, 35_000)}]
        await _timed(counter, card, room, [*system, {"role": "user", "content": "First question."}], tools)
        warm, _ = await _timed(counter, card, room, [*system, {"role": "user", "content": "Second question."}], tools)
        long = text_of(902, _GAP_TEXT)
        async with Heartbeat() as idle:
            await asyncio.sleep(0.5)
        async with Heartbeat() as heart:
            seconds, _ = await _timed(counter, card, room, [{"role": "user", "content": long}])
    finally:
        counter.close()
        await store.close()
    return {
        "vocabulary": path.stem,
        "entries": len(metadata["tokenizer.ggml.tokens"]),
        "prompt tokens": count,
        "cold": cold,
        "turn": turn,
        "repeat": repeat,
        "tools warm": warm,
        "count 1 MB": seconds,
        "loop gap": heart.longest,
        "loop gap idle": idle.longest,
    }


async def _timed(
    counter: Counter, card: ModelCard, room: Window, messages: list[dict[str, str]], tools: list[Any] | None = None
) -> tuple[float, int]:
    request = _chat(card, messages, tools)
    began = perf_counter()
    count = await counter.count(request, card, room)
    return perf_counter() - began, count.tokens


def _chat(card: ModelCard, messages: list[dict[str, str]], tools: list[Any] | None = None) -> InferenceRequest:
    body: dict[str, Any] = {"model": card.name, "messages": messages}
    if tools:
        body["tools"] = tools
    return native.parse("/api/chat", body, session=None)


def talk_card(metadata: Mapping[str, Any]) -> ModelCard:
    """A model with this vocabulary and a template that goes with it."""
    template = _TEMPLATES["gemma" if str(metadata.get("tokenizer.ggml.model")) == "llama" else "chatml"]
    info = {key: value for key, value in metadata.items() if not isinstance(value, list)}
    show = {"template": template, "model_info": info, "capabilities": ["completion", "tools"]}
    return card_from_show("bench:latest", "bench:latest", "0" * 64, show)


def _tool(number: int) -> dict[str, Any]:
    properties = {
        name: {"type": "string", "description": f"What {name} is for this tool, in a few words."}
        for name in ("path", "pattern", "reason")
    }
    function = {
        "name": f"tool_{number}",
        "description": f"Does the thing number {number} to a file and says what came of it.",
        "parameters": {"type": "object", "properties": properties, "required": ["path"]},
    }
    return {"type": "function", "function": function}


@click.command()
@click.option("--vocabulary", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True)
def main(vocabulary: Path) -> None:
    """Measure and print."""
    print(json.dumps(uvloop.run(measure(vocabulary))))


if __name__ == "__main__":
    main()
