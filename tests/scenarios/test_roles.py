"""Messages of roles that a model's template does not show: instructions lost under a 200 (ollama#18305, pi#133)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.counting.roles import NOTE_DEVELOPER
from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from support.cases import Front
from support.gate import running_gate

MODELS = (
    Model("plain:latest", mode=Mode.GO, text="go-roles"),
    Model("open:latest", mode=Mode.GO, text="go-chatml"),
    Model("jinja:latest"),
    Model("built-in:latest", mode=Mode.RENDERER, text="renderer", renderer="rehearsal", parser="rehearsal"),
)
RULES = {"role": "developer", "content": "Answer in rhymes."}
QUESTION = {"role": "user", "content": "Who are you?"}
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [RULES, QUESTION]},
    "/v1/responses": {"input": [RULES, QUESTION]},
    "/v1/messages": {"messages": [RULES, QUESTION], "max_tokens": 99},
    "/api/chat": {"messages": [RULES, QUESTION], "stream": False},
}


@pytest.fixture
async def line() -> AsyncIterator[Front]:
    async with Rehearsal(Settings(models=MODELS)) as ollama, running_gate(ollama.url) as gate:
        yield Front(gate, ollama)


async def test_ollama_itself_drops_the_developer_without_a_word(line: Front) -> None:
    body = {"model": "plain", "stream": False}
    whole = await line.straight("/api/chat", {**body, "messages": [RULES, QUESTION]})
    bare = await line.straight("/api/chat", {**body, "messages": [QUESTION]})
    assert whole.json["prompt_eval_count"] == bare.json["prompt_eval_count"]


@pytest.mark.parametrize("path", ASKED)
async def test_the_developers_instructions_reach_the_model_on_every_route(line: Front, path: str) -> None:
    body = {"model": "plain", **ASKED[path]}
    reply = await line.ask(path, body)
    counted = await line.count(path, body)
    got = line.got()[0]
    assert reply.status == 200
    assert "rhymes" in reply.body.decode()
    assert got.json()["messages"][0] == {"role": "system", "content": "Answer in rhymes."}
    assert NOTE_DEVELOPER in (reply.gate("note") or "")
    assert counted["tokens"] == got.prompt_tokens


async def test_a_developer_among_others_keeps_the_place(line: Front) -> None:
    talk = [
        {"role": "system", "content": "Be kind."},
        QUESTION,
        {"role": "Developer", "content": "Be brief."},
        QUESTION,
    ]
    reply = await line.ask("/v1/chat/completions", {"model": "plain", "messages": talk})
    sent = line.got()[0].json()["messages"]
    assert reply.status == 200
    assert [message["role"] for message in sent] == ["system", "user", "system", "user"]
    assert [message["content"] for message in sent] == [message["content"] for message in talk]


@pytest.mark.parametrize("model", ["open", "jinja"])
async def test_where_a_developer_is_shown_nothing_is_changed(line: Front, model: str) -> None:
    reply = await line.ask("/v1/chat/completions", {"model": model, "messages": [RULES, QUESTION]})
    assert line.got()[0].json()["messages"] == [RULES, QUESTION]
    assert reply.gate("note") is None


async def test_a_built_in_renderer_gets_a_system_since_not_each_of_them_knows_a_developer(line: Front) -> None:
    reply = await line.ask("/v1/chat/completions", {"model": "built-in", "messages": [RULES, QUESTION]})
    assert line.got()[0].json()["messages"][0]["role"] == "system"
    assert NOTE_DEVELOPER in (reply.gate("note") or "")


@pytest.mark.parametrize(("role", "told"), [("tool", "tool"), ("critic", "critic"), ("", "(none)")])
async def test_whoever_else_is_not_seen_is_told_in_a_header(line: Front, role: str, told: str) -> None:
    talk = [QUESTION, {"role": "assistant", "content": "I ask."}, {"role": role, "content": "42"}]
    reply = await line.ask("/api/chat", {"model": "plain", "messages": talk, "stream": False})
    seen = await line.ask("/api/chat", {"model": "open", "messages": talk, "stream": False})
    assert reply.status == seen.status == 200
    assert line.got()[0].json()["messages"] == talk
    assert reply.gate("note") == f"not seen by the model, whose prompt has no place for their role: messages of {told}"
    assert seen.gate("note") is None
