"""A body that is poured: each run of bytes is with its reader in the read that brings it, but for the last."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from unittest.mock import Mock

import pytest

from ollama_gate.errors import UpstreamBroken
from ollama_gate.tasks import spawn
from ollama_gate.upstream.connection import Answer, Connection

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Line:
    """A connection on which a test plays Ollama, and the answer that comes over it."""

    def __init__(self, *first: bytes) -> None:
        self.transport = Mock()
        self.connection = Connection(600.0)
        self.connection.connection_made(self.transport)
        self.connection.start(b"", None, bodiless=False)
        self.connection.data_received(HEAD + b"".join(map(chunk, first)))
        head = self.connection.reader.head
        assert head is not None
        self.answer = Answer(head, self.connection, Mock())

    def come(self, *data: bytes, last: bool = False) -> None:
        self.connection.data_received(b"".join(map(chunk, data)) + (LAST if last else b""))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_comes_is_poured_in_the_read_that_brings_it() -> None:
    line, got = Line(b"there already"), list[bytes]()
    pouring = spawn(line.answer.pour(got.append), name="pour")
    await turns()
    assert got == [b"there already"]
    line.come(b"one")
    line.come(b"two", b"three")
    assert got == [b"there already", b"one", b"twothree"]  # and no turn of the loop has passed
    line.come(b"the last", last=True)
    assert await pouring == b"the last"
    assert got == [b"there already", b"one", b"twothree"]
    assert line.answer.done


async def test_an_answer_that_is_all_there_is_its_own_last_run() -> None:
    line, got = Line(), list[bytes]()
    line.come(b"all", last=True)
    assert await line.answer.pour(got.append) == b"all"
    assert not got


async def test_an_end_without_anything_is_nothing() -> None:
    line, got = Line(b"one"), list[bytes]()
    pouring = spawn(line.answer.pour(got.append), name="pour")
    await turns()
    line.come(last=True)
    assert (await pouring, got) == (b"", [b"one"])


async def test_a_sink_that_is_full_gets_nothing_until_it_has_room() -> None:
    line, got, room = Line(), list[bytes](), asyncio.Event()

    def sink(data: bytes) -> asyncio.Task[None] | None:
        got.append(data)
        return spawn(_until(room), name="room") if data == b"full" else None

    pouring = spawn(line.answer.pour(sink), name="pour")
    await turns()
    line.come(b"full")
    line.come(b"kept")
    await turns()
    line.come(b"kept too")
    await turns()
    assert got == [b"full"]
    room.set()
    await turns()
    assert got == [b"full", b"keptkept too"]
    line.come(b"poured again")
    assert got[2:] == [b"poured again"]
    line.come(last=True)
    assert await pouring == b""


async def _until(event: asyncio.Event) -> None:
    await event.wait()


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_a_sink_raises_is_raised_where_it_is_poured_from(*, at_once: bool) -> None:
    line = Line(b"first") if at_once else Line()

    def sink(_: bytes) -> None:
        raise ConnectionResetError("the client has gone")

    pouring = spawn(line.answer.pour(sink), name="pour", quiet=True)
    await turns()
    if not at_once:
        line.come(b"first")
    with pytest.raises(ConnectionResetError, match="the client has gone"):
        await pouring
    line.come(b"more")  # stays where it is
    assert line.answer.take() == b"more"


@pytest.mark.parametrize(
    "end",
    [
        lambda line: line.connection.connection_lost(None),
        lambda line: line.connection.connection_lost(ConnectionResetError()),
        lambda line: line.connection.data_received(b"no chunk at all\r\n"),
    ],
)
async def test_what_came_before_an_answer_broke_off_is_poured(end: Callable[[Line], None]) -> None:
    line, got = Line(), list[bytes]()
    pouring = spawn(line.answer.pour(got.append), name="pour", quiet=True)
    await turns()
    line.come(b"one")
    end(line)
    with pytest.raises(UpstreamBroken):
        await pouring
    assert got == [b"one"]


async def test_nothing_is_poured_any_more_when_nobody_waits() -> None:
    line, got = Line(), list[bytes]()
    pouring = spawn(line.answer.pour(got.append), name="pour", quiet=True)
    await turns()
    pouring.cancel()
    await turns()
    line.come(b"one")
    assert not got
    line.answer.close()
    line.transport.abort.assert_called_once_with()


async def test_who_leaves_as_the_sink_is_full_leaves_nothing_unwaited_for() -> None:
    line = Line()
    waits: list[Coroutine[None, None, None]] = []

    def sink(_: bytes) -> Coroutine[None, None, None]:
        waits.append(_until(asyncio.Event()))
        return waits[-1]

    pouring = spawn(line.answer.pour(sink), name="pour", quiet=True)
    await turns()
    line.come(b"full")
    pouring.cancel()
    await turns()
    assert pouring.cancelled()
    assert [inspect.getcoroutinestate(one) for one in waits] == [inspect.CORO_CLOSED]


async def test_an_answer_that_was_given_back_has_an_end() -> None:
    line = Line()
    line.answer.close()
    assert await line.answer.pour(Mock()) == b""
