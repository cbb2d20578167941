"""Compressed bodies, which coding agents send above a size (ollama#12386, agentgateway#2402, mlflow#24573)."""

import gzip
import json
import zlib
from collections.abc import Callable

import pytest
import zstandard

from support.cases import case, front, raw_case

RAW = raw_case("24-compressed-body")
CHAT = case("24-compressed-body")
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_it_is_decoded_counted_and_sent_on_plain(path: str) -> None:
    async with front() as line:
        await line.count("/api/chat", RAW)
        plain = await line.ask(path, RAW)
        for coding, pack in CODINGS.items():
            reply = await line.ask(path, pack(RAW), headers={"Content-Encoding": coding})
            got = line.got()[-1]
            assert reply.status == 200, (coding, reply.body)
            assert reply.gate("prompt-tokens") == plain.gate("prompt-tokens")
            assert got.header("Content-Encoding") is None
            assert got.json()["messages"] == CHAT["messages"]
            assert got.header("Content-Length") == str(got.size)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/v1/chat/completions", "/v1/messages", "/gate/count"])
async def test_a_charset_named_as_a_coding_is_read_as_ollama_reads_it(path: str) -> None:
    body = {**CHAT, "prompt": "hi", "max_tokens": 5}
    async with front() as line:
        reply = await line.ask(path, body, headers={"Content-Encoding": "utf-8"})
    assert reply.status == 200, reply.body


async def test_an_overlong_prompt_is_found_inside_a_compressed_body() -> None:
    async with front(window=256) as line:
        for coding, pack in CODINGS.items():
            reply = await line.ask("/api/chat", pack(RAW), headers={"Content-Encoding": coding})
            assert (reply.status, reply.json["code"]) == (400, "context_length_exceeded")
        line.assert_refused("/api/chat", times=3)


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_what_cannot_be_decoded_is_refused_with_its_reason(path: str) -> None:
    small = {"max_body": "1MiB"}
    bomb = json.dumps({**CHAT, "messages": [{"role": "user", "content": "a" * 20_000_000}]}).encode()
    async with front(server=small) as line:
        for body, coding, status in (
            (RAW, "br", 415),
            (RAW, "gzip, gzip, gzip", 400),
            (gzip.compress(RAW)[:-20], "gzip", 400),
            (zlib.compress(RAW)[:200], "deflate", 400),
            (zstandard.compress(RAW)[:200], "zstd", 400),
            (RAW, "gzip", 400),
            (gzip.compress(bomb), "gzip", 413),
            (zlib.compress(bomb), "deflate", 413),
            (zstandard.compress(bomb), "zstd", 413),
        ):
            reply = await line.ask(path, body, headers={"Content-Encoding": coding})
            assert reply.status == status, (coding, len(body), reply.body)
            assert (reply.header("Content-Type") or "").startswith("application/json")
            assert reply.json["error"]
        got = line.got()
    assert not got
    assert len(gzip.compress(bomb)) < 1 << 20
