"""The worker as a process: killed, hung, out of memory, talking nonsense; and a new one each time."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from ollama_gate.compaction.process import MAX_FRAME, WorkerFailed, WorkerProcess
from ollama_gate.compaction.terms import Terms
from ollama_gate.counting.channel import HEAD
from support import long_talks
from support.random_talks import count

MEMORY = 512 << 20


@pytest.fixture
async def worker() -> AsyncIterator[WorkerProcess]:
    process = WorkerProcess(MEMORY)
    yield process
    await process.close()


def job(messages: list[dict[str, Any]] | None = None, target: float = 900) -> bytes:
    talk = long_talks.long_talk(20, 60) if messages is None else messages
    terms = Terms(target, 2 * target).to_json()
    return orjson.dumps({"messages": talk, "terms": terms, "meanings": False, "target": target})


async def answer(asked: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"tokens": count(asked["count"])})


def process_of(worker: WorkerProcess) -> "subprocess.Popen[bytes]":
    assert worker.process is not None
    return worker.process


async def test_a_job_gets_a_plan_and_may_be_asked_for_again(worker: WorkerProcess) -> None:
    told = await worker.ask(job(target=1500), answer)
    assert orjson.loads(told["plan"])["kept"]
    less = await worker.ask(orjson.dumps({"target": 1000}), answer)
    assert less["tokens"] <= 1000 < told["tokens"] <= 1500
    assert worker.starts == 1


async def test_what_does_not_fit_is_said(worker: WorkerProcess) -> None:
    told = await worker.ask(job([{"role": "user", "content": "x" * 9000}]), answer)
    assert told["outcome"] == "does_not_fit"


@pytest.mark.slow
async def test_a_killed_one_is_followed_by_another(worker: WorkerProcess) -> None:
    await worker.ask(job(), answer)
    assert worker.process is not None
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    assert (await worker.ask(job(), answer))["tokens"] <= 900
    assert worker.starts == 2


async def test_one_that_is_killed_at_work_fails_its_job_only(worker: WorkerProcess) -> None:
    async def kill(asked: Mapping[str, Any]) -> bytes:
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
        return await answer(asked)

    with pytest.raises(WorkerFailed, match="its process ended"):
        await worker.ask(job(), kill)
    assert (await worker.ask(job(), answer))["tokens"] <= 900


@pytest.mark.slow
async def test_one_that_hangs_is_ended_by_the_deadline(worker: WorkerProcess) -> None:
    await worker.ask(job(), answer)
    hung = process_of(worker)
    os.kill(hung.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await worker.ask(job(), answer)
    await worker.close()
    assert hung.poll() == -signal.SIGKILL
    assert (await worker.ask(job(), answer))["tokens"] <= 900


@pytest.mark.slow
async def test_memory_is_limited() -> None:
    worker = WorkerProcess(160 << 20)
    try:
        many = [{"role": "user", "content": "x"}] * 1_500_000
        try:
            told = await worker.ask(job(many), answer)
        except WorkerFailed:
            told = {"outcome": "memory"}  # it could not even say so
        assert told["outcome"] == "memory"
        assert (await worker.ask(job(), answer))["tokens"] <= 900
    finally:
        await worker.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": 7, "content": "x"}],
        [{"role": "user", "content": ["parts"]}],
        [None],
        "no list",
        [{"role": "assistant", "tool_calls": "x"}, {"role": "tool", "tool_call_id": 5, "content": "x"}],
    ],
)
async def test_messages_of_the_wrong_shape_end_no_process(worker: WorkerProcess, messages: Any) -> None:
    told = await worker.ask(job(messages), answer)
    assert "plan" in told or told["outcome"] == "failed"
    assert (await worker.ask(job(), answer))["tokens"] <= 900
    assert worker.starts == 1


NONSENSE = """
import socket, sys, time
with socket.socket(fileno=int(sys.argv[1])) as channel:
    channel.sendall(bytes.fromhex(HEX))
    channel.recv(1)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (HEAD.pack(7) + b"no json", "no JSON"),
        (HEAD.pack(2) + b"[]", "no object"),
        (HEAD.pack(MAX_FRAME + 1), "announced"),
        (HEAD.pack(10) + b"{", "its process ended"),
    ],
)
async def test_nonsense_from_it_ends_it(said: bytes, why: str) -> None:
    program = NONSENSE.replace("HEX", repr(said.hex()))
    if why == "its process ended":
        program = program.replace("time.sleep(60)", "")
    worker = WorkerProcess(MEMORY, ("-c", program))
    with pytest.raises(WorkerFailed, match=why):
        await worker.ask(job(), answer)
    assert worker.process is None
    await worker.close()


async def test_a_new_one_that_goes_at_once_is_not_tried_again() -> None:
    program = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).close()"
    worker = WorkerProcess(MEMORY, ("-c", program))
    with pytest.raises(WorkerFailed):
        await worker.ask(job(), answer)
    assert worker.starts == 1
    await worker.close()


async def test_a_program_that_cannot_be_started_fails() -> None:
    worker = WorkerProcess(MEMORY, ("-m", "ollama_gate.no_such_module"))
    with pytest.raises(WorkerFailed, match="its process ended"):
        await worker.ask(job(), answer)
    await worker.close()


async def test_one_that_nobody_waits_for_any_more_is_given_no_channel_of_somebody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of a channel that was closed may be another connection's by the time that the process starts."""
    begun, go, started, open_still = threading.Event(), threading.Event(), threading.Event(), list[bool]()

    def slowly(*_: Any, pass_fds: list[int], **__: Any) -> None:
        begun.set()
        go.wait()
        with contextlib.suppress(OSError):
            open_still.append(stat.S_ISSOCK(os.fstat(pass_fds[0]).st_mode))
        started.set()

    monkeypatch.setattr(subprocess, "Popen", slowly)
    worker = WorkerProcess(MEMORY)
    asking = asyncio.ensure_future(worker.ask(job(), answer))
    await asyncio.to_thread(begun.wait)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go.set()
    await asyncio.to_thread(started.wait)
    assert open_still == [True]
