"""The process that builds one model's tokenizer and counts with it: `python -m ollama_gate.counting.worker FD [FD…]`.

Building or loading a vocabulary of 262 000 tokens holds the interpreter for seconds, whatever thread it is done in; in
a process of its own it holds nobody. The memory of a tokenizer also goes for good when its process ends, and a text
that is too much for it ends only that process. It talks over sockets it inherits (`channel.py`): the first carries the
job and its outcome, then all of them carry requests, a thread each. When they are closed the process ends.
"""

import contextlib
import ctypes
import gc
import resource
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import orjson

from ollama_gate.catalog import gguf
from ollama_gate.counting import cache
from ollama_gate.counting.channel import Operation, Status, pack_numbers, receive, send, unpack_texts
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.published import load
from ollama_gate.counting.tokenizer import Recipe, Tokenizer, assemble
from ollama_gate.counting.tokenizer import plan as plan_of
from ollama_gate.counting.vocabulary import Vocabulary
from ollama_gate.errors import UnknownVocabulary

Plan = tuple[TokenizerFacts, Recipe]

MEMORY = 4 << 30
"""Bytes of address space, so that a text beyond all measure cannot take the machine's memory."""

BIG = 1 << 20
"""Bytes of text after which memory is given back to the system."""


def main() -> None:
    """Serve until the gate hangs up."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    gc.disable()  # building makes a million objects and no cycles; looking for them takes a tenth of the time
    channels = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    first = channels[0]
    job = _message(first)
    tokenizer, plan, outcome = _tokenizer(first, job)
    send(first, orjson.dumps(outcome))
    if tokenizer is None:
        return
    threads = [Thread(target=_serve, args=(tokenizer, channel)) for channel in channels]
    for thread in threads:
        thread.start()
    if plan is not None and outcome["source"] != "cache":
        # The gate works without it, only slower at the next start.
        with contextlib.suppress(OSError):
            cache.save(Path(job["cache"]), *plan)
    del plan
    _tidy()
    gc.enable()
    for thread in threads:
        thread.join()


def _message(channel: socket.socket) -> dict[str, Any]:
    received = receive(channel)
    if received is None:
        sys.exit(0)
    message: dict[str, Any] = orjson.loads(received)
    return message


def _tokenizer(channel: socket.socket, job: Mapping[str, Any]) -> tuple[Tokenizer | None, Plan | None, dict[str, Any]]:
    """From the cache, else from the blob, else from what `/api/show` says, for which the gate is asked."""
    if job.get("file"):
        try:
            published = load(Path(job["file"]))
        except UnknownVocabulary as error:
            return None, None, {"state": "unknown", "why": str(error)}
        return published, None, {"state": "ready", "source": "file", "facts": published.facts.to_json()}
    plan = cache.load(Path(job["cache"]))
    source = "cache"
    why = "there is no source for it"
    try:
        if plan is None and job["blob"]:
            source = "blob"
            try:
                plan = from_blob(Path(job["blob"]), job["model"])
            except (OSError, gguf.GGUFError) as error:
                why = str(error)
        if plan is None:
            source = "show"
            send(channel, orjson.dumps({"state": "wanted", "why": why}))
            body = receive(channel)
            if not body:
                return None, None, {"state": "failed", "why": why}
            plan = from_show(body, job["model"])
        tokenizer = assemble(*plan)
    except UnknownVocabulary as error:
        return None, None, {"state": "unknown", "why": str(error)}
    return tokenizer, plan, {"state": "ready", "source": source, "facts": tokenizer.facts.to_json()}


def from_blob(path: Path, model_name: str) -> Plan:
    """Read a GGUF file.

    Raises:
        UnknownVocabulary: It cannot be counted exactly.
        GGUFError: It is no GGUF file.
        OSError: It cannot be read.
    """
    found = gguf.read(path)
    shapes = {tensor.name: tensor.shape for tensor in found.tensors}
    return plan_of(Vocabulary.from_metadata(found.metadata, model_name, shapes))


def from_show(body: bytes, model_name: str) -> Plan:
    """Read the body of `POST /api/show {"verbose": true}`.

    Raises:
        UnknownVocabulary: It cannot be counted exactly, or is no such body.
    """
    try:
        shown = orjson.loads(body)
        metadata = shown["model_info"]
        tensors = shown.get("tensors") or ()
        shapes = {tensor["name"]: tuple(tensor["shape"]) for tensor in tensors}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownVocabulary(f"Ollama's description of the model cannot be read: {error!r}") from error
    if not isinstance(metadata, dict):
        raise UnknownVocabulary("Ollama's description of the model holds no metadata")
    return plan_of(Vocabulary.from_metadata(metadata, model_name, shapes))


def _serve(tokenizer: Tokenizer, channel: socket.socket) -> None:
    # Closed whatever happens, a panic of the library's included, so that the gate need not lose its patience.
    with channel, contextlib.suppress(OSError):  # the gate hung up
        while (request := receive(channel)) is not None:
            send(channel, _answer(tokenizer, request))
            if len(request) > BIG:
                _tidy()


def _answer(tokenizer: Tokenizer, request: bytes) -> bytes:
    try:
        operation, texts = unpack_texts(request)
        match operation:
            case Operation.COUNT:
                return pack_numbers(tokenizer.count(texts))
            case Operation.IDS:
                return pack_numbers(tokenizer.ids(texts[0]))
            case Operation.PIECES:
                return bytes([Status.DONE]) + tokenizer.pieces(texts[0])
    except Exception as error:  # noqa: BLE001 - the gate falls back to a lower rung and says why
        return bytes([Status.FAILED]) + repr(error).encode("utf-8", "replace")


def _tidy() -> None:
    """Give memory that building or a big text took back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the gate was killed
        main()
