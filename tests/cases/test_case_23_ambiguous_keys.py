"""Keys that Go folds together: what is counted is not what runs (go-sdk#805, go-jose#73, gjson#393)."""

import json

import pytest

from support.cases import front, raw_case

RAW = raw_case("23-key-case-and-duplicates")
CHAT = {"model": "llama3.2:1b", "stream": False, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_the_given_body_is_refused_as_ambiguous(path: str) -> None:
    async with front() as line:
        reply = await line.ask(path, RAW)
        line.assert_refused(path, "ambiguous_keys")
    error = reply.json if path.startswith("/api") else reply.json["error"]
    assert reply.status == 400
    assert (error["code"], error["type"]) == ("ambiguous_keys", "invalid_request_error")


async def test_ollama_itself_runs_the_list_that_a_plain_reading_does_not_see() -> None:
    async with front() as line:
        answer = await line.straight("/api/chat", RAW)
    assert answer.status == 200
    assert answer.json["prompt_eval_count"] > 0
    assert json.loads(RAW)["messages"] == CHAT["messages"]


@pytest.mark.parametrize(
    "extra",
    [
        '"Truncate":true,"truncate":false',
        '"options":{"num_ctx":1},"OPTIONS":{"num_ctx":131072}',
        '"tools":[],"toolſ":[]',
        '"stream":true,"stream":false',
        '"\\u006dessages":[]',
        '"shift":true,"SHIFT":true',
    ],
)
async def test_any_two_keys_that_fold_together_are_refused(extra: str) -> None:
    body = json.dumps(CHAT).replace('"stream": false', '"stream":false')[:-1] + "," + extra + "}"
    if '"stream"' in extra:
        body = body.replace('"stream":false,', "", 1)
    async with front() as line:
        reply = await line.ask("/api/chat", body)
        line.assert_refused("/api/chat", "ambiguous_keys")
    assert reply.status == 400


async def test_a_single_key_in_odd_case_is_folded_and_what_goes_up_is_the_gates_own_body() -> None:
    odd = {"MODEL": "llama3.2:1b", "Stream": False, "meſſages": CHAT["messages"], "TRUNCATE": True, "X-Own": 1}
    async with front() as line:
        reply = await line.ask("/api/chat", json.dumps(odd, ensure_ascii=False))
        [got] = line.got()
    assert reply.status == 200
    assert got.json() == {**CHAT, "X-Own": 1, "truncate": False, "shift": False, "options": {"num_ctx": 8192}}
