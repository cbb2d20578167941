from typing import Any

import pytest

from ollama_gate.requests import Control, Kind
from support.dialects import COMPLETIONS, events, parse, refusal_of, streamed, whole, writer_for

PROMPT: dict[str, Any] = {"model": "m", "prompt": "Name a river."}


def piece(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "response": text, "done": False, **more}


END = {"model": "m", "response": "", "done": True, "done_reason": "stop", "prompt_eval_count": 4, "eval_count": 2}


def test_a_completion_becomes_a_native_generate_that_is_not_raw() -> None:
    request = parse(COMPLETIONS, {**PROMPT, "max_tokens": 8, "suffix": "end", "stream": True})
    assert request.kind is Kind.GENERATE
    assert request.path == "/api/generate"
    assert request.stream
    assert request.asked_output == 8
    assert request.body == {
        "model": "m",
        "prompt": "Name a river.",
        "suffix": "end",
        "stream": True,
        "options": {
            "num_predict": 8,
            "temperature": 1.0,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "top_p": 1.0,
        },
    }


def test_case_14_a_list_of_one_text_is_unwrapped() -> None:
    assert parse(COMPLETIONS, {"model": "m", "prompt": ["Name a river."]}).body["prompt"] == "Name a river."


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (["Name a river.", "Name a hill."], "prompt holds 2 texts"),
        ([9906, 1917, 0], "token ids are not taken"),
        ([[9906], [1917]], "token ids are not taken"),
        ([], "empty list"),
        (["Name a river.", 5], "or a list of one text"),
        ([None], "or a list of one text"),
        ([["Name a river."]], "or a list of one text"),
        (5, "must be a text, and is of type number"),
        (True, "must be a text, and is of type bool"),
        ({"text": "Name a river."}, "must be a text, and is of type object"),
    ],
)
def test_case_14_other_prompts_are_refused_in_plain_words(prompt: Any, words: str) -> None:
    refusal = refusal_of(COMPLETIONS, {"model": "m", "prompt": prompt, "max_tokens": 8})
    assert (refusal.status, refusal.type, refusal.param) == (400, "invalid_request_error", "prompt")
    assert words in refusal.message
    assert "struct" not in refusal.message


@pytest.mark.parametrize("body", [{"model": "m", "prompt": ""}, {"model": "m"}])
def test_no_prompt_is_a_call_to_load_the_model(body: dict[str, Any]) -> None:
    assert parse(COMPLETIONS, body).control is Control.LOAD


def test_no_prompt_and_no_time_to_keep_is_a_call_to_unload() -> None:
    assert parse(COMPLETIONS, {"model": "m"}, {"x-ollama-gate-keep-alive": "0"}).control is Control.UNLOAD
    assert parse(COMPLETIONS, {"model": "m"}, {"x-ollama-gate-keep-alive": "0h0m"}).control is Control.UNLOAD


def test_a_missing_model_is_refused_as_generate_refuses_it() -> None:
    refusal = refusal_of(COMPLETIONS, {"prompt": "x"})
    assert (refusal.status, refusal.message, refusal.type) == (404, "model '' not found", "not_found_error")


def test_logprobs_are_asked_for_by_their_number() -> None:
    assert parse(COMPLETIONS, {**PROMPT, "logprobs": 3}).body["top_logprobs"] == 3
    assert "logprobs" not in parse(COMPLETIONS, {**PROMPT, "logprobs": 0}).body


def test_a_stream_ends_with_its_reason_and_done() -> None:
    sent = list(events(streamed(COMPLETIONS, PROMPT, piece("The "), piece("Elbe"), END)))
    assert [data["choices"][0]["text"] for _, data in sent[:3]] == ["The ", "Elbe", ""]
    assert [data["choices"][0]["finish_reason"] for _, data in sent[:3]] == [None, None, "stop"]
    assert sent[3][1] == "[DONE]"


def test_with_usage_every_chunk_has_zeros_and_the_last_the_truth() -> None:
    body = {**PROMPT, "stream_options": {"include_usage": True}}
    sent = list(events(streamed(COMPLETIONS, body, piece("x"), END)))
    assert [data["usage"]["total_tokens"] for _, data in sent[:3]] == [0, 0, 6]


def test_an_error_line_becomes_an_error_event_without_an_end_mark() -> None:
    sent = streamed(COMPLETIONS, PROMPT, piece("x"), {"error": "runner stopped"}, END)
    assert list(events(sent))[-1][1]["error"]["message"] == "runner stopped"
    assert "[DONE]" not in sent


def test_a_stream_that_stops_early_gets_no_end_mark() -> None:
    writer = writer_for(COMPLETIONS, {**PROMPT, "stream": True})
    writer.feed(piece("x"))
    assert writer.finish() is None
    assert writer.keep_alive().startswith(b": ")
    assert b"api_error" in writer.error(500, "gone")
    assert writer.error(500, "gone") == writer.feed(END) == b""
    assert writer.finish() == b""


def test_a_load_is_answered_with_its_reason() -> None:
    answer = {"model": "m", "response": "", "done": True, "done_reason": "load"}
    written = whole(COMPLETIONS, {"model": "m"}, answer)
    assert written["choices"] == [{"text": "", "index": 0, "finish_reason": "load"}]
    assert written["usage"]["total_tokens"] == 0


def test_a_suffix_beside_no_prompt_is_said_to_be_ignored() -> None:
    note = "suffix ignored: without a prompt the model is only loaded"
    assert parse(COMPLETIONS, {"model": "m", "prompt": "", "suffix": "return"}).notes == (note,)
    assert parse(COMPLETIONS, {"model": "m", "suffix": ""}).notes == ()
