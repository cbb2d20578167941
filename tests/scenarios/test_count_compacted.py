"""/gate/count?compact=1: what compaction would make of a conversation, with nothing sent, archived or remembered."""

import asyncio
import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.compaction.outcome import Case
from ollama_gate.compaction.terms import Terms
from ollama_gate.tasks import spawn
from support import long_talks
from support.cases import Front
from support.gate import metric
from support.shortened import compacting, sent
from support.waiting import until


def body(talk: list[Any], **more: Any) -> dict[str, Any]:
    return {"model": "long", "stream": False, "options": {"num_predict": 2}, "messages": talk, **more}


async def asked(line: Front, talk: list[Any], **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = (await line.ask("/gate/count?compact=1", body(talk, **more))).json
    return told


@pytest.mark.slow
async def test_it_says_what_then_happens_and_leaves_no_trace(tmp_path: Path) -> None:
    talk = long_talks.long_talk()
    archive = {"enabled": True, "url": f"sqlite:///{tmp_path / 'archive.db'}"}
    async with compacting(13_000, archive=archive) as line:
        await line.ask("/api/chat", body([{"role": "user", "content": "hi"}]))
        told = await asked(line, talk)
        again = await asked(line, talk)
        assert len(sent(line)) == 1
        assert metric(line.gate, "archive_messages_total", kind="new") == 0
        reply = await line.ask("/api/chat", body(talk))
        after = await asked(line, talk)
        assert metric(line.gate, "archive_messages_total", kind="new") == len(talk)
    compaction = told["compaction"]
    assert told["verdict"] == "compact"
    assert again == told
    assert (compaction["outcome"], compaction["on"]) == ("new", True)
    assert (compaction["from"], compaction["to"]) == (told["tokens"], int(reply.gate("compacted-to") or 0))
    assert reply.gate("checkpoint") == "new"
    assert compaction["messages"] == len(talk) == compaction["whole"] + compaction["shortened_or_dropped"]
    assert compaction["messages_after"] == len(sent(line)[-1].json()["messages"])
    assert after["compaction"]["outcome"] == "reused"


async def test_it_says_so_where_it_is_off_not_needed_or_no_help() -> None:
    short, stuck = [{"role": "user", "content": "hi"}], [{"role": "user", "content": "word " * 20_000}]
    async with compacting(2_000, defaults={"compaction": False}) as line:
        fits = await asked(line, short)
        whole = await asked(line, stuck)
        silent = (await line.ask("/gate/count", body(stuck))).json
        assert sent(line) == []
    assert fits["compaction"] == {"on": False, "from": fits["tokens"], "outcome": "not_needed"}
    assert (whole["verdict"], whole["compaction"]["on"]) == ("refuse", False)
    assert whole["compaction"]["outcome"] == "does_not_fit"
    assert whole["compaction"]["why"]
    assert "compaction" not in silent


async def test_a_body_is_as_large_as_its_text_however_it_was_sent() -> None:
    """As where it is sent: neither pictures nor its compression decide whether it is too large."""
    image = base64.b64encode(bytes(300_000)).decode()
    pictured = [{"role": "user", "content": "word " * 4_000, "images": [image]}]
    async with compacting(2_000, compaction={"max_input": "200KiB"}) as line:
        answer = await asked(line, pictured)
        assert answer["verdict"] == "refuse", "it was tried, and does not help"
        told = answer["compaction"]
        packed = gzip.compress(json.dumps(body([{"role": "user", "content": "word " * 60_000}])).encode())
        large = await line.ask("/gate/count?compact=1", packed, headers={"Content-Encoding": "gzip"})
    assert told["outcome"] == "does_not_fit"
    assert large.json["compaction"]["outcome"] == "too_large"


@pytest.mark.slow
async def test_there_is_one_at_a_time_and_a_request_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = long_talks.long_talk()
    async with compacting(13_000, compaction={"deadline": "30s"}) as line:
        await line.ask("/api/chat", body([{"role": "user", "content": "hi"}]))
        worker, begun = line.gate.wiring.compactor.worker, asyncio.Event()
        whole = worker.ask

        async def held(job: bytes, answer: Any) -> dict[str, Any]:
            if begun.is_set():
                return await whole(job, answer)
            begun.set()
            await asyncio.Event().wait()  # until somebody ends it
            raise AssertionError

        monkeypatch.setattr(worker, "ask", held)
        first = spawn(line.ask("/gate/count?compact=1", body(talk)), name="the first to look")
        await begun.wait()
        second = await line.ask("/gate/count?compact=1", body(talk))
        reply = await line.ask("/api/chat", body(talk))
        gave_way = await first
        after = await asked(line, talk)
    assert (second.status, second.json["code"], second.header("Retry-After")) == (503, "compaction_busy", "30")
    assert (reply.status, reply.gate("verdict"), reply.gate("checkpoint")) == (200, "compact", "new")
    assert (gave_way.status, gave_way.json["code"]) == (503, "compaction_busy")
    assert after["compaction"]["outcome"] == "reused"


@pytest.mark.slow
async def test_two_requests_may_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = long_talks.long_talk()
    async with compacting(13_000, compaction={"deadline": "30s"}) as line:
        await line.ask("/api/chat", body([{"role": "user", "content": "hi"}]))
        compactor, begun, ended, go = line.gate.wiring.compactor, asyncio.Event(), asyncio.Event(), asyncio.Event()
        worker, measured, come = compactor.worker, compactor._measured, []
        whole = worker.ask

        async def held(job: bytes, answer: Any) -> dict[str, Any]:
            if begun.is_set():
                return await whole(job, answer)
            begun.set()
            try:
                await asyncio.Event().wait()  # until somebody ends it
            finally:
                ended.set()
                await go.wait()
            raise AssertionError

        async def noted(case: Case) -> Terms:
            come.append(case)
            return await measured(case)

        monkeypatch.setattr(worker, "ask", held)
        preview = spawn(line.ask("/gate/count?compact=1", body(talk)), name="who looks")
        await begun.wait()
        monkeypatch.setattr(compactor, "_measured", noted)
        first = spawn(line.ask("/api/chat", body(talk)), name="the first")
        await ended.wait()
        other = [talk[0], {"role": "user", "content": "Another matter."}, *talk[1:]]
        second = spawn(line.ask("/api/chat", body(other)), name="the second")
        await until(lambda: len(come) == 2 or second.done())
        go.set()
        replies = [await first, await second]
        assert (await preview).status == 503
    assert [(reply.status, reply.gate("verdict")) for reply in replies] == [(200, "compact")] * 2
