import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.cli import Unusable, main
from ollama_gate.cli.count import bar, request_body
from support.canned import Canned, canned

COUNT = "/gate/count?detail=1"
ANSWER = {
    "tokens": 3000,
    "at_most": 3000,
    "rung": "exact",
    "budget": 6000,
    "window": 8192,
    "verdict": "admit",
    "parts": {"messages": 2000, "tools": 900, "template": 100, "media": 0},
}


@pytest.fixture
def gate() -> Iterator[Canned]:
    with canned({COUNT: (200, ANSWER)}) as server:
        yield server


def count(gate: Canned, text: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["count", "--gate", gate.url, *arguments], input=text)


def test_a_request_body_is_counted_as_it_is(gate: Canned) -> None:
    body = '{"model": "qwen3", "messages": [{"role": "user", "content": "hi"}]}'
    done = count(gate, body)
    assert done.exit_code == 0
    assert gate.asked == [(COUNT, body.encode())]
    assert "3,000 tokens  exact  admit" in done.stdout
    assert "budget 6,000 of a window of 8,192 tokens" in done.stdout
    for part in ("messages  2,000", "tools       900", "template    100"):
        assert part in done.stdout
    assert "media" not in done.stdout


def test_the_messages_and_tools_that_take_most_are_shown(gate: Canned) -> None:
    messages = [{"role": "user", "tokens": 100 * number} for number in range(12)]
    tools = [{"name": "find", "tokens": 700}, {"name": "[red]add", "tokens": 1200}]
    gate.answers[COUNT] = (200, {**ANSWER, "per_message": messages, "per_tool": tools})
    shown = "\n".join(line.rstrip() for line in count(gate, "text", "-m", "x").stdout.splitlines())
    assert "messages, the 10 of 12 that take most\n" in shown
    assert "messages[1] user" not in shown
    assert "messages[11] user  1,100" in shown
    assert "tools\ntools[0] find        700\ntools[1] [red]add  1,200" in shown


def test_text_is_counted_as_one_user_message(gate: Canned) -> None:
    assert count(gate, '{"name": "a package, not a request"}', "-m", "qwen3").exit_code == 0
    assert json.loads(gate.asked[0][1]) == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": '{"name": "a package, not a request"}'}],
    }


def test_programs_get_the_gates_own_answer(gate: Canned) -> None:
    assert json.loads(count(gate, "text", "-m", "x", "--json").stdout) == ANSWER


def test_a_prompt_that_would_be_refused_is_an_exit_code(gate: Canned) -> None:
    gate.answers[COUNT] = (200, {**ANSWER, "tokens": 9000, "verdict": "refuse"})
    done = count(gate, "text", "-m", "x")
    assert done.exit_code == 1
    assert "9,000 tokens  exact  refuse" in done.stdout


def test_a_count_that_is_not_exact_says_so(gate: Canned) -> None:
    gate.answers[COUNT] = (
        200,
        {**ANSWER, "rung": "bound", "at_most": 4000, "why": "the vocabulary is unknown"},
    )
    done = count(gate, "text", "-m", "x")
    assert "3,000 tokens  bound, at most 4,000  admit" in done.stdout
    assert "not exact because the vocabulary is unknown" in done.stdout


def test_an_input_that_is_too_long_for_an_embedder_is_named(gate: Canned) -> None:
    answer = {"tokens": 310, "inputs": [10, 300, "x"], "limit": 256, "verdict": "refuse"}
    gate.answers[COUNT] = (200, answer)
    done = count(gate, '{"model": "m", "input": ["a", "b"]}')
    assert done.exit_code == 1
    assert "3 inputs, each of at most 256 tokens\ninput[1] has 300 tokens\n" in done.stdout


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ((404, {"error": "model 'x' not found"}), 2, "answers 404: model 'x' not found"),
        ((400, {"error": {"message": "bad body", "type": "t"}}), 2, "answers 400: bad body"),
        ((503, {"error": "Ollama does not answer at http://x"}), 3, "answers 503: Ollama does not answer"),
        ((500, {"error": "an internal error"}), 2, "answers 500: an internal error"),
        ((200, []), 3, "not as ollama-gate does"),
        ((200, b"<html>"), 3, "is not JSON"),
        ((200, {}), 0, ""),
    ],
)
def test_what_cannot_be_counted_is_told(gate: Canned, answer: tuple[int, Any], code: int, message: str) -> None:
    gate.answers[COUNT] = answer
    done = count(gate, "text", "-m", "x")
    assert done.exit_code == code
    assert message in done.stderr


def test_a_body_that_its_fields_do_not_tell_gets_the_option_that_does(gate: Canned) -> None:
    gate.answers[COUNT] = (400, {"error": "messages[0].content must be a string"})
    assert "needs --route" in count(gate, '{"model": "x", "messages": []}').stderr
    gate.answers[f"{COUNT}&route=/api/chat"] = gate.answers[COUNT]
    assert "--route" not in count(gate, '{"model": "x", "messages": []}', "--route", "/api/chat").stderr


def test_text_without_a_model_is_a_question(gate: Canned) -> None:
    done = count(gate, "text")
    assert done.exit_code == 2
    assert "--model" in done.stderr
    assert gate.asked == []


def test_the_model_of_the_command_line_wins() -> None:
    body = request_body(b'{"model": "a", "prompt": "p"}', "b")
    assert json.loads(body) == {"model": "b", "prompt": "p"}


def test_bytes_that_are_no_utf8_are_counted_as_repaired_text() -> None:
    assert json.loads(request_body(b"\xff\xfe", "m"))["messages"][0]["content"] == "\ufffd\ufffd"
    with pytest.raises(Unusable):
        request_body(b"[" * 100_000, None)


@given(
    st.dictionaries(st.sampled_from(["messages", "tools", "template", "media"]), st.integers(0, 10**6)),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
)
def test_the_bar_is_as_long_as_the_window_and_no_longer(parts: dict[str, int], tokens: int, window: int) -> None:
    tokens = sum(parts.values()) or tokens
    line = bar(parts, tokens, max(1, window * 8 // 10), window)
    assert len(line) <= 60
    assert len(line) == 60 or tokens > window
    if tokens >= window:
        assert line.plain.startswith("█" * (60 * window // tokens))


def test_several_files_are_counted_with_a_total(gate: Canned, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_text("text")
    told = count(gate, "", "-m", "x", *map(str, files))
    assert told.exit_code == 0
    assert "6,000 tokens in 2 files" in told.stdout
    as_json = json.loads(count(gate, "", "-m", "x", "--json", *map(str, files)).stdout)
    assert [(one["file"], one["tokens"]) for one in as_json] == [(str(file), 3000) for file in files]


def test_a_route_and_a_key_are_passed_on(gate: Canned) -> None:
    question = "/gate/count?detail=1&route=/v1/messages"
    gate.answers[question] = (200, ANSWER)
    assert count(gate, '{"model": "m", "messages": []}', "--route", "/v1/messages", "--key", "k").exit_code == 0
    assert gate.asked[0][0] == question
    assert gate.authorizations == ["Bearer k"]


def test_a_gate_that_wants_a_key_says_how_to_give_it(gate: Canned) -> None:
    gate.answers[COUNT] = (401, {"error": "a key is needed"})
    done = count(gate, "text", "-m", "x")
    assert done.exit_code == 2
    assert "Say --key KEY, or set OLLAMA_API_KEY" in done.stderr


DONE = {"on": True, "from": 9000, "outcome": "new", "to": 3500, "messages": 40, "messages_after": 21, "whole": 12}


@pytest.mark.parametrize(
    ("compaction", "said"),
    [
        (DONE, "compaction: 9,000 → 3,500 tokens\nof 40 messages 12 stay whole; 21 would be sent"),
        (
            {**DONE, "outcome": "reused", "on": False},
            "by a compaction made before\nof 40 messages 12 stay whole; 21 would be sent\nit is off for this",
        ),
        ({"on": True, "from": 9, "outcome": "not_needed"}, "not needed, it fits the budget"),
        ({"on": True, "from": 9, "outcome": "deadline", "why": "it took 4 s"}, "would not help: it took 4 s"),
    ],
)
def test_what_compaction_would_make_of_it_is_shown(gate: Canned, compaction: dict[str, Any], said: str) -> None:
    gate.answers[f"{COUNT}&compact=1"] = (200, {**ANSWER, "compaction": compaction})
    assert said in count(gate, "text", "-m", "x", "--compact").stdout
