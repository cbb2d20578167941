import base64
import contextlib
import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.errors import Refusal, Refused
from ollama_gate.wire.encoding import decode_content

RECORDED = Path(__file__).parent.parent / "data" / "wire"
TEXT = (
    b'{"model":"llama3.2:1b","messages":[{"role":"user","content":"' + b"This body is sent compressed. " * 90 + b'"}]}'
)
LIMIT = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def zstd_without_size(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def zstd_run_length_frame(blocks: int) -> bytes:
    """A valid frame in which every 4 bytes stand for 128 KiB."""
    header = b"\x28\xb5\x2f\xfd\x00" + bytes([(20 - 10) << 3])
    return header + b"".join(
        (131072 << 3 | 1 << 1 | (number == blocks - 1)).to_bytes(3, "little") + b"x" for number in range(blocks)
    )


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "zstd": zstd,
    "ZSTD": zstd_without_size,
}


def refusal_of(raw: bytes, coding: str | None, limit: int = LIMIT) -> Refusal:
    with pytest.raises(Refused) as caught:
        decode_content(raw, coding, limit)
    return caught.value.refusal


@pytest.mark.parametrize("coding", [None, "", "identity", " Identity ", "utf-8", "UTF8"])
def test_a_plain_body_is_returned_as_it_is(coding: str | None) -> None:
    assert decode_content(TEXT, coding, LIMIT) is TEXT


@pytest.mark.parametrize("coding", ENCODERS)
def test_each_coding_is_undone(coding: str) -> None:
    assert decode_content(ENCODERS[coding](TEXT), coding, LIMIT) == TEXT


def test_codings_are_undone_from_the_last_to_the_first() -> None:
    assert decode_content(zstd(gzip.compress(TEXT)), "GZIP, identity , zstd", LIMIT) == TEXT


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_several_members_are_one_body(coding: str, pack: Callable[[bytes], bytes]) -> None:
    parts = [TEXT[:100], b"", TEXT[100:]]
    assert decode_content(b"".join(pack(part) for part in parts), coding, LIMIT) == TEXT


def test_a_skippable_zstd_frame_holds_nothing() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    assert decode_content(skippable + zstd(TEXT), "zstd", LIMIT) == TEXT


def recorded_body(name: str) -> bytes:
    recording = json.loads((RECORDED / f"{name}.json").read_text())
    return base64.b64decode(recording["request"]["body_base64"])


def test_the_compressed_body_that_a_real_ollama_answered_is_read() -> None:
    body = json.loads(decode_content(recorded_body("http-zstd-v1"), "zstd", LIMIT))
    assert body["model"] == "gemma3:270m"
    assert body["messages"] == [{"role": "user", "content": "Say hi"}]


def test_the_compressed_body_that_a_real_ollama_refused_is_refused() -> None:
    refusal = refusal_of(recorded_body("http-zstd-v1-corrupt"), "zstd")
    assert (refusal.status, refusal.code) == (400, "invalid_body")


@pytest.mark.parametrize("coding", ["br", "compress", "gzip, br", "aws-chunked", "zstd;q=1", "*"])
def test_an_unknown_coding_is_refused_and_the_known_ones_are_named(coding: str) -> None:
    refusal = refusal_of(TEXT, coding)
    assert (refusal.status, refusal.code) == (415, "unsupported_encoding")
    assert refusal.headers["Accept-Encoding"] == "zstd, gzip, deflate"


def test_a_tower_of_codings_is_refused_unopened() -> None:
    refusal = refusal_of(b"not even gzip", "gzip, gzip, gzip, gzip")
    assert (refusal.status, refusal.code) == (415, "unsupported_encoding")


@pytest.mark.parametrize("coding", ENCODERS)
@pytest.mark.parametrize("damage", ["cut", "flipped", "followed", "empty", "plain"])
def test_a_broken_stream_is_refused(coding: str, damage: str) -> None:
    packed = ENCODERS[coding](TEXT)
    broken = {
        "cut": packed[:-1],
        "flipped": packed[:12] + bytes([packed[12] ^ 0xFF]) + packed[13:],
        "followed": packed + b"\x07{}",
        "empty": b"",
        "plain": TEXT,
    }[damage]
    if damage == "cut" and coding == "Deflate":
        broken = packed[:-8]  # a bare stream has no checksum; its last byte may be padding
    refusal = refusal_of(broken, coding)
    assert (refusal.status, refusal.code) == (400, "invalid_body")
    assert coding.lower().removeprefix("x-") in refusal.message


def test_a_zstd_window_beyond_the_standard_is_refused() -> None:
    huge = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=huge).compressobj()
    assert refusal_of(stream.compress(b"a") + stream.flush(), "zstd").code == "invalid_body"


@pytest.mark.parametrize("coding", [None, *ENCODERS])
def test_the_limit_is_on_the_decoded_size_and_exact(coding: str | None) -> None:
    packed = TEXT if coding is None else ENCODERS[coding](TEXT)
    assert decode_content(packed, coding, len(TEXT)) == TEXT
    refusal = refusal_of(packed, coding, len(TEXT) - 1)
    assert (refusal.status, refusal.code) == (413, "body_too_large")
    assert refusal.details == {"limit_bytes": len(TEXT) - 1}
    assert refusal.headers == {"x-should-retry": "false"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        ("gzip", lambda: gzip.compress(bytes(64 << 20))),
        ("deflate", lambda: zlib.compress(bytes(64 << 20))),
        ("zstd", lambda: zstd_run_length_frame(100_000)),
        ("gzip, gzip", lambda: gzip.compress(gzip.compress(bytes(64 << 20)))),
    ],
    ids=["gzip", "deflate", "zstd", "gzip-twice"],
)
def test_a_bomb_is_stopped_at_the_limit(coding: str, bomb: Callable[[], bytes]) -> None:
    packed = bomb()
    tracemalloc.start()
    refusal = refusal_of(packed, coding)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (refusal.status, refusal.code) == (413, "body_too_large")
    assert peak < LIMIT + (40 << 20)


@pytest.mark.parametrize(("coding", "empty"), [("gzip", gzip.compress(b"")), ("zstd", zstd(b""))], ids=["gzip", "zstd"])
def test_a_body_of_empty_members_is_refused(coding: str, empty: bytes) -> None:
    assert refusal_of(empty * 1025, coding).code == "invalid_body"


@given(st.sampled_from(sorted(ENCODERS)), st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_any_bytes_survive(coding: str, parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert decode_content(ENCODERS[coding](data), coding, LIMIT) == data


@given(st.sampled_from(sorted(ENCODERS)), st.binary(max_size=200))
def test_noise_is_decoded_or_refused_and_nothing_else(coding: str, noise: bytes) -> None:
    with contextlib.suppress(Refused):
        assert len(decode_content(noise, coding, LIMIT)) <= LIMIT


def test_large_incompressible_bodies_pass() -> None:
    data = random.Random(7).randbytes(3 << 20)
    for coding in ("gzip", "deflate", "zstd"):
        assert decode_content(ENCODERS[coding](data), coding, 4 << 20) == data
