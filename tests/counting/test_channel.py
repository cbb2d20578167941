"""Frames between the gate and a tokenizer's process."""

import socket
from collections.abc import Iterator
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.counting.channel import (
    HEAD,
    MAX_FRAME,
    Operation,
    pack_numbers,
    pack_texts,
    receive,
    send,
    unpack_numbers,
    unpack_texts,
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("payload", [b"", b"x", bytes(300_000)])
def test_a_frame_arrives_as_it_was_sent(ends: tuple[socket.socket, socket.socket], payload: bytes) -> None:
    ours, theirs = ends
    sending = Thread(target=send, args=(ours, payload))
    sending.start()
    assert receive(theirs) == payload
    sending.join()


class TakesTheHeadAndGoes:
    """A socket whose other end has all it needs of an empty frame once it has read the length."""

    def __init__(self) -> None:
        self.sent = b""

    def sendall(self, data: bytes) -> None:
        if self.sent:
            raise BrokenPipeError
        self.sent += data


def test_of_an_empty_frame_nothing_follows_its_length() -> None:
    channel = TakesTheHeadAndGoes()
    send(channel, b"")  # type: ignore[arg-type]
    assert channel.sent == HEAD.pack(0)


def test_the_end_between_frames_is_no_error_and_inside_one_it_is(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ours.sendall(HEAD.pack(10) + b"short")
    ours.close()
    with pytest.raises(ConnectionResetError, match="inside a frame"):
        receive(theirs)
    assert receive(theirs) is None


def test_a_length_beyond_all_measure_is_not_believed(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ours.sendall(HEAD.pack(MAX_FRAME + 1))
    with pytest.raises(OSError, match="announced"):
        receive(theirs)


@given(st.sampled_from(Operation), st.lists(st.text(st.characters(exclude_categories=()))))
def test_texts_survive_whatever_characters_they_hold(operation: Operation, texts: list[str]) -> None:
    assert unpack_texts(pack_texts(operation, texts)) == (operation, texts)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_numbers_survive(numbers: list[int]) -> None:
    assert unpack_numbers(pack_numbers(numbers)[1:]) == numbers
