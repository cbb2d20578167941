import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from ollama_gate.counting import remote
from ollama_gate.counting.remote import WorkerGone
from ollama_gate.counting.store import RETRY_FAILED, RETRY_UNKNOWN, TokenizerSource, TokenizerStore
from ollama_gate.counting.tokenizer import build
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import CountingError, UnknownVocabulary, UpstreamUnreachable
from support.small_vocabularies import byte_level, gguf_bytes, sentencepiece, unigram, wordpiece
from support.vocabularies import tokenizer, vocabulary_file

TEXTS = ["hello world", "", "ab<|im_end|>\n", "é世\ud800"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[TokenizerStore]:
    store = TokenizerStore(tmp_path / "cache", clock=clock)
    yield store
    await store.close()


def blob(directory: Path, values: dict[str, Any], name: str = "blob") -> Path:
    path = directory / name
    path.write_bytes(gguf_bytes(values, [("token_embd.weight", (4, 4), 0, 0)]))
    return path


def shows(values: dict[str, Any], asked: list[str] | None = None) -> Callable[[], Awaitable[bytes]]:
    async def show() -> bytes:
        if asked is not None:
            asked.append("show")
        await asyncio.sleep(0)
        return orjson.dumps(
            {"model_info": values, "tensors": [{"name": "output.weight", "type": "F16", "shape": [4, 4]}]}
        )

    return show


@pytest.mark.slow
@pytest.mark.parametrize("values", [byte_level(), sentencepiece(), wordpiece(), unigram()])
async def test_a_model_is_counted_from_its_blob(store: TokenizerStore, tmp_path: Path, values: dict[str, Any]) -> None:
    here = build(Vocabulary.from_metadata(values, "test"))

    there = await store.get(TokenizerSource("sha256:1", "test", blob(tmp_path, values)))

    assert there.source == "blob"
    assert await asyncio.to_thread(there.count, TEXTS) == here.count(TEXTS)
    assert await asyncio.to_thread(there.ids, TEXTS[2]) == here.ids(TEXTS[2])
    assert await asyncio.to_thread(there.pieces, TEXTS[2]) == here.pieces(TEXTS[2])
    assert there.count([]) == []
    assert there.facts.to_json() == here.facts.to_json()


async def test_a_model_without_a_readable_blob_is_counted_from_what_ollama_shows(
    store: TokenizerStore, tmp_path: Path
) -> None:
    source = TokenizerSource("sha256:1", "test", tmp_path / "missing", shows(byte_level()))
    there = await store.get(source)
    assert there.source == "show"
    assert await asyncio.to_thread(there.count, ["hello"]) == [1]


async def test_a_model_met_before_comes_from_the_disk(store: TokenizerStore, tmp_path: Path) -> None:
    await store.get(TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level())))
    await store.close()
    second = TokenizerStore(tmp_path / "cache")
    try:
        there = await second.get(TokenizerSource("sha256:1", "test"))
        assert there.source == "cache"
        assert await asyncio.to_thread(there.count, ["hello"]) == [1]
    finally:
        await second.close()


async def test_ollama_is_asked_while_the_process_starts(store: TokenizerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    tell = remote.Worker.tell

    def told_late(worker: remote.Worker, payload: bytes) -> dict[str, Any]:
        assert asked.wait(20)
        return tell(worker, payload)

    async def show() -> bytes:
        asked.set()
        return await shows(byte_level())()

    monkeypatch.setattr(remote.Worker, "tell", told_late)
    assert (await store.get(TokenizerSource("sha256:1", "test", show=show))).source == "show"


@pytest.mark.slow
async def test_however_many_wait_it_is_built_once(store: TokenizerStore) -> None:
    asked: list[str] = []
    source = TokenizerSource("sha256:1", "test", show=shows(byte_level(), asked))

    assert store.ready("sha256:1") is None
    store.prepare(source)
    found = await asyncio.gather(*(store.get(source) for _ in range(5)))

    assert asked == ["show"]
    assert {id(tokenizer) for tokenizer in found} == {id(store.ready("sha256:1"))}
    assert found[0].source == "show"
    assert found[0].worker.resident() > 1 << 20


async def test_giving_up_waiting_does_not_stop_the_building(store: TokenizerStore) -> None:
    source = TokenizerSource("sha256:1", "test", show=shows(byte_level()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await store.get(source)
    assert (await store.get(source)).source == "show"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("show", "error", "said"),
    [
        (shows(byte_level() | {"tokenizer.ggml.pre": "unheard-of"}), UnknownVocabulary, "unheard-of"),
        (shows({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": None}), UnknownVocabulary, "verbose"),
        (None, CountingError, "No such file"),
    ],
)
async def test_a_failure_is_remembered_with_its_reason(
    store: TokenizerStore, clock: Clock, show: Any, error: type[CountingError], said: str
) -> None:
    asked: list[str] = []

    async def counted() -> bytes:
        asked.append("show")
        found: bytes = await show()
        return found

    source = TokenizerSource("sha256:1", "test", Path("/nowhere"), counted if show else None)
    for _ in range(2):
        with pytest.raises(error, match=said):
            await store.get(source)
    assert len(asked) == (1 if show else 0)

    clock.now += (RETRY_UNKNOWN if error is UnknownVocabulary else RETRY_FAILED) + 1
    good = TokenizerSource("sha256:1", "test", show=shows(byte_level()))
    assert (await store.get(good)).source == "show"


@pytest.mark.slow
async def test_ollama_being_away_is_a_failure_that_is_tried_again(store: TokenizerStore, clock: Clock) -> None:
    async def away() -> bytes:
        raise UpstreamUnreachable("connection refused")

    with pytest.raises(CountingError, match="connection refused"):
        await store.get(TokenizerSource("sha256:1", "test", show=away))
    clock.now += RETRY_FAILED + 1
    assert (await store.get(TokenizerSource("sha256:1", "test", show=shows(byte_level())))).alive


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model_info": 5}', b'{"model_info": {}, "tensors": [5]}'])
async def test_a_body_that_is_none_is_a_failure(store: TokenizerStore, body: bytes) -> None:
    async def show() -> bytes:
        await asyncio.sleep(0)
        return body

    with pytest.raises(CountingError):
        await store.get(TokenizerSource("sha256:1", "test", show=show))


async def test_a_hostile_blob_is_passed_over(store: TokenizerStore, tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    there = await store.get(TokenizerSource("sha256:1", "test", path, shows(byte_level())))
    assert there.source == "show"


@pytest.mark.slow
async def test_a_process_that_died_is_replaced(store: TokenizerStore, tmp_path: Path) -> None:
    source = TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level()))
    first = await store.get(source)
    os.kill(first.worker.process.pid, signal.SIGKILL)
    with pytest.raises(WorkerGone):
        await asyncio.to_thread(first.count, ["hello"])

    assert store.ready("sha256:1") is None
    second = await store.get(source)

    assert second is not first
    assert await asyncio.to_thread(second.count, ["hello"]) == [1]


async def test_a_process_that_is_silent_is_given_up(
    store: TokenizerStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.05)
    source = TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level()))
    there = await store.get(source)
    os.kill(there.worker.process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerGone, match="timed out"):
        await asyncio.to_thread(there.count, ["hello"])
    assert store.ready("sha256:1") is None
    os.kill(there.worker.process.pid, signal.SIGCONT)


async def test_a_text_beyond_all_measure_is_not_counted(store: TokenizerStore, tmp_path: Path) -> None:
    there = await store.get(TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level())))
    with pytest.raises(CountingError, match="more than is counted"):
        await asyncio.to_thread(there.count, ["a" * remote.MAX_BYTES])
    for run in (" ", "a"):
        with pytest.raises(CountingError, match="in a row"):
            await asyncio.to_thread(there.count, ["hello", run * (remote.LONGEST_RUN + 1)])
    assert await asyncio.to_thread(there.count, ["hello"]) == [1]


@pytest.mark.slow
async def test_the_least_recently_used_goes_when_memory_is_short(tmp_path: Path, clock: Clock) -> None:
    store = TokenizerStore(tmp_path / "cache", memory_limit=1, clock=clock)
    try:
        for number in "123":
            clock.now += 1
            await store.get(TokenizerSource(number, f"model {number}", blob(tmp_path, byte_level(), number)))
        assert [store.ready(number) is not None for number in "123"] == [False, False, True]
        gone = await store.get(TokenizerSource("1", "model 1"))
        assert gone.source == "cache"
        assert store.ready("3") is None
    finally:
        await store.close()


@pytest.mark.slow
async def test_counting_is_a_use_too(store: TokenizerStore, tmp_path: Path) -> None:
    """Whoever counts holds on to a tokenizer and asks the store no more."""
    first, second = [
        await store.get(TokenizerSource(number, "test", blob(tmp_path, byte_level(), number))) for number in "12"
    ]
    await asyncio.to_thread(first.count, ["hello"])
    store.memory_limit = 5 * second.worker.resident() // 2
    await store.get(TokenizerSource("3", "test", blob(tmp_path, byte_level(), "3")))
    assert (first.alive, second.alive) == (True, False)


@pytest.mark.slow
async def test_all_stay_while_there_is_memory(store: TokenizerStore, tmp_path: Path) -> None:
    for number in "123":
        await store.get(TokenizerSource(number, "test", blob(tmp_path, byte_level(), number)))
    assert all(store.ready(number) for number in "123")


@pytest.mark.slow
async def test_only_a_vocabulary_that_nobody_uses_is_forgotten(
    store: TokenizerStore, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ollama_gate.counting.store.MOST_KNOWN", 4)
    used = await store.get(TokenizerSource("used", "test", blob(tmp_path, byte_level())))
    for number in range(6):
        with pytest.raises(CountingError):
            await store.get(TokenizerSource(f"unknown {number}", "test", show=shows({"general.architecture": "x"})))
        clock.now += RETRY_UNKNOWN / 2
    assert len(store._entries) <= 4
    assert store.ready("used") is used
    monkeypatch.setattr("ollama_gate.counting.store.Worker", None)  # a failure of a short time ago needs no process
    with pytest.raises(UnknownVocabulary):
        await store.get(TokenizerSource("unknown 5", "test"))


async def test_an_unloaded_tokenizer_says_so(store: TokenizerStore, tmp_path: Path) -> None:
    there = await store.get(TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level())))
    await store.close()
    with pytest.raises(WorkerGone, match="unloaded"):
        await asyncio.to_thread(there.count, ["hello"])
    assert there.worker.process.returncode is not None
    assert there.worker.resident() == 0


async def test_closing_stops_what_is_being_built(tmp_path: Path) -> None:
    store = TokenizerStore(tmp_path / "cache")

    async def never() -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    store.prepare(TokenizerSource("sha256:1", "test", show=never))
    await asyncio.sleep(0)
    await store.close()
    await store.built()
    assert store.ready("sha256:1") is None


async def test_without_a_cache_directory_a_temporary_one_is_used(tmp_path: Path) -> None:
    store = TokenizerStore()
    directory = store.cache
    assert directory is not None
    assert directory.is_dir()
    await store.get(TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level())))
    await store.close()
    assert not directory.exists()


async def test_several_texts_are_counted_at_a_time(store: TokenizerStore, tmp_path: Path) -> None:
    there = await store.get(TokenizerSource("sha256:1", "test", blob(tmp_path, byte_level())))
    counts = await asyncio.gather(*(asyncio.to_thread(there.count, ["hello"] * number) for number in range(20)))
    assert [len(count) for count in counts] == list(range(20))
    assert not there.busy


@pytest.mark.slow
@pytest.mark.vocab
async def test_a_real_vocabulary_is_counted_in_its_process(store: TokenizerStore) -> None:
    there = await store.get(TokenizerSource("sha256:1", "phi3", vocabulary_file("phi-3")))
    long = "Hello, wörld! <|end|>\n" * 60_000
    assert await asyncio.to_thread(there.count, [long, "Hello"]) == tokenizer("phi-3").count([long, "Hello"])
