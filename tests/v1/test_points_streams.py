"""What agents need of a gate, points 11 to 15, 23 and 24: waiting, streams, cancelling, and true usage."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from ollama_gate.config import Config
from ollama_gate.rehearsal import Fault, Rehearsal, Settings
from support.agents import (
    CLAUDE_HEADERS,
    CODEX_HEADERS,
    OPENCODE_HEADERS,
    claude_code,
    codex,
    openai_turn,
    prose,
)
from support.cases import front
from support.dialects import events
from support.gate import running_gate
from support.http import Client, Reply, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama
from support.v1_lanes import LANES, Lane
from support.waiting import until

MODEL = "qwen2.5-coder:7b"
TOO_LONG = prose(50)
AGENTS: Mapping[str, tuple[str, Any, Mapping[str, str]]] = {
    "Claude Code": ("/v1/messages", claude_code, CLAUDE_HEADERS),
    "Codex": ("/v1/responses", codex, CODEX_HEADERS),
    "opencode": ("/v1/chat/completions", openai_turn, OPENCODE_HEADERS),
}
agents = pytest.mark.parametrize("agent", AGENTS)


def test_point_11_waiting_ends_well_before_agents_give_up() -> None:
    assert Config().queue.deadline <= 240


async def test_point_11_the_wait_is_told_and_over_at_the_deadline() -> None:
    body = openai_turn(MODEL, "Hello.")
    async with front(queue={"deadline": "200ms"}) as line:
        line.ollama.fault("hang", path="/api/chat")
        async with await Client.connect(line.gate.address) as client:
            await client.send("POST", "/v1/chat/completions", body)
            await line.ollama.journal.until(lambda journal: journal.to("/api/chat"))
            late = await line.ask("/v1/chat/completions", body)
    assert (late.status, late.reason) == (503, "Queue Wait Over")
    assert int(late.header("Retry-After") or 0) >= 1


@agents
async def test_point_12_signs_of_life_come_only_after_the_verdict(agent: str) -> None:
    """However impatient the gate is, a refusal is a 400; what each dialect's signs are is shown in `test_silence`."""
    path, make, headers = AGENTS[agent]
    async with front(window=2048) as line:
        line.gate.wiring.pipeline.signs_every = 0.0
        reply = await line.ask(path, make(MODEL, prose(400)), headers=headers)
        admitted = await line.ask(path, make(MODEL, "Hello."), headers=headers)
    assert reply.status == 400
    assert (admitted.status, admitted.complete) == (200, True)


async def test_point_12_a_native_stream_stays_silent() -> None:
    """A blank line breaks the official Python client."""
    go_on = asyncio.Event()
    said = b'{"message":{"role":"assistant","content":"x"},"done":true,"done_reason":"stop"}\n'

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(STREAM_HEAD + b"%x\r\n%b\r\n" % (len(said), said) + LAST_CHUNK)

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        gate.wiring.pipeline.signs_every = 0.001
        async with await Client.connect(gate.address) as client, await Client.connect(gate.address) as other:
            await client.send(
                "POST", "/api/chat", {"model": "llama3.2", "messages": [{"role": "user", "content": "x"}]}
            )
            await until(lambda: ollama.got)
            for _ in range(20):  # time passes: other requests are answered
                await other.send("GET", "/gate/health/live")
                await other.rest(await other.head())
            assert not client.reader._buffer  # type: ignore[attr-defined]
            go_on.set()
            reply = await client.rest(await client.head())
    assert reply.body == said


@pytest.mark.parametrize("how", ["FIN", "RST"])
@agents
async def test_point_13_a_request_that_is_cut_and_sent_again_is_gone_before_it_comes_back(agent: str, how: str) -> None:
    path, make, headers = AGENTS[agent]
    slow = Rehearsal(Settings(rate=50.0))
    async with slow as ollama, running_gate(ollama.url) as gate:
        body = make("rehearsal", "write 100000 tokens")
        first = await Client.connect(gate.address)
        await first.send("POST", path, body, headers)
        await ollama.journal.until(lambda journal: any(entry.generated > 2 for entry in journal.to("/api/chat")))
        if how == "RST":
            first.reset()
        else:
            await first.close()
        async with await Client.connect(gate.address) as second:
            await second.send("POST", path, body, headers)
            await ollama.journal.until(lambda journal: len(journal.to("/api/chat")) == 2)
            cut, again = ollama.journal.to("/api/chat")
            await ollama.journal.until(lambda _: again.generated > 0)
            assert cut.client_left
            assert cut.ended is not None
            assert cut.ended <= again.started
            assert ollama.loads("rehearsal") == 1


async def test_point_14_the_compaction_of_claude_code_passes_and_its_next_turn_too() -> None:
    """Refused, it sends nearly the same again with an instruction at the end; refused twice, it gives up."""
    async with front(window=2048, defaults={"budget": 1200}) as line:
        said = TOO_LONG, "Yes."
        turn = await line.ask("/v1/messages", claude_code(MODEL, *said, "And now?"), headers=CLAUDE_HEADERS)
        compaction = claude_code(MODEL, *said, "Summarise all of this.")
        summary = await line.ask("/v1/messages", compaction, headers=CLAUDE_HEADERS)
        after = await line.ask("/v1/messages", claude_code(MODEL, "A summary.", "Go on."), headers=CLAUDE_HEADERS)
    assert turn.status == 400
    assert (summary.status, summary.gate("verdict")) == (200, "grace")
    assert (after.status, after.gate("verdict")) == (200, "admit")


async def test_point_14_codex_drops_its_oldest_item_until_its_compaction_fits() -> None:
    async with front(window=2048, defaults={"budget": 1200}, refusals={"grace": False}) as line:
        items = [prose(20), prose(20), prose(20), "Summarise."]
        replies: list[Reply] = []
        while not replies or replies[-1].status != 200:
            body = {**codex(MODEL, *items), "tools": []}
            replies.append(await line.ask("/v1/responses", body, headers=CODEX_HEADERS))
            items.pop(0)
    assert [reply.status for reply in replies] == [400, 200]
    assert replies[0].json["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("lane", LANES.values(), ids=LANES)
async def test_point_15_no_stream_ends_cleanly_without_its_end_mark(lane: Lane) -> None:
    """opencode begins such a turn again ten times a second."""
    ends = {"lost": STREAM_HEAD + lane.piece("x"), "no done": STREAM_HEAD + lane.piece("x") + LAST_CHUNK}
    for how, data in ends.items():

        async def script(got: Got, writer: asyncio.StreamWriter, data: bytes = data, how: str = how) -> None:
            writer.write(data)
            if how == "lost":
                writer.close()

        async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
            reply = await ask(gate.address, "POST", lane.path, lane.body())
        assert not reply.complete
        assert not lane.ended(reply)
        assert lane.failure(reply)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_point_15_nor_does_a_native_one_when_ollama_itself_ends_it_so(path: str) -> None:
    """The rehearsal, like Ollama when a model repeats a token: a last chunk, and no `done:true` before it."""
    body = {"model": MODEL, "prompt": "write 9 tokens", "messages": [{"role": "user", "content": "write 9 tokens"}]}
    async with front(faults=(Fault("no_done", after=3),)) as line:
        cut = await line.straight(path, body)
        reply = await line.ask(path, body)
    assert (cut.complete, b'"done":true' in cut.body) == (True, False)
    assert not reply.complete
    assert "end mark" in json.loads(reply.body.splitlines()[-1])["error"]
    assert reply.body.count(b'"done":false') == 3


async def test_point_23_a_conversations_two_requests_at_once_share_one_slot_in_order() -> None:
    """opencode's title and its turn: neither is stuck, and the small one does not go first for being small."""
    title, turn = openai_turn("rehearsal", "Title?", tools=False), openai_turn("rehearsal", prose(30))
    async with Rehearsal(Settings(rate=2000.0)) as ollama, running_gate(ollama.url) as gate:
        busy = await Client.connect(gate.address)
        await busy.send("POST", "/v1/chat/completions", turn, OPENCODE_HEADERS)
        await ollama.journal.until(lambda journal: journal.to("/api/chat"))
        [queue] = gate.wiring.admission.gatekeeper.scheduler.queues.values()
        waiting: list[asyncio.Task[Reply]] = []
        for number, body in enumerate((turn, title, turn, title), 1):
            waiting.append(
                asyncio.ensure_future(ask(gate.address, "POST", "/v1/chat/completions", body, OPENCODE_HEADERS))
            )
            await until(lambda: queue.waiting >= number or queue.running == 0)  # noqa: B023 - awaited here
        replies = await asyncio.gather(*waiting)
        await busy.rest(await busy.head())
        await busy.close()
        got = [entry.body for entry in ollama.journal.to("/api/chat") if b"_debug_render_only" not in entry.body]
    assert {reply.status for reply in replies} == {200}
    assert [b"Title?" in body for body in got] == [False, False, True, False, True]


def usage_of(path: str, reply: Reply) -> tuple[int, int]:
    """Prompt and output tokens, from a whole answer or from a stream's last words."""
    told: Any
    if "event-stream" in (reply.header("Content-Type") or ""):
        found = [data for _, data in events(reply.body.decode()) if isinstance(data, dict)]
        told = [each.get("usage") or each.get("response", {}).get("usage") for each in found]
        told = [each for each in told if each][-1]
    else:
        told = reply.json["usage"]
    if path == "/v1/chat/completions":
        return told["prompt_tokens"], told["completion_tokens"]
    return told["input_tokens"], told["output_tokens"]


@pytest.mark.parametrize("stream", [True, False])
@agents
async def test_point_24_usage_is_true_in_every_dialect(agent: str, *, stream: bool) -> None:
    path, make, headers = AGENTS[agent]
    async with front() as line:
        reply = await line.ask(path, {**make(MODEL, "Hello."), "stream": stream}, headers=headers)
        [entry] = line.got()
    assert reply.status == 200
    assert usage_of(path, reply) == (entry.prompt_tokens, entry.generated)
    if agent == "Claude Code" and stream:
        start = next(data for name, data in events(reply.body.decode()) if name == "message_start")
        assert start["message"]["usage"]["input_tokens"] == entry.prompt_tokens


async def test_point_24_an_empty_answer_has_an_empty_list_of_blocks() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        answer = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
        raw = json.dumps({**answer, "prompt_eval_count": 5, "eval_count": 1}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw))

    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        asked = {"model": "llama3.2", "messages": [{"role": "user", "content": "x"}], "max_tokens": 5}
        reply = await ask(gate.address, "POST", "/v1/messages", asked)
    assert reply.json["content"] == []
