import errno
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate import __version__
from ollama_gate.app import Gate
from ollama_gate.counting import learned as module
from ollama_gate.counting.learned import Learned, LearnedBook, _read, merged, place
from ollama_gate.counting.trust import Trust
from ollama_gate.rehearsal import Rehearsal
from support.gate import running_gate
from support.http import ask

KNOWN = Learned(
    Trust(rendering=False, agreed=7, ratio=1.25, samples=3, why="it was off"), checked=True, image_tokens=256.5
)
HELLO = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "Say hi."}], "stream": False}


async def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    book = LearnedBook(tmp_path / "new" / "learned.json")
    await book.load()
    book.put("a", KNOWN)
    book.put("b", Learned())
    await book.save()
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert [path.name for path in book.path.parent.iterdir()] == ["learned.json"]
    again = LearnedBook(book.path)
    again.put("b", KNOWN)
    await again.load()
    assert (again.get("a"), again.get("b"), again.get("c")) == (KNOWN, KNOWN, None)


async def test_nothing_is_written_twice_and_nothing_for_nothing(tmp_path: Path) -> None:
    book = LearnedBook(tmp_path / "learned.json")
    await book.save()
    assert not book.path.exists()
    book.put("a", KNOWN)
    await book.save()
    book.path.unlink()
    await book.save()
    assert not book.path.exists()


async def test_a_place_that_cannot_be_written_is_only_said(tmp_path: Path, written_log: io.StringIO) -> None:
    (tmp_path / "file").write_text("in the way")
    book = LearnedBook(tmp_path / "file" / "learned.json")
    book.put("a", KNOWN)
    await book.save()
    assert "cannot be written" in written_log.getvalue()


async def test_what_a_full_disk_did_not_take_is_written_when_there_is_room_and_said_once(
    tmp_path: Path, written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = LearnedBook(tmp_path / "learned.json")
    book.put("a", Learned())
    await book.save()
    before = book.path.read_bytes()

    def full(handle: int, _mode: str) -> None:
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        book.put("a", KNOWN)
        await book.save()
        await book.save()
    assert written_log.getvalue().count("No space left on device") == 1
    assert book.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["learned.json"]
    await book.save()
    again = LearnedBook(book.path)
    await again.load()
    assert again.get("a") == KNOWN


async def test_the_models_met_first_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    book = LearnedBook(tmp_path / "learned.json")
    for name in "abcd":
        book.put(name, KNOWN)
    assert len(book) == 3
    assert book.get("a") is None


async def test_of_another_gates_counts_only_what_was_measured_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = LearnedBook(tmp_path / "learned.json")
    book.put("a", KNOWN)
    await book.save()
    monkeypatch.setattr(module, "__version__", "another")
    again = LearnedBook(book.path)
    await again.load()
    assert again.get("a") == Learned(Trust(ratio=1.25), image_tokens=256.5)


def saved(**trust: Any) -> dict[str, Any]:
    good = {"rendering": True, "vocabulary": True, "bound": True, "agreed": 1, "ratio": None, "samples": 0, "why": ""}
    return {"format": 1, "gate": __version__, "models": {"a": {"trust": {**good, **trust}, "checked": True}}}


BROKEN: list[Any] = [
    b"",
    b"\xff",
    b"[" * 10_000,
    b" " * (5 << 20),
    [],
    {"format": 2, "models": {}},
    {"format": 1, "models": []},
    {"format": 1, "models": {"a": None}},
    {"format": 1, "gate": __version__, "models": {"a": {"trust": {}}}},
    saved(rendering=1),
    saved(agreed=-1),
    saved(agreed=True),
    saved(ratio=0),
    saved(ratio="1"),
    saved(ratio=1e9),
    saved(why=None),
]


@pytest.mark.parametrize("content", BROKEN, ids=lambda one: str(one)[:30])
async def test_a_broken_file_is_said_and_ignored(tmp_path: Path, content: Any, written_log: io.StringIO) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    book = LearnedBook(path)
    await book.load()
    assert len(book) == 0
    assert "learned anew" in written_log.getvalue()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda one: st.lists(one) | st.dictionaries(st.sampled_from(["trust", "ratio", "image_tokens"]), one),
)


@given(JSON)
def test_a_row_is_an_error_or_has_sane_numbers(row: Any) -> None:
    try:
        found = module.learned_of(row, same=False)
    except ValueError:
        return
    assert found.trust.ratio is None or 0 < found.trust.ratio < 1e6
    assert found.image_tokens is None or 0 < found.image_tokens < 1e6


async def counted(gate: Gate) -> dict[str, Any]:
    told: dict[str, Any] = (await ask(gate.address, "POST", "/gate/count", HELLO)).json
    return told


@pytest.mark.slow
async def test_a_gate_that_starts_again_still_knows_what_it_had_learned(tmp_path: Path) -> None:
    async with Rehearsal() as ollama:
        cache = {"cache_dir": str(tmp_path)}
        async with running_gate(ollama.url, counting=cache) as gate:
            assert (await counted(gate))["rung"] == "estimate"
            assert (await ask(gate.address, "POST", "/api/chat", HELLO)).status == 200
            assert (await counted(gate))["rung"] == "exact"
        kept = _read(place(tmp_path, ollama.url))
        assert [one.checked for one in kept.values()] == [True]
        assert "Say hi." not in place(tmp_path, ollama.url).read_text()
        ollama.reset()
        async with running_gate(ollama.url, counting=cache) as gate:
            assert (await counted(gate))["rung"] == "exact"


async def test_a_reload_goes_on_with_what_was_learned(tmp_path: Path) -> None:
    async with Rehearsal() as ollama, running_gate(ollama.url, counting={"cache_dir": str(tmp_path)}) as gate:
        await counted(gate)
        await ask(gate.address, "POST", "/api/chat", HELLO)
        await counted(gate)
        ollama.service.scheduler.clear()
        await gate.reload(lambda: gate.config)
        assert (await counted(gate))["rung"] == "exact"


TRUSTS = st.builds(
    Trust,
    rendering=st.booleans(),
    vocabulary=st.booleans(),
    bound=st.booleans(),
    agreed=st.integers(0, 3),
    ratio=st.none() | st.floats(0.5, 2.0),
    samples=st.integers(0, 3),
    why=st.sampled_from(["", "this", "that"]),
)
LEARNED = st.builds(Learned, TRUSTS, st.booleans(), st.none() | st.floats(1.0, 900.0))


@given(LEARNED, LEARNED, LEARNED)
def test_what_gates_learned_is_merged_at_its_worst_in_any_order(one: Learned, two: Learned, three: Learned) -> None:
    both = merged(one, two)
    assert both == merged(two, one) == merged(both, one)
    assert merged(both, three) == merged(one, merged(two, three))
    for each in (one, two):
        if each.trust.ratio is not None:
            assert both.trust.margin(0.25) >= each.trust.margin(0.25)
        assert all(mine <= theirs for mine, theirs in zip(both.trust.beliefs, each.trust.beliefs, strict=True))
        assert (both.image_tokens or 0) >= (each.image_tokens or 0)
