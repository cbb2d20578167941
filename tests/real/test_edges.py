"""The end of the window, token by token: what Ollama does with it, and what the gate lets it do."""

import pytest

from ollama_gate.app import Gate
from support.gate import metric
from support.http import ask
from support.real import SUITE, direct, gate_before, needed

pytestmark = SUITE
WINDOW = 256
MODELS = ("gemma3:270m", "gate-native", "gate-r-qwen3.5")
"""One that a Go template renders, one that the GGUF's own template does, one that a renderer does."""
RUN = {"num_predict": 2, "temperature": 0, "seed": 1}


def _of(words: int, model: str) -> dict[str, object]:
    return {"model": model, "stream": False, "messages": [{"role": "user", "content": ("a " * words)[:-1]}]}


async def _words_for(tokens: int, gate: Gate, model: str) -> int:
    """How many words make a prompt of so many tokens, by the gate's own count."""
    few = (await ask(gate.address, "POST", "/gate/count", _of(8, model))).json
    words: int = 8 + tokens - few["tokens"]
    told = (await ask(gate.address, "POST", "/gate/count", _of(words, model))).json
    assert (told["tokens"], told["rung"]) == (tokens, "exact")
    return words


@pytest.mark.parametrize("model", MODELS)
async def test_the_last_token_that_fits_passes_and_the_next_one_is_refused_by_the_gate(model: str) -> None:
    await needed(model)
    async with gate_before(model, WINDOW, refusals={"grace": False}) as gate:
        words = await _words_for(WINDOW - 1, gate, model)
        fits = await ask(gate.address, "POST", "/api/chat", {**_of(words, model), "options": RUN})
        assert fits.status == 200
        assert fits.json["prompt_eval_count"] == WINDOW - 1
        assert (fits.json["eval_count"], fits.json["done_reason"]) == (1, "length")
        for more in (1, 2):
            over = await ask(gate.address, "POST", "/api/chat", {**_of(words + more, model), "options": RUN})
            assert (over.status, over.reason) == (400, "Context Length Exceeded")
            assert over.json["details"]["prompt_tokens"] == WINDOW - 1 + more
            assert over.json["details"]["rung"] == "exact"
        assert metric(gate, "refusals_total", route="/api/chat", code="context_length_exceeded") == 2


@pytest.mark.parametrize("model", MODELS)
async def test_ollama_draws_the_line_at_the_same_token_and_counts_the_same(model: str) -> None:
    await needed(model)
    async with gate_before(model, WINDOW) as gate:
        words = await _words_for(WINDOW - 1, gate, model)
    strict = {"truncate": False, "shift": False, "options": {**RUN, "num_ctx": WINDOW}}
    fits = await direct("POST", "/api/chat", {**_of(words, model), **strict})
    assert (fits.status, fits.json["prompt_eval_count"]) == (200, WINDOW - 1)
    for more in (1, 2):
        over = await direct("POST", "/api/chat", {**_of(words + more, model), **strict})
        assert over.status == 400
        assert f'"n_prompt_tokens":{WINDOW - 1 + more},"n_ctx":{WINDOW}' in over.json["error"]


async def test_one_token_too_many_makes_ollama_throw_half_of_the_prompt_away_and_say_nothing() -> None:
    model = "gemma3:270m"
    await needed(model)
    async with gate_before(model, WINDOW) as gate:
        words = await _words_for(WINDOW, gate, model)
    cut = await direct("POST", "/api/chat", {**_of(words, model), "options": {**RUN, "num_ctx": WINDOW}})
    assert cut.status == 200
    assert cut.json["prompt_eval_count"] == 131  # four to keep and BOS, and half of the rest


@pytest.mark.parametrize("model", MODELS)
async def test_an_answer_ends_with_the_window_and_the_gate_says_so(model: str) -> None:
    await needed(model)
    async with gate_before(model, WINDOW) as gate:
        words = await _words_for(WINDOW - 6, gate, model)
        long = {"num_predict": 1000, "temperature": 0, "seed": 1}
        answer = await ask(gate.address, "POST", "/api/chat", {**_of(words, model), "options": long})
    assert answer.status == 200
    assert answer.json["prompt_eval_count"] == WINDOW - 6
    # A stop token may come first; if none does, six tokens are all that there is room for.
    assert answer.json["eval_count"] <= 6
    if answer.json["done_reason"] == "length":
        assert answer.json["eval_count"] == 6
        assert answer.gate("room") == "6"
        assert "asked output clamped to 6" in (answer.gate("note") or "")


async def test_an_answer_that_ollama_ends_without_its_last_line_ends_so_through_the_gate_too_and_says_it() -> None:
    model = "gemma3:270m"
    await needed(model)
    repeats = {"num_predict": 60, "temperature": 0, "seed": 1, "repeat_penalty": 1.0}
    body = {"model": model, "raw": True, "prompt": ("a " * 48)[:-1], "options": repeats}
    async with gate_before(model, WINDOW) as gate:
        cut = await direct("POST", "/api/generate", {**body, "options": {**repeats, "num_ctx": WINDOW}})
        assert (cut.status, cut.complete, b'"done":true' in cut.body) == (200, True, False)
        reply = await ask(gate.address, "POST", "/api/generate", body)
    assert (reply.status, reply.complete, b'"done":true' in reply.body) == (200, False, False)
    *lines, last = reply.body.splitlines()
    assert len(lines) == len(cut.body.splitlines())
    assert b"without its end mark" in last


async def test_nothing_that_clients_ask_for_loads_the_model_again() -> None:
    model = "gemma3:270m"
    await needed(model)
    hello = {"model": model, "messages": [{"role": "user", "content": "Say hi."}]}
    once = {"num_predict": 1, "temperature": 0}
    async with gate_before(model, 2048, fresh=True) as gate:  # what else is loaded stays in the list
        for path, body in (
            ("/api/chat", {**hello, "stream": False, "options": once}),
            ("/api/chat", {**hello, "stream": False, "options": {**once, "num_ctx": 4096}}),
            ("/api/chat", {**hello, "stream": False, "shift": True, "truncate": True, "options": once}),
            ("/api/chat", {**hello, "stream": False, "options": {**once, "num_batch": 64, "num_thread": 1}}),
            ("/api/generate", {"model": model, "prompt": "Say hi.", "stream": False, "options": once}),
            ("/api/generate", {"model": model, "prompt": ""}),
            ("/v1/chat/completions", {**hello, "max_tokens": 1}),
            ("/v1/completions", {"model": model, "prompt": "Say hi.", "max_tokens": 1}),
            ("/v1/responses", {"model": model, "input": "Say hi.", "max_output_tokens": 1}),
            ("/v1/messages", {**hello, "max_tokens": 1}),
            ("/api/chat", {**hello, "stream": False, "options": once}),
        ):
            answer = await ask(gate.address, "POST", path, body)
            assert answer.status == 200, answer.body
            [resident] = (await direct("GET", "/api/ps")).json["models"]
            assert resident["context_length"] == 2048
            # A load takes a second or more; a model at hand is found in no time.
            assert answer.json.get("load_duration", 0) < 0.5e9, path
