"""One question to a server that answers anything but what was asked for ends in an error that says so."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from ollama_gate.cli import NoAnswer
from ollama_gate.cli.ask import ask

HEAD = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
OK, OOPS = HEAD % b"200 OK", HEAD % b"500 Internal Server Error"


@contextmanager
def server(*pieces: bytes, stays: bool = False) -> Iterator[str]:
    """One that answers a single connection with these bytes, a tenth of a second apart, and closes it or stays."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                    over.wait(0.1 if len(pieces) > 1 else 0)
                if stays:
                    over.wait(10)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/api/version"
        over.set()
        thread.join()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.0\r\n", id="another protocol"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{", id="half a chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{", id="a chunk without a length"),
        pytest.param(OOPS + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{", id="half a chunk of an error"),
        pytest.param(OK + b"Content-Length: 100\r\n\r\n{", id="half a body"),
        pytest.param(OK + b"x: " + b"x" * 70_000 + b"\r\n\r\n{}", id="an endless header"),
        pytest.param(OK + b"x: y\r\n" * 200 + b"\r\n{}", id="too many headers"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_command(said: bytes) -> None:
    with server(said) as url, pytest.raises(NoAnswer, match=url):
        ask(url)


@pytest.mark.parametrize("head", [OK, OOPS], ids=["an answer", "an error"])
def test_a_body_that_does_not_come_is_not_waited_for(head: bytes) -> None:
    with server(head + b"Content-Length: 100\r\n\r\n", stays=True) as url, pytest.raises(NoAnswer, match="timed out"):
        ask(url, within=0.2)


def test_a_body_that_comes_byte_by_byte_is_not_waited_for() -> None:
    pieces = (OK + b"Content-Length: 100\r\n\r\n", *[b" "] * 100)
    with server(*pieces) as url, pytest.raises(NoAnswer, match="too long"):
        ask(url, within=0.2)


def test_an_error_with_json_is_an_answer() -> None:
    with server(OOPS + b'Content-Length: 14\r\n\r\n{"error":"no"}') as url:
        assert ask(url) == (500, {"error": "no"})
