import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.errors import UpstreamBroken
from ollama_gate.wire.ndjson import LineSplitter, StreamEnd, TailObserver, end_of

RECORDED = Path(__file__).parent.parent / "data" / "wire"
KEPT = 64 * 1024


def recorded_chunks(name: str) -> list[bytes]:
    response = json.loads((RECORDED / f"{name}.json").read_text())["response"]
    return [chunk.encode() for chunk in response["chunks"]]


def observed(runs: list[bytes]) -> StreamEnd:
    observer = TailObserver()
    for run in runs:
        observer.feed(run)
    return observer.end()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


# --- lines


@given(st.lists(st.binary(max_size=12)), st.lists(st.integers(0, 400)))
def test_lines_are_the_same_however_the_bytes_come(lines: list[bytes], places: list[int]) -> None:
    data = b"\n".join(lines)
    splitter = LineSplitter()
    got = [line for run in cut(data, places) for line in splitter.feed(run)]
    *whole, rest = data.split(b"\n")
    assert got == [line for line in whole if line]
    assert splitter.end() == rest
    assert splitter.end() == b""


def test_every_line_of_a_recorded_stream_is_found() -> None:
    chunks = recorded_chunks("native-chat-stream")
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert len(lines) == len(chunks)
    assert [orjson.loads(line)["done"] for line in lines] == [False] * (len(lines) - 1) + [True]


@pytest.mark.parametrize(
    "runs", [[b"x" * 101], [b"x" * 60, b"x" * 41], [b"x" * 60, b"x" * 41 + b"\n"], [b"x" * 101 + b"\n"]]
)
def test_a_line_without_an_end_is_not_held_for_ever(runs: list[bytes]) -> None:
    splitter = LineSplitter(most_line_bytes=100)
    for run in runs[:-1]:
        splitter.feed(run)
    with pytest.raises(UpstreamBroken):
        splitter.feed(runs[-1])


def test_a_line_of_just_the_limit_passes() -> None:
    assert LineSplitter(most_line_bytes=100).feed(b"x" * 100 + b"\n" + b"y" * 100 + b"\n") == [b"x" * 100, b"y" * 100]


# --- the end of recorded answers


def test_the_final_counts_of_a_stream_are_read() -> None:
    chunks = recorded_chunks("native-chat-stream")
    last = json.loads(chunks[-1])
    assert observed(chunks) == StreamEnd(
        done=True,
        done_reason=last["done_reason"],
        prompt_eval_count=last["prompt_eval_count"],
        eval_count=last["eval_count"],
        lines=len(chunks),
    )


@pytest.mark.parametrize(
    ("name", "reason", "prompt", "output"),
    [
        ("native-chat-nonstream", "length", 11, 6),
        ("native-generate-nonstream", "length", 15, 6),
        ("native-generate-logprobs", "length", 10, 1),
        ("native-chat-load", "load", None, None),
        ("native-chat-unload", "unload", None, None),
        ("native-embed-batch", None, 9, None),
        ("native-embeddings", None, None, None),
    ],
)
def test_the_end_of_a_whole_answer_is_read(
    name: str, reason: str | None, prompt: int | None, output: int | None
) -> None:
    end = observed(recorded_chunks(name))
    assert (end.done_reason, end.prompt_eval_count, end.eval_count) == (reason, prompt, output)
    assert (end.done, end.lines, end.error) == (reason is not None, 1, None)


def test_an_error_line_in_a_stream_is_read_and_the_stream_is_not_done() -> None:
    chunks = recorded_chunks("dies-native-chat-stream")
    end = observed(chunks)
    assert end.error == json.loads(chunks[-1])["error"]
    assert not end.done
    assert end.lines == len(chunks)


def test_an_error_that_is_the_whole_body_is_read() -> None:
    end = observed(recorded_chunks("busy-native-chat"))
    assert end.error is not None
    assert "server busy" in end.error
    assert observed([b'{"error":{"code":400}}']).error == '{"code":400}'
    assert observed([b'{"error":{"code":400,"message":"no"}}']).error == "no"


@pytest.mark.parametrize("data", [b"", b"\n", b"Ollama is running", b"[1]\n", b"null", b'{"done":true,"eval_count":'])
def test_what_is_no_answer_says_nothing(data: bytes) -> None:
    assert observed([data]) == StreamEnd(lines=int(bool(data.strip()) or data == b"\n"))


def test_a_stream_that_breaks_off_is_not_done() -> None:
    chunks = recorded_chunks("native-chat-stream")
    assert observed(chunks[:-1]) == StreamEnd(lines=len(chunks) - 1)
    assert observed([*chunks[:-1], chunks[-1][:-20]]) == StreamEnd(lines=len(chunks))


def test_counts_of_another_type_are_not_taken() -> None:
    assert observed(
        [b'{"done":1,"done_reason":7,"eval_count":"9","prompt_eval_count":true,"error":null}']
    ) == StreamEnd(lines=1)


# --- lines longer than what is kept


def long_answers() -> Iterator[tuple[str, dict[str, Any]]]:
    final = {
        "total_duration": 5,
        "load_duration": 4,
        "prompt_eval_count": 3,
        "prompt_eval_duration": 2,
        "eval_count": 1,
    }
    head = {
        "model": "m",
        "response": 'say "done":false and "eval_count":77, ' * 3000,
        "done": True,
        "done_reason": "stop",
    }
    yield "context after the reason", {**head, "context": list(range(100_000)), **final}
    yield "logprobs after the counts", {**head, **final, "logprobs": [{"token": "x", "logprob": -1.5}] * 20_000}
    yield "embeddings", {"model": "m", "embeddings": [[0.25] * 384] * 100, "total_duration": 5, "prompt_eval_count": 3}
    yield (
        "a long chunk that is not the end",
        {"message": {"content": "x" * 300_000, "a": {"done": True}}, "done": False},
    )


LONG = dict(long_answers())


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("size", [1000, 4096, 65_537, 10_000_000])
def test_a_line_longer_than_what_is_kept_is_read_all_the_same(name: str, size: int) -> None:
    answer = LONG[name]
    data = b'{"done":false,"eval_count":99}\n' * 3 + orjson.dumps(answer) + b"\n"
    end = observed([data[start : start + size] for start in range(0, len(data), size)])
    assert end == StreamEnd(
        done=answer.get("done", False),
        done_reason=answer.get("done_reason"),
        lines=4,
        **{key: answer[key] for key in answer if key.endswith("_count")},
    )


@pytest.mark.parametrize("name", LONG)
def test_a_long_line_that_breaks_off_is_not_done(name: str) -> None:
    data = orjson.dumps(LONG[name])
    assert observed([data[:-1]]) == StreamEnd(lines=1)


def test_little_is_kept_of_a_long_answer() -> None:
    observer = TailObserver()
    for _ in range(1000):
        observer.feed(b"x" * 5000)
        assert len(observer._tail) <= 2 * KEPT


TOKEN = b'{"message":{"content":"tok"},"done":false}\n'
ENDS = st.sampled_from(
    [
        b'{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":1}\n',
        b'{"done":true,"done_reason":"length","context":[%s],"eval_count":12}\n' % b",".join([b"12345"] * 300),
        b'{"error":"an error was encountered"}\n',
        b'{"done":true,"eval_count":12',
        b"",
    ]
)


@given(st.integers(0, 12), ENDS, st.lists(st.integers(0, 3000), max_size=40))
def test_the_end_is_the_same_however_the_bytes_come(tokens: int, end: bytes, places: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ollama_gate.wire.ndjson._KEEP", 300)
        data = TOKEN * tokens + end
        runs = cut(data, places)
        whole = observed([data])
        assert observed(runs) == whole
        assert whole.lines == tokens + bool(end)
        assert whole.eval_count == {b"stop": 1, b"length": 12}.get(end[28:32] if b"stop" in end else end[28:34])


@pytest.mark.parametrize("count", [-1, -50_000, 1 << 31, 10**18, True, 2.5, "7", None])
def test_what_is_no_count_of_tokens_is_not_taken_for_one(count: object) -> None:
    observer = TailObserver()
    observer.feed(json.dumps({"done": True, "prompt_eval_count": count, "eval_count": count}).encode())
    end = observer.end()
    assert (end.done, end.prompt_eval_count, end.eval_count) == (True, None, None)


@given(
    st.lists(
        st.sampled_from(
            [
                b'{"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":2}',
                b'{"error":"no"}',
                b'{"embeddings":[[' + b",".join([b"0.125"] * (KEPT // 2)) + b'],[1]],"prompt_eval_count":3}',
                b'{"done":tr',
                b"[1]",
                b"\n",
                b"\r\n",
                b" ",
                b"\xff",
            ]
        ),
        max_size=5,
    ).map(b"".join)
)
def test_an_answer_in_one_piece_says_what_it_says_in_passing(answer: bytes) -> None:
    assert end_of(answer) == observed([answer])
