"""Compaction that cannot: the same refusal as without it, at once for everybody else, and no trace of it afterwards."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from ollama_gate.compaction.originals import ArchiveFailed, Original, message_hash
from ollama_gate.compaction.process import WorkerProcess
from support import long_talks
from support.cases import Front, assert_r400
from support.http import Reply
from support.shortened import compacting, full, sent
from support.waiting import until

TALK = long_talks.long_talk(42, 60)
OTHER = {"model": "long-go", "messages": [{"role": "user", "content": "hi"}], "stream": False}


async def chat(line: Front, talk: Any = TALK, **more: Any) -> Reply:
    return await line.ask("/api/chat", {"model": "long", "messages": talk, "stream": False, **more})


def worker(line: Front) -> WorkerProcess:
    return line.gate.wiring.compactor.worker


def pid(line: Front) -> int:
    process = worker(line).process
    assert process is not None
    return process.pid


async def warm(line: Front) -> None:
    """Have tokenizer and worker there, and no refusal remembered."""
    assert (await chat(line, long_talks.long_talk(44, 60))).gate("verdict") == "compact"


@pytest.mark.slow
async def test_a_worker_that_hangs_is_ended_and_delays_nobody() -> None:
    async with compacting(3_000, compaction={"deadline": "1s"}) as line:
        await warm(line)
        await line.ask("/api/chat", OTHER)
        os.kill(pid(line), signal.SIGSTOP)
        hung = asyncio.create_task(chat(line))
        await until(lambda: worker(line).working)
        for _ in range(5):
            assert (await line.ask("/api/chat", OTHER)).status == 200
        assert not hung.done(), "the others did not wait for it"
        refused = assert_r400(await hung, "messages")
        assert refused.facts["compaction"] == {"outcome": "deadline", "why": "it took longer than 1 s"}
        assert refused.message.endswith("Compaction was tried and did not help: it took too long.")
        assert line.metric("compactions_total", model=full("long"), outcome="deadline") == 1
        line.gate.wiring.pipeline.judge.models_changed()  # forget the refusal
        assert (await chat(line, [*TALK[:-1], {"role": "user", "content": "What is the code?"}])).status == 200


@pytest.mark.slow
async def test_who_waits_behind_one_that_hangs_has_the_whole_time_for_its_own() -> None:
    async with compacting(3_000, compaction={"deadline": "2s"}) as line:
        await warm(line)
        os.kill(pid(line), signal.SIGSTOP)
        hung = asyncio.create_task(chat(line))
        await until(lambda: worker(line).working)
        behind = [asyncio.create_task(chat(line, long_talks.long_talk(44, seed))) for seed in (61, 62, 63)]
        assert_r400(await hung, "messages")
        assert [(await one).gate("verdict") for one in behind] == ["compact"] * 3


async def test_nobody_waits_for_others_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ollama_gate.compaction.compactor.MOST_WAIT", 0.05)
    async with compacting(3_000) as line:
        await line.ask("/api/chat", OTHER)
        async with line.gate.wiring.compactor._turn:
            refused = assert_r400(await chat(line), "messages")
        assert refused.facts["compaction"]["outcome"] == "deadline"
        assert "others were compacted" in refused.facts["compaction"]["why"]
        line.gate.wiring.pipeline.judge.models_changed()  # forget the refusal
        assert (await chat(line)).gate("verdict") == "compact"


@pytest.mark.slow
async def test_loading_a_model_is_not_compactions_time() -> None:
    """The renderer's prompts are counted by Ollama's own text, for which the model is loaded."""
    async with compacting(3_000, load_seconds=1.5, compaction={"deadline": "1s"}) as line:
        await line.ask("/gate/tokenize", {"model": "long-renderer", "text": "hi"})  # its vocabulary is there
        reply = await chat(line, model="long-renderer")
        assert (reply.status, reply.gate("verdict")) == (200, "compact"), reply.body


@pytest.mark.slow
async def test_a_worker_that_is_killed_is_started_again() -> None:
    async with compacting(3_000) as line:
        await warm(line)
        os.kill(pid(line), signal.SIGKILL)
        assert (await chat(line)).gate("verdict") == "compact"
        assert worker(line).starts == 2


async def test_a_worker_that_cannot_run_is_a_refusal() -> None:
    async with compacting(3_000) as line:
        line.gate.wiring.compactor.worker = WorkerProcess(1 << 20, ("-c", "raise SystemExit(1)"))
        refused = assert_r400(await chat(line), "messages")
        assert refused.facts["compaction"]["outcome"] == "failed"
        assert "process ended" in refused.facts["compaction"]["why"]
        assert not sent(line)


LIES = """
import json, socket, struct, sys
def plan(**changes):
    kept = [[at, -1, 0, -1, 1, 1] for at in range(42)]
    return {"plan": json.dumps({"kept": kept, "excerpts": [], "called": [], "arguments": 9, "noted": 0, **changes}),
            "tokens": 5}
with socket.socket(fileno=int(sys.argv[1])) as channel:
    channel.recv(1 << 24)
    said = json.dumps(LIE).encode()
    channel.sendall(struct.pack("<Q", len(said)) + said)
    channel.recv(1)
"""


@pytest.mark.parametrize(
    ("lie", "outcome"),
    [
        ("plan(kept=[[41, -1, 0, -1, 1, 1]])", "check_failed"),
        ("plan(kept=[[at, 0, 0, -1, 1, 1] for at in range(42)])", "check_failed"),
        ('{"plan": "rubbish", "tokens": 5}', "check_failed"),
        ('{"plan": 7}', "failed"),
        ('{"count": 7}', "failed"),
        ('{"similar": 7}', "failed"),
        ('{"cannot": "no", "outcome": "odd"}', "failed"),
    ],
)
async def test_a_worker_that_lies_is_not_believed(lie: str, outcome: str) -> None:
    async with compacting(3_000) as line:
        line.gate.wiring.compactor.worker = WorkerProcess(512 << 20, ("-c", LIES.replace("LIE)", f"{lie})")))
        refused = assert_r400(await chat(line), "messages")
        assert refused.facts["compaction"]["outcome"] == outcome
        assert not sent(line)


async def test_a_worker_that_keeps_all_does_not_get_it_past_the_budget() -> None:
    async with compacting(3_000) as line:
        line.gate.wiring.compactor.worker = WorkerProcess(512 << 20, ("-c", LIES.replace("LIE)", "plan())")))
        refused = assert_r400(await chat(line), "messages")
        assert refused.facts["compaction"]["outcome"] in ("does_not_fit", "failed")
        assert not sent(line)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "user", "content": "x"}] * 4_097, "more than 4096 messages"),
        (TALK, "larger than 1024 bytes"),
    ],
)
async def test_what_is_too_large_is_not_even_begun(messages: Any, why: str) -> None:
    limit = 1024 if messages is TALK else "4MiB"
    async with compacting(3_000, compaction={"max_input": limit}) as line:
        refused = assert_r400(await chat(line, messages), "messages")
        assert refused.facts["compaction"]["outcome"] == "too_large"
        assert why in refused.facts["compaction"]["why"]
        assert worker(line).starts == 0


async def test_a_client_that_leaves_stops_the_work() -> None:
    async with compacting(3_000) as line:
        await warm(line)
        os.kill(pid(line), signal.SIGSTOP)
        leaving = asyncio.create_task(chat(line))
        await until(lambda: worker(line).working)
        leaving.cancel()
        await until(lambda: not worker(line).working)
        assert worker(line).process is None
        await until(lambda: line.metric("compactions_total", model=full("long"), outcome="left") == 1)


class Full:
    """An archive on a full disk."""

    async def keep(self, conversation: str, model: str, originals: Sequence[Original]) -> None:
        del conversation, model, originals
        raise ArchiveFailed("no space left on device")


async def test_a_full_disk_refuses_compactions_and_nothing_else() -> None:
    async with compacting(3_000) as line:
        line.gate.wiring.compactor._archive = Full()
        refused = assert_r400(await chat(line), "messages")
        assert refused.facts["compaction"]["outcome"] == "archive_failed"
        assert (await line.ask("/api/chat", {**OTHER, "model": "long"})).status == 200


async def test_what_failed_for_a_passing_reason_is_tried_again_and_not_refused_by_heart() -> None:
    async with compacting(3_000) as line:
        archive, line.gate.wiring.compactor._archive = line.gate.wiring.compactor._archive, Full()
        assert_r400(await chat(line), "messages")
        line.gate.wiring.compactor._archive = archive
        assert (await chat(line)).gate("checkpoint") == "new"


@pytest.mark.slow
async def test_originals_are_in_the_archive_before_they_are_replaced(tmp_path: Path) -> None:
    archive = {"enabled": True, "url": f"sqlite:///{tmp_path / 'archive.db'}"}
    async with compacting(3_000, archive=archive) as line:
        reply = await chat(line)
        assert reply.gate("checkpoint") == "new"
        keeper = line.gate.wiring.archive
        assert keeper is not None
        for prefix in (reply.gate("archived") or "").split():
            (found,) = await keeper.find(prefix.lstrip("+"))
            assert found.hash.startswith(prefix)
        for message in TALK:
            (found,) = await keeper.find(message_hash(message))
            assert orjson.loads(found.body)["content"] == message["content"]
        longer = [*TALK, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "And then?"}]
        assert (await chat(line, longer)).gate("checkpoint") == "reused"
        assert await keeper.find(message_hash(longer[-1]))


async def test_the_digest_is_chosen_by_meaning_where_there_is_an_embedding_model() -> None:
    async with compacting(3_000, compaction={"embed_model": "all-minilm"}) as line:
        assert (await chat(line)).gate("verdict") == "compact"
        asked = [text for entry in line.got("/api/embed") for text in entry.json()["input"]]
        assert asked[0] == TALK[-1]["content"]
        assert 20 < len(asked) <= 65
        assert all(entry.json()["truncate"] is False for entry in line.got("/api/embed"))
        await chat(line, [*TALK[:-1], {"role": "assistant", "content": "?"}, TALK[-1]])
        again = [text for entry in line.got("/api/embed") for text in entry.json()["input"]]
        assert len(again) < len(asked) + 10, "vectors are remembered"


@pytest.mark.parametrize("model", ["no-such-model", "long"])
async def test_an_embedding_model_that_is_none_leaves_the_words_alone_to_decide(model: str) -> None:
    async with compacting(3_000, compaction={"embed_model": model}) as line:
        assert (await chat(line)).gate("verdict") == "compact"
        assert all(fact in sent(line)[-1].json()["messages"][1]["content"] for fact in long_talks.FACTS)
