"""What agents need of a gate, points 16 to 22 and 25: what they send is taken. Each name begins with its point."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ollama_gate.conversations import conversation_key
from ollama_gate.dialects import anthropic, responses
from ollama_gate.rehearsal import Rehearsal, Settings
from support.agents import CLAUDE_HEADERS, CODEX_HEADERS, claude_code, codex, prose
from support.cases import Front, front
from support.gate import running_gate
from support.http import Reply, ask

MODEL, THINKER = "qwen2.5-coder:7b", "rehearsal-thinking"
WINDOW = 4096


def lowered(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@asynccontextmanager
async def thinking() -> AsyncIterator[Front]:
    """A gate in front of a model that has tools and thinks."""
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, defaults={"num_ctx": WINDOW}) as gate:
        yield Front(gate, ollama)


async def test_point_16_a_dozen_counts_at_once_are_exact_and_run_no_model() -> None:
    """Each that is not answered becomes a generation; a tool is counted with the message `foo`."""
    tools = claude_code(MODEL, "x")["tools"]
    bodies = [
        *({"model": MODEL, "messages": [{"role": "user", "content": "foo"}], "tools": [tool]} for tool in tools),
        *({"model": MODEL, "messages": [{"role": "user", "content": prose(size)}]} for size in range(1, 10)),
        {"model": MODEL, "system": [{"type": "text", "text": "Be."}], "messages": [{"role": "user", "content": "foo"}]},
    ]
    async with front(window=WINDOW) as line:
        await line.ask("/v1/messages", {**bodies[0], "max_tokens": 1}, headers=CLAUDE_HEADERS)
        before = len(line.got())
        counts = await asyncio.gather(
            *(line.ask("/v1/messages/count_tokens?beta=true", body, headers=CLAUDE_HEADERS) for body in bodies)
        )
        assert len(line.got()) == before
        run = [await line.ask("/v1/messages", {**body, "max_tokens": 1}) for body in bodies]
    assert [reply.status for reply in counts] == [200] * len(bodies)
    assert [reply.json["input_tokens"] for reply in counts] == [reply.json["usage"]["input_tokens"] for reply in run]


async def test_point_17_what_claude_code_sends_is_taken() -> None:
    """System messages stay where they are, thinking is on, and far too long an answer is clamped, not refused."""
    body = claude_code(THINKER, "Hello.", "Hello!", prose(60))
    async with thinking() as line:
        reply = await line.ask("/v1/messages?beta=true", body, headers=CLAUDE_HEADERS)
        got = line.got()[-1].json()
    assert reply.status == 200
    assert [message["role"] for message in got["messages"]] == ["system", "user", "system", "assistant", "user"]
    system = (
        "x-anthropic-billing-header: cc_version=2.1.197.a1b; cc_entrypoint=cli;You are an agent for code. Be careful."
    )
    assert got["messages"][0]["content"] == system
    assert got["messages"][2]["content"] == "Files may have changed."
    assert got["think"] == "high"
    assert len(got["tools"]) == 3
    assert got["options"]["num_predict"] <= 32000
    assert "cache_control" not in json.dumps(got)


@pytest.mark.parametrize("wish", ["enabled", "adaptive", "disabled"])
async def test_point_17_any_type_of_thinking_is_taken(wish: str) -> None:
    body = {**claude_code(THINKER, "Hello."), "thinking": {"type": wish}, "stream": False}
    async with thinking() as line:
        reply = await line.ask("/v1/messages", body, headers=CLAUDE_HEADERS)
    kinds = [block["type"] for block in reply.json["content"]]
    assert ("thinking" in kinds) is (wish != "disabled")


async def test_point_17_an_answer_longer_than_the_window_is_clamped_to_the_room() -> None:
    body = {**claude_code(MODEL, prose(100)), "thinking": {"type": "disabled"}}
    async with front(window=WINDOW, defaults={"budget": 4000}) as line:
        # Once the model is loaded the count is exact, and with it the room.
        await line.ask("/v1/messages", claude_code(MODEL, "Hello."), headers=CLAUDE_HEADERS)
        count = await line.ask("/v1/messages/count_tokens", body)
        reply = await line.ask("/v1/messages", body, headers=CLAUDE_HEADERS)
        got = line.got()[-1].json()
    assert reply.status == 200
    assert got["options"]["num_predict"] == WINDOW - count.json["input_tokens"]
    assert "clamped" in (reply.gate("note") or "")


async def test_point_18_what_codex_sends_is_taken_and_counted_as_ollama_renders_it() -> None:
    body = codex(MODEL, "Hello.")
    async with front(window=WINDOW) as line:
        reply = await line.ask("/v1/responses", body, headers=CODEX_HEADERS)
        count = await line.ask("/v1/responses/input_tokens", {**body, "stream": False}, headers=CODEX_HEADERS)
        [entry] = line.got()
    got = entry.json()
    assert reply.status == 200
    assert [message["role"] for message in got["messages"]] == ["developer", "developer", "user"]
    assert [tool["function"]["name"] for tool in got["tools"]] == ["shell", "plans.make", "plans.drop"]
    assert count.json == {"object": "response.input_tokens", "input_tokens": entry.prompt_tokens}
    assert "server-side tools were left out" in (reply.gate("note") or "")


async def test_point_18_what_codex_sends_back_is_taken_too() -> None:
    body = codex(MODEL, "Run it.")
    body["input"] += [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "A thought."}],
            "encrypted_content": "Hm.",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": '{"path":"."}'},
        {"type": "function_call_output", "id": "fo_1", "call_id": "call_1", "output": "Done."},
    ]
    async with front(window=WINDOW) as line:
        reply = await line.ask("/v1/responses", body, headers=CODEX_HEADERS)
        [entry] = line.got()
    got = entry.json()["messages"]
    assert reply.status == 200
    assert [message["role"] for message in got] == ["developer", "developer", "user", "assistant", "tool"]
    assert got[3]["thinking"] == "Hm."
    assert got[3]["tool_calls"][0]["function"] == {"index": 0, "name": "shell", "arguments": {"path": "."}}
    assert (got[4]["content"], got[4]["tool_call_id"]) == ("Done.", "call_1")


@pytest.mark.parametrize(
    "more",
    [
        {"tools": []},
        {"tool_choice": "auto"},
        {"options": {"temperature": None}},
        {"think": False},
        {"max_output_tokens": 50},
        {"keep_alive": 60.0},
        {"stream": False},
    ],
    ids=lambda more: next(iter(more)),
)
async def test_point_19_native_oddities_are_tolerated(more: dict[str, Any]) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], **more}
    async with front(window=WINDOW) as line:
        # Neither a content type nor a reason to send a key.
        reply = await line.ask("/api/chat", body, headers={"Authorization": "Bearer unasked"})
    assert reply.status == 200


async def test_point_20_every_num_ctx_is_overridden_and_a_header_says_so() -> None:
    async with front(window=WINDOW) as line:
        for num_ctx in (8192 + 33, 9001, 32768, 100, None):
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "Hello."}],
                "options": {"num_ctx": num_ctx},
            }
            reply = await line.ask("/api/chat", body)
            assert reply.status == 200
            assert num_ctx is None or "num_ctx" in (reply.gate("note") or "")
        assert {entry.json()["options"]["num_ctx"] for entry in line.got()} == {WINDOW}
        assert line.ollama.loads(MODEL) == 1


async def test_point_21_a_name_with_and_without_its_tag_is_one_model() -> None:
    """Not in the list itself, which is Ollama's, byte for byte: there a model has its tag."""
    question = {"messages": [{"role": "user", "content": "Hello."}]}
    async with front(window=WINDOW) as line:
        shows = [await line.ask("/api/show", body) for body in ({"name": "llama3.2"}, {"model": "llama3.2:latest"})]
        models = [await line.ask(f"/v1/models/{name}", method="GET") for name in ("llama3.2", "llama3.2:latest")]
        chats = [await line.ask("/api/chat", {"model": name, **question}) for name in ("llama3.2", "LLAMA3.2:latest")]
        listed = (await line.ask("/api/tags", method="GET")).json["models"]
        openai = (await line.ask("/v1/models", method="GET")).json["data"]
        assert line.ollama.loads("llama3.2") == 1
        keys = [card.key for card in line.gate.wiring.catalog.known()]
    assert shows[0].body == shows[1].body
    assert [reply.status for reply in (*models, *chats)] == [200] * 4
    assert models[0].json["created"] == models[1].json["created"]
    assert [row["name"] for row in listed] == [row["id"] for row in openai]
    assert keys.count("registry.ollama.ai/library/llama3.2:latest") == 1
    assert len(keys) == len(set(keys))


async def test_point_21_the_list_has_both_names_where_a_client_would_pull_otherwise() -> None:
    """Codex with --oss pulls a model that is not there by the very name it was given."""
    async with front(window=WINDOW, dialects={"bare_names": True}) as line:
        names = [row["name"] for row in (await line.ask("/api/tags", method="GET")).json["models"]]
    assert {"llama3.2", "llama3.2:latest"} <= set(names)
    assert len(names) == len(set(names))


async def test_point_22_descriptions_come_from_memory_and_tell_the_served_window() -> None:
    """aider asks before each request, llm-ollama for every model; litellm and llama-index take the window from here."""
    async with front(window=WINDOW) as line:
        names = [row["name"] for row in (await line.ask("/api/tags", method="GET")).json["models"]]
        replies = await asyncio.gather(*(line.ask("/api/show", {"name": name}) for name in names * 10))
        straight = await line.straight("/api/show", {"name": "llama3.2"})
        asked = len(line.ollama.journal.to("/api/show")) - 1
        lists = len(line.ollama.journal.to("/api/tags"))
    assert (asked, lists) == (len(names), 1)
    shown = dict(zip(names, replies, strict=False))["llama3.2:latest"].json
    assert shown["model_info"]["llama.context_length"] == WINDOW
    assert straight.json["model_info"]["llama.context_length"] == 131_072
    assert f"{'num_ctx':<30} {WINDOW}" in shown["parameters"].splitlines()


def keyed(body: dict[str, Any], headers: dict[str, str]) -> bytes:
    lane = responses.LANE if "input" in body else anthropic.LANE
    return conversation_key(lane.parse(body, lowered(headers), "drop"))


def test_point_25_a_conversation_is_what_its_session_header_says() -> None:
    first = keyed(claude_code(MODEL, "One."), CLAUDE_HEADERS)
    assert keyed(claude_code(MODEL, "Quite another."), CLAUDE_HEADERS) == first
    assert keyed(claude_code(MODEL, "One."), {"x-claude-code-session-id": "other"}) != first
    assert keyed(codex(MODEL, "One."), CODEX_HEADERS) == keyed(codex(MODEL, "Two."), CODEX_HEADERS)


def test_point_25_without_one_it_is_how_it_began_but_for_what_changes_every_turn() -> None:
    first = keyed(claude_code(MODEL, "One."), {})
    later = claude_code(
        MODEL, "One.", "Yes.", "And two?", billing="cc_version=2.1.197.ffe; cc_entrypoint=cli; cch=0a1b2;"
    )
    del later["system"][1]["cache_control"]
    assert keyed(later, {}) == first
    assert keyed(claude_code(MODEL, "Something else."), {}) != first
    renewed = codex(MODEL, "One.", "Two.")
    for item in renewed["input"]:
        item["id"] = "renewed"
    renewed["client_metadata"] = {"turn": "2"}
    assert keyed(renewed, {}) == keyed(codex(MODEL, "One."), {})


async def test_point_25_the_prompt_itself_keeps_every_line() -> None:
    """What is left out of the identity is not left out of what the model reads."""
    async with front(window=WINDOW) as line:
        reply: Reply = await ask(line.gate.address, "POST", "/v1/messages", claude_code(MODEL, "Hello."))
        [entry] = line.got()
    assert reply.status == 200
    assert entry.json()["messages"][0]["content"].startswith("x-anthropic-billing-header: cc_version=")
