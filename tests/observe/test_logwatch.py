"""Ollama's log followed: files that grow, are replaced or cut short, and the journal."""

import asyncio
import io
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.observe import log, logwatch
from ollama_gate.observe.logwatch import Lines, LogWatch
from ollama_gate.observe.metrics import Metrics
from ollama_gate.observe.ollamalog import LogEvent, LogLine
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import config_for, running_gate
from support.http import ask
from support.waiting import until

CUT = 'time=x level=WARN source=a.go:1 msg="truncating input prompt" limit=131 prompt=256 keep=5 new=131\n'
SHIFT = "slot   operator(): id  0 | task 0 | slot context shift, n_keep = 5, n_left = 250, n_discard = 125\n"


def watch(source: object, **more: bool) -> LogWatch:
    url = "http://127.0.0.1:11434"
    return LogWatch(str(source), upstream=url, metrics=Metrics(), log=log.logger(), look=0.005, **more)


@asynccontextmanager
async def following(one: LogWatch) -> AsyncIterator[LogWatch]:
    task = asyncio.create_task(one.follow())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait({task})


def journalctl(folder: Path, patch: pytest.MonkeyPatch, *lines: str) -> None:
    """Put a `journalctl` of these lines of shell before the machine's own."""
    script = folder / "journalctl"
    script.write_text("\n".join(("#!/bin/sh", *lines, "")))
    script.chmod(0o755)
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def told_that(one: LogWatch, words: str) -> Callable[[], bool]:
    return lambda: one.problem is not None and words in one.problem


def cut(one: LogWatch, times: int) -> Callable[[], bool]:
    return lambda: one.counts[LogEvent.TRUNCATED] == times


async def test_what_was_written_before_is_not_told_and_what_comes_is(tmp_path: Path) -> None:
    file = tmp_path / "ollama.log"
    file.write_text(CUT)
    async with following(watch(file)) as one:
        await until(lambda: one.problem is None)
        with file.open("a") as out:
            out.write(CUT[:40])
            out.flush()
            out.write(CUT[40:] + SHIFT)
        await until(lambda: one.counts[LogEvent.SHIFTED] == 1)
    assert one.counts[LogEvent.TRUNCATED] == 1


async def test_a_file_that_is_rotated_is_followed_into_the_next(tmp_path: Path) -> None:
    file = tmp_path / "ollama.log"
    file.write_text("")
    async with following(watch(file)) as one:
        await until(lambda: one.problem is None)
        with file.open("a") as old:
            file.rename(tmp_path / "ollama.log.1")
            old.write(CUT)
            old.flush()
            file.write_text(CUT)
            await until(cut(one, 2))
        with file.open("a") as out:
            out.write(CUT)
        await until(cut(one, 3))


async def test_a_file_that_is_cut_short_is_read_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "ollama.log"
    file.write_text("some line\n" * 100)
    async with following(watch(file)) as one:
        await until(lambda: one.problem is None)
        with file.open("a") as out:
            out.write(CUT)
        await until(cut(one, 1))
        os.truncate(file, 0)
        with file.open("a") as out:
            out.write(SHIFT)
        await until(lambda: one.counts[LogEvent.SHIFTED] == 1)


async def test_a_file_that_is_not_there_is_told_waited_for_and_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    monkeypatch.setattr("ollama_gate.observe.logwatch.AGAIN", 0.005)
    file = tmp_path / "ollama.log"
    async with following(watch(file)) as one:
        await until(told_that(one, "No such file"))
        (tmp_path / "new").write_text(CUT)
        (tmp_path / "new").rename(file)
        await until(lambda: one.problem is None)
        await until(cut(one, 1))
    assert written_log.getvalue().count("is not followed") == 1


async def test_what_is_not_a_file_is_told_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for source in (pipe, tmp_path):
        async with following(watch(source)) as one:
            await until(told_that(one, "it is not a file"))


async def test_a_file_in_the_place_of_what_was_none_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logwatch, "AGAIN", 0.005)
    file = tmp_path / "ollama.log"
    file.mkdir()
    (tmp_path / "new").write_text(CUT)
    async with following(watch(file)) as one:
        await until(told_that(one, "it is not a file"))
        file.rmdir()
        (tmp_path / "new").rename(file)
        await until(cut(one, 1))


async def test_a_file_that_may_be_read_later_tells_what_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logwatch, "AGAIN", 0.005)
    opened, forbidden = logwatch._opened, True

    def may_open(path: Path) -> io.FileIO:
        if forbidden:
            raise PermissionError(13, "Permission denied")
        return opened(path)

    monkeypatch.setattr(logwatch, "_opened", may_open)
    file = tmp_path / "ollama.log"
    file.write_text(SHIFT)
    async with following(watch(file)) as one:
        await until(told_that(one, "Permission denied"))
        with file.open("a") as out:
            out.write(CUT)
        forbidden = False
        await until(cut(one, 1))
    assert one.counts[LogEvent.SHIFTED] == 0, "that was there before"


@pytest.mark.slow
async def test_a_reload_follows_the_log_that_is_named_then(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("old.log", "new.log")]
    for file in files:
        file.write_text("")
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, upstream={"log": str(files[0])}) as gate:
        old = gate.wiring.logwatch
        assert await gate.reload(lambda: config_for(ollama.url, upstream={"log": str(files[1])}))
        new = gate.wiring.logwatch
        assert old is not None
        assert new is not None
        await until(lambda: new.problem is None)
        for file in files:
            with file.open("a") as out:
                out.write(CUT)
        await until(cut(new, 1))
        assert await gate.reload(lambda: config_for(ollama.url))
        assert gate.wiring.logwatch is None
    assert cut(old, 0)()


async def test_the_journal_of_a_unit_is_followed_and_its_reader_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    says = f"echo \"$$ $*\" > {said}; printf '%s' '{CUT}'"
    journalctl(tmp_path, monkeypatch, says, "case $* in *--follow*) exec sleep 60;; esac")
    async with following(watch("journald:ollama")) as one:
        await until(cut(one, 1))
    pid, arguments = said.read_text().split(maxsplit=1)
    assert arguments.startswith("--output=cat --no-pager --quiet --follow ")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_a_reader_of_the_journal_that_does_not_want_to_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = f"trap '' TERM; printf '%s' '{CUT}'"
    journalctl(tmp_path, monkeypatch, says, "case $* in *--follow*) exec sleep 60;; esac")
    async with asyncio.timeout(20):
        async with following(watch("journald:ollama")) as one:
            await until(cut(one, 1))


async def test_a_reader_of_the_journal_begins_where_the_one_before_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    says = f"case $* in *--follow*) echo \"$*\" >> {said};; esac; printf '%s' '{CUT}'"
    journalctl(tmp_path, monkeypatch, says, f"if [ $(wc -l < {said}) = 2 ]; then exec sleep 60; fi")
    monkeypatch.setattr(logwatch, "AGAIN", 0.01)
    before = time.time()
    async with following(watch("journald:ollama")) as one:
        await until(cut(one, 2))
    asked = re.findall(r"--follow --lines=all --since=@(\d+\.\d{6}) --unit=ollama\n", said.read_text())
    first, second = map(float, asked)
    assert before <= first < second <= time.time()


async def test_a_machine_without_a_journal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with following(watch("journald:ollama")) as one:
        await until(told_that(one, "cannot be read"))


async def test_a_journal_that_shows_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journalctl(tmp_path, monkeypatch, "exit 0")
    async with following(watch("journald:olama")) as one:
        await until(told_that(one, "is that its name"))


async def test_a_reader_that_ends_again_and_again_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    said = tmp_path / "said"
    journalctl(tmp_path, monkeypatch, f"case $* in *--follow*) echo >> {said};; *) echo x;; esac")
    monkeypatch.setattr(logwatch, "AGAIN", 0.01)
    async with following(watch("journald:ollama")):
        await until(lambda: said.exists() and said.read_text().count("\n") >= 3)
    assert written_log.getvalue().count("is not followed") == 1


async def test_a_journalctl_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journalctl(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(logwatch, "ANSWERS", 0.05)
    async with following(watch("journald:ollama")) as one:
        await until(told_that(one, "did not answer"))


def test_a_cut_prompt_is_an_alert_that_is_written_once(written_log: io.StringIO) -> None:
    assert watch("x").alert is None
    one = watch("x")
    for _ in range(3):
        one.note(LogLine(LogEvent.TRUNCATED, {"prompt": "256"}))
    one.note(LogLine(LogEvent.OVERFLOW))
    assert one.alert is not None
    assert one.alert.startswith("Ollama's log says: truncated 3. The gate never sends such a request")
    assert "dport = :11434" in one.alert
    lines = [json.loads(line) for line in written_log.getvalue().splitlines()]
    assert [line["event_in_its_log"] for line in lines] == ["truncated"]


def test_requests_on_v1_are_no_alert_where_the_gate_passes_them() -> None:
    one = watch("x", passes_v1=True)
    one.note(LogLine(LogEvent.PAST_GATE))
    assert one.alert is None
    assert one.counts[LogEvent.PAST_GATE] == 1


@pytest.mark.slow
async def test_the_status_page_and_the_metrics_tell_of_it(tmp_path: Path) -> None:
    file = tmp_path / "ollama.log"
    file.write_text("")
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, upstream={"log": str(file)}) as gate:
        watching = gate.wiring.logwatch
        assert watching is not None
        await until(lambda: watching.problem is None)
        file.write_text(CUT)
        await until(cut(watching, 1))
        told = (await ask(gate.address, "GET", "/gate/status")).json["log"]
        metrics = (await ask(gate.address, "GET", "/gate/metrics")).body.decode()
    assert told["counts"]["truncated"] == 1
    assert told["last"]["truncated"]["prompt"] == "256"
    assert ollama.url in told["alert"]
    assert 'ollama_gate_ollama_log_total{event="truncated"} 1.0' in metrics


@given(st.lists(st.binary(max_size=40)))
def test_lines_come_out_as_they_went_in(parts: list[bytes]) -> None:
    lines = Lines()
    out = [line for part in parts for line in lines.feed(part)]
    assert out == [line.decode("utf-8", "replace") for line in b"".join(parts).split(b"\n")[:-1]]


def test_a_line_without_end_takes_no_memory() -> None:
    lines = Lines()
    out = [line for _ in range(100) for line in lines.feed(b"x" * 50_000)]
    assert [len(line) for line in out] == [100_000]
    assert lines.feed(b"end\nnext\n") == ["next"]
