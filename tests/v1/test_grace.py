"""After a refusal an agent compacts with a request as long as the refused one: it passes once, whole, and only it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from ollama_gate.dialects.translation import SESSION_HEADERS
from support.agents import CLAUDE_HEADERS, CODEX_HEADERS, OPENCODE_HEADERS, claude_code, codex, openai_turn, prose
from support.cases import Front, front
from support.http import Reply

MODEL = "qwen2.5-coder:7b"
WINDOW, BUDGET = 2048, 1200
TOO_LONG = prose(50)
"""Over the budget, and in the window with what an agent puts around it."""
SUMMARY = "Summarise this conversation so that another can go on with it."
AGENTS: dict[str, tuple[str, Any, Mapping[str, str]]] = {
    "Claude Code": ("/v1/messages", claude_code, CLAUDE_HEADERS),
    "Codex": ("/v1/responses", codex, CODEX_HEADERS),
    "opencode": ("/v1/chat/completions", openai_turn, OPENCODE_HEADERS),
    "Cline": ("/v1/chat/completions", openai_turn, {}),
    "Cline, native": ("/api/chat", openai_turn, {}),
}
agents = pytest.mark.parametrize("agent", AGENTS)


@pytest.fixture
async def line() -> AsyncIterator[Front]:
    async with strict() as line:
        yield line


def strict(**refusals: Any) -> Any:
    """A gate that remembers no refused body, so that each one is judged anew."""
    return front(window=WINDOW, defaults={"budget": BUDGET}, refusals={"remember": 0, **refusals})


async def says(line: Front, agent: str, *turns: str, headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
    path, make, own = AGENTS[agent]
    return await line.ask(path, {**make(MODEL, *turns), **more}, headers=own if headers is None else headers)


@agents
async def test_an_agents_own_compaction_passes_once_and_whole(line: Front, agent: str) -> None:
    refused = await says(line, agent, TOO_LONG, "Yes.", "And now?")
    assert (refused.status, refused.gate("verdict")) == (400, "refuse")
    assert not line.got()
    compacted = await says(line, agent, TOO_LONG, "Yes.", SUMMARY)
    assert (compacted.status, compacted.gate("verdict")) == (200, "grace")
    assert f"over the budget of {BUDGET}" in (compacted.gate("note") or "")
    [got] = line.got()
    sent = got.json()
    assert (sent["truncate"], sent["shift"], sent["options"]["num_ctx"]) == (False, False, WINDOW)
    texts = [message["content"] for message in sent["messages"]]
    assert TOO_LONG in texts
    assert texts[-1] == SUMMARY
    assert got.prompt_tokens is not None
    assert BUDGET < got.prompt_tokens < WINDOW
    assert not [note for note in got.notes if "cut" in note or "dropped" in note]
    again = await says(line, agent, TOO_LONG, "Yes.", SUMMARY, "Once more?")
    assert again.status == 400


@agents
async def test_the_refused_prompt_itself_never_passes_however_often_it_is_sent(line: Front, agent: str) -> None:
    for attempt in range(4):
        reply = await says(line, agent, TOO_LONG, "Yes.", "And now?", temperature=attempt / 10)
        assert reply.status == 400
    assert not line.got()
    assert (await says(line, agent, TOO_LONG, "Yes.", SUMMARY)).status == 200


@pytest.mark.parametrize("name", SESSION_HEADERS)
async def test_every_header_that_names_a_conversation_is_understood(line: Front, name: str) -> None:
    this, other = {name: "this"}, {name: "another"}
    assert (await says(line, "opencode", TOO_LONG, headers=this)).status == 400
    assert (await says(line, "opencode", SUMMARY + TOO_LONG, headers=other)).status == 400
    compacted = await says(line, "opencode", SUMMARY + TOO_LONG, tools=[], headers=this)
    assert (compacted.status, compacted.gate("verdict")) == (200, "grace")


async def test_without_a_header_a_conversation_is_known_by_how_it_began(line: Front) -> None:
    begun = TOO_LONG, "Yes.", "And now?"
    assert (await says(line, "Cline", *begun)).status == 400
    assert (await says(line, "Cline", "Another beginning. " + TOO_LONG, "Yes.", SUMMARY)).status == 400
    assert (await says(line, "Cline", *begun[:-1], SUMMARY)).status == 200


async def test_what_does_not_fit_the_window_is_never_let_through(line: Front) -> None:
    much = prose(150)
    assert (await says(line, "Claude Code", much)).status == 400
    assert (await says(line, "Claude Code", much, "Yes.", SUMMARY)).status == 400
    assert not line.got()


async def test_a_prompt_within_the_budget_uses_no_pass_up(line: Front) -> None:
    assert (await says(line, "Claude Code", TOO_LONG)).status == 400
    short = await says(line, "Claude Code", "Hello.")
    assert (short.status, short.gate("verdict")) == (200, "admit")
    assert (await says(line, "Claude Code", TOO_LONG, "Yes.", SUMMARY)).gate("verdict") == "grace"


async def test_it_can_be_switched_off() -> None:
    async with strict(grace=False) as line:
        assert (await says(line, "Claude Code", TOO_LONG)).status == 400
        assert (await says(line, "Claude Code", TOO_LONG, "Yes.", SUMMARY)).status == 400
        assert not line.got()


async def test_a_refusal_that_is_repeated_thirty_times_is_made_once() -> None:
    async with front(window=WINDOW, defaults={"budget": BUDGET}) as line:
        replies = [await says(line, "Codex", TOO_LONG) for _ in range(30)]
        judged = sum(
            sample.value
            for metric in line.gate.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == "ollama_gate_count_seconds_count"
        )
    assert {reply.status for reply in replies} == {400}
    assert {reply.body for reply in replies} == {replies[0].body}
    assert [reply.gate("repeated") for reply in replies] == [None] + ["true"] * 29
    assert judged == 1
    assert not line.got()
