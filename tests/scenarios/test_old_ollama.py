"""An Ollama that cannot be told not to cut: only the gate's own count stands before a cut prompt."""

import asyncio
import io
import json

import pytest

from ollama_gate.window import Output, Window, clamp_output
from support.cases import Front, front
from support.gate import running_gate
from support.http import ask
from support.scripted import Got, ScriptedOllama, whole

HELLO = {"model": "llama3.2", "messages": [{"role": "user", "content": "Say hi."}], "stream": False}
OLD = {"version": "0.12.5"}
OLDER = {"version": "0.9.7"}


def saying(words: int) -> dict[str, object]:
    return {**HELLO, "messages": [{"role": "user", "content": "quern " * words}]}


async def test_it_is_said_at_the_start_and_where_the_gate_is_looked_at(written_log: io.StringIO) -> None:
    async with front(settings=OLD) as line:
        health = (await line.ask("/gate/health", method="GET")).json
        status = (await line.ask("/gate/status", method="GET")).json
        await line.ask("/gate/health", method="GET")
    assert "only the gate's own count" in health["upstream"]["warning"] == status["upstream"]["warning"]
    told = [json.loads(row) for row in written_log.getvalue().splitlines()]
    assert [row["level"] for row in told if row["event"] == "ollama cuts silently"] == ["warning"]
    async with front() as line:
        assert "warning" not in (await line.ask("/gate/health", method="GET")).json["upstream"]


async def test_an_exact_count_passes_and_the_answer_never_reaches_the_end_of_the_window() -> None:
    async with front(window=256, settings=OLD, defaults={"budget": 250}) as line:
        assert (await line.ask("/api/chat", HELLO)).status == 200
        prompt = saying(60)
        counted = await line.count("/api/chat", prompt)
        reply = await line.ask("/api/chat", prompt)
        got = line.got()[-1]
        assert (counted["rung"], reply.status, reply.gate("rung")) == ("exact", 200, "exact")
        assert got.json()["options"]["num_predict"] == 256 - counted["tokens"] - 1
        assert got.json()["truncate"] is got.json()["shift"] is False


async def test_what_is_not_exact_has_to_fit_twice() -> None:
    """Ollamas before 0.11.5 do not show their prompts; the first answer confirms the count."""
    async with front(window=1024, settings=OLDER, defaults={"budget": 1000}) as line:
        fits_once = saying(300)
        refused = await line.ask("/api/chat", fits_once)
        assert refused.status == 400
        assert refused.json["code"] == "context_length_exceeded"
        assert "fit twice" in refused.json["error"] or refused.json["details"]["rung"] == "estimate"
        line.assert_refused("/api/chat")
        assert (await line.ask("/api/chat", HELLO)).status == 200
        again = await line.ask("/api/chat", {**fits_once, "keep_alive": "1m"})
        assert (again.status, again.gate("rung")) == (200, "exact")
        assert not [entry for entry in line.ollama.journal if b"_debug_render_only" in entry.body]


@pytest.mark.parametrize("words", [100, 5000])
async def test_a_vocabulary_that_is_not_known_has_to_fit_twice(words: int) -> None:
    async def answer(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"done": True, "message": {"role": "assistant", "content": ""}}))

    wide = {"num_ctx": 32768}
    async with ScriptedOllama(answer, version="0.12.5") as ollama, running_gate(ollama.url, defaults=wide) as gate:
        reply = await ask(gate.address, "POST", "/api/chat", saying(words))
        assert reply.status == (200 if words == 100 else 400)
        assert len(ollama.got) == (words == 100)


async def test_what_its_template_refuses_is_not_sent_to_be_cut() -> None:
    odd = {**HELLO, "model": "qwen2.5:0.5b", "messages": [{"role": "user", "content": "hi"}], "think": True}

    async def outcome(line: Front) -> tuple[int, str | None]:
        reply = await line.ask("/api/chat", odd)
        return reply.status, reply.gate("verdict")

    async with front(settings=OLD) as line:
        status, verdict = await outcome(line)
        assert (status, verdict, len(line.got())) == (400, "refuse", 0)


@pytest.mark.parametrize(
    ("asked", "tokens", "sent"),
    [
        (None, 100, Output(899)),
        (0, 100, Output(899)),
        (-1, 100, Output(899)),
        (50, 100, Output(50)),
        (2000, 100, Output(899, clamped=True)),
        (50, 999, Output(1, clamped=True)),
        (50, 4000, Output(1, clamped=True)),
        (50, None, Output(None)),
    ],
)
def test_an_answer_always_has_a_length_that_ends_before_the_window(
    asked: int | None, tokens: int | None, sent: Output
) -> None:
    assert clamp_output(asked, tokens, Window(1000, 800, guarded=False)) == sent


async def test_an_answer_that_only_the_modelfile_asks_for_is_told_with_its_length() -> None:
    strict = {"on_long_reply": "refuse", "budget": 900}
    async with front(window=1024, settings=OLD, defaults=strict) as line:
        made = {"model": "long", "from": "llama3.2", "parameters": {"num_predict": 1000}, "stream": False}
        assert (await line.ask("/api/create", made)).status == 200
        prompt = {**saying(60), "model": "long"}
        tokens = (await line.count("/api/chat", prompt))["tokens"]
        refused = await line.ask("/api/chat", prompt)
    assert refused.status == 400
    assert refused.json["error"].startswith(f"prompt is too long: {tokens + 1000} tokens > 1024 maximum")
    assert refused.json["details"]["asked_output"] == 1000
