"""The three layers: Ollama's own table, the numbers of the recordings, and that layer C forgets what it should."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from ollama_gate.rehearsal.window import (
    bounded_num_predict,
    context_shift,
    cut_middle,
    first_kept,
    prompt_limit,
    slot_size,
)
from support.rawhttp import exchange
from support.recorded import recording, recordings

GO = Model("rehearsal-go:latest", Mode.GO, "go-chatml", add_bos=True)
NATIVE = Model("rehearsal:latest", add_bos=True)
TEMPLATE = len(GO.vocabulary.encode("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n", special=True))
"""Tokens of the prompt around an empty user message, BOS included; both models write the same."""


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Settings(models=(GO, NATIVE), context_length=2048)) as rehearsal:
        yield rehearsal


@pytest.mark.parametrize(
    ("num_ctx", "keep", "limit"),
    [(8, 3, 6), (4096, 4, 2050), (4096, 5, 2051), (8, 99, 7), (8, -1, 4), (1, 0, 0), (1, 5, 0)],
)
def test_prompt_limit_is_that_of_ollamas_own_table(num_ctx: int, keep: int, limit: int) -> None:
    assert prompt_limit(num_ctx, keep) == limit


def test_ten_tokens_into_eight_lose_their_middle() -> None:
    assert cut_middle(range(10), 8, 3) == [0, 1, 2, 7, 8, 9]


def test_one_token_too_many_throws_half_away() -> None:
    assert len(cut_middle(range(5000), 4096, 4, adds_bos=True)) == 2051


@given(st.integers(2, 5000), st.integers(-1, 6000), st.integers(1, 6000), st.integers(0, 1))
def test_a_cut_prompt_is_its_head_and_its_newest_tokens(num_ctx: int, keep: int, over: int, bos: int) -> None:
    tokens = range(num_ctx - 1 + over)
    cut = cut_middle(tokens, num_ctx, keep, adds_bos=bool(bos))
    head = next((at for at, token in enumerate(cut) if token != at), len(cut))
    assert len(cut) < num_ctx
    assert cut[head:] == list(tokens)[len(tokens) - (len(cut) - head) :]


@pytest.mark.parametrize(("num_ctx", "size"), [(4, 256), (256, 256), (257, 512), (300, 512), (1000, 1024)])
def test_a_slot_is_rounded_up_to_256(num_ctx: int, size: int) -> None:
    assert slot_size(num_ctx) == size


def test_the_recorded_context_shift() -> None:
    # "slot context shift, n_keep = 5, n_left = 250, n_discard = 125", seen with num_ctx 256.
    shift = context_shift(255, 4, adds_bos=True)
    assert (shift.keep, shift.discard) == (5, 125)


@pytest.mark.parametrize(("asked", "bounded"), [(-1, 2560), (7, 7), (0, 0), (2560, 2560), (2561, 2560)])
def test_num_predict_is_bounded_by_ten_windows(asked: int, bounded: int) -> None:
    assert bounded_num_predict(asked, 256) == bounded


def test_message_dropping_keeps_system_messages_and_the_last() -> None:
    roles = ["system", "user", "assistant", "system", "user", "assistant", "user"]
    assert first_kept(roles, lambda kept: len(kept) <= 4) == [0, 3, 5, 6]
    assert first_kept(roles, lambda _: False) == [0, 3, 6]
    assert first_kept(roles, lambda _: True) == list(range(7))


@given(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), min_size=1, max_size=12), st.integers(0, 12))
def test_message_dropping_only_drops_from_the_old_end(roles: list[str], room: int) -> None:
    kept = first_kept(roles, lambda some: len(some) <= room)
    assert kept[-1] == len(roles) - 1
    dropped = set(range(len(roles))) - set(kept)
    assert all(roles[at] != "system" for at in dropped)
    assert dropped == {at for at in range(max(dropped, default=-1) + 1) if roles[at] != "system"}


async def ask(upstream: Rehearsal, model: str, tokens: int, **fields: Any) -> tuple[int, dict[str, Any]]:
    """Chat with a prompt of exactly so many tokens."""
    words = " a" * (tokens - TEMPLATE)
    body = {"model": model, "stream": False, "messages": [{"role": "user", "content": words}], **fields}
    answer = await exchange(upstream.url, "POST", "/api/chat", body=json.dumps(body).encode())
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("name", recordings("edge-*"))
async def test_the_edge_of_the_window_is_where_it_was_recorded(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    asked, (theirs,) = recorded.json(), map(json.loads, recorded.chunks)
    model = "rehearsal" if "native" in name else "rehearsal-go"
    tokens = int(name.removesuffix("-predict-10").rpartition("-")[2])
    fields = {key: asked[key] for key in ("truncate", "shift") if key in asked}
    options = {"num_ctx": 256} | asked.get("options", {})
    status, ours = await ask(upstream, model, tokens, options=options, **fields)
    assert status == recorded.status
    assert ours.get("error") == theirs.get("error")
    for key in ("prompt_eval_count", "eval_count", "done_reason"):
        assert ours.get(key) == theirs.get(key)


async def test_a_long_prompt_is_cut_to_the_recorded_131(upstream: Rehearsal) -> None:
    (theirs,) = map(json.loads, recording("over-chat-default").chunks)
    _, ours = await ask(upstream, "rehearsal-go", 594, options={"num_ctx": 256})
    assert ours["prompt_eval_count"] == theirs["prompt_eval_count"] == 131
    assert any("594 tokens cut to 131" in note for note in upstream.journal[-1].notes)


async def test_the_model_says_what_reached_it(upstream: Rehearsal) -> None:
    content = "The password is swordfish. " + "Nothing of note happened. " * 200 + "What is the password?"
    body = {"model": "rehearsal-go", "stream": False, "options": {"num_ctx": 256, "num_keep": 0}}
    body["messages"] = [{"role": "user", "content": content}]
    answer = await exchange(upstream.url, "POST", "/api/chat", body=json.dumps(body).encode())
    said = json.loads(answer.body)["message"]["content"]
    assert "129 tokens reached it" in said
    assert "swordfish" not in said
    assert "What is the password? assistant" in said


async def test_output_goes_on_past_the_window_by_forgetting(upstream: Rehearsal) -> None:
    options = {"num_ctx": 256, "num_predict": 300, "rehearsal_tokens": 1000}
    _, ours = await ask(upstream, "rehearsal-go", 243, options=options)
    assert (ours["prompt_eval_count"], ours["eval_count"], ours["done_reason"]) == (243, 300, "length")
    # 13 tokens fill the slot; from then on each shift frees (256 - 5) // 2 = 125 cells.
    assert [note for note in upstream.journal[-1].notes if "forgotten" in note] == [
        "shift: 125 tokens forgotten after the first 5"
    ] * 3


async def test_output_ends_with_the_window_without_shift(upstream: Rehearsal) -> None:
    (theirs,) = map(json.loads, recording("predict-beyond-window-shift-false").chunks)
    options = {"num_ctx": 256, "num_predict": 40, "rehearsal_tokens": 1000}
    _, ours = await ask(upstream, "rehearsal-go", 243, options=options, truncate=False, shift=False)
    for key in ("prompt_eval_count", "eval_count", "done_reason"):
        assert ours[key] == theirs[key]


async def test_native_chat_drops_messages_but_never_cuts(upstream: Rehearsal) -> None:
    talk = [{"role": "user", "content": f"message {at} " + "a " * 60} for at in range(8)]
    body = {"model": "rehearsal", "stream": False, "options": {"num_ctx": 256, "num_predict": 2}, "messages": talk}
    answer = await exchange(upstream.url, "POST", "/api/chat", body=json.dumps(body).encode())
    assert answer.status == 200
    assert json.loads(answer.body)["prompt_eval_count"] < 256
    assert "messages dropped" in upstream.journal[-1].notes[-1]
    assert not any("cut" in note for note in upstream.journal[-1].notes)


async def test_a_written_bos_is_not_there_twice(upstream: Rehearsal) -> None:
    counts = []
    for prompt in ("hello", "<bos>hello"):
        body = {"model": "rehearsal-go", "stream": False, "raw": True, "prompt": prompt, "options": {"num_predict": 1}}
        answer = await exchange(upstream.url, "POST", "/api/generate", body=json.dumps(body).encode())
        counts.append(json.loads(answer.body)["prompt_eval_count"])
    assert counts[0] == counts[1]
