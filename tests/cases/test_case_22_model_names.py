"""One model under many spellings, and models that only look alike (aichat#734, llm-gateway#2398, olla#191)."""

import pytest

from support.cases import case, front, full

CASE = case("22-model-name-forms")
BODY = CASE["template"]


async def test_every_spelling_of_one_model_has_one_window_and_the_sent_name_stays() -> None:
    async with front(models={"llama3.2": {"num_ctx": 2048}}) as line:
        for name in CASE["same_model"]:
            reply = await line.ask("/api/chat", {**BODY, "model": name})
            assert reply.status == 200, name
            assert reply.json["model"] == name
            sent = line.got()[-1].json()
            assert (sent["model"], sent["options"]["num_ctx"]) == (name, 2048)
        admitted = line.metric("requests_total", route="/api/chat", model=full("llama3.2:latest"), verdict="admit")
        assert line.ollama.loads("llama3.2") == 1
    assert admitted == len(CASE["same_model"])


async def test_models_that_only_look_alike_keep_windows_of_their_own() -> None:
    async with front(models={"llama3.2": {"num_ctx": 2048}}) as line:
        for name in CASE["kept_distinct"]:
            reply = await line.ask("/v1/chat/completions", {**BODY, "model": name})
            assert reply.status == 200, name
            sent = line.got()[-1].json()
            assert (sent["model"], sent["options"]["num_ctx"]) == (name, 8192)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/embed", "/v1/chat/completions"])
async def test_what_is_no_name_is_refused_and_never_a_path(path: str) -> None:
    async with front() as line:
        for name in CASE["bad"]:
            reply = await line.ask(path, {**BODY, "model": name, "prompt": "hi", "input": "hi"})
            assert reply.status in (400, 404), (name, reply.body)
        reached = [one for one in line.got() if one.json()["model"].strip()]
    assert not reached


async def test_an_unknown_model_gets_ollamas_own_404() -> None:
    async with front() as line:
        reply = await line.ask("/api/chat", {**BODY, "model": "nowhere:7b"})
        straight = await line.straight("/api/chat", {**BODY, "model": "nowhere:7b"})
        openai = await line.ask("/v1/chat/completions", {**BODY, "model": "nowhere:7b"})
    assert reply.status == straight.status == 404
    assert reply.body == straight.body
    assert openai.status == 404
    assert openai.json["error"]["type"] == "not_found_error"
