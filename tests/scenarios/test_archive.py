"""What a compaction leaves out can be looked up; what cannot be kept is not left out."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.compaction.originals import message_hash
from support import long_talks
from support.cases import Front
from support.http import Reply, ask
from support.long_talks import FACTS, Message
from support.shortened import compacting, sent

MARKED = re.compile(r"archived as ([0-9a-f]{12})|\[([0-9a-f]{12})\]")
LOCAL = {"Host": "127.0.0.1:11435"}
BUDGET = 4_000


def talk(messages: int = 44) -> list[Message]:
    """A conversation of twice the budget."""
    return long_talks.long_talk(messages, words=120)


async def chat(line: Front, messages: list[Message], model: str = "long") -> Reply:
    body = {"model": model, "stream": False, "options": {"num_predict": 2}}
    if not sent(line):
        assert (await line.ask("/api/chat", {**body, "messages": [{"role": "user", "content": "hi"}]})).status == 200
    return await line.ask("/api/chat", {**body, "messages": messages})


async def look(line: Front, asked: str) -> Any:
    reply = await ask(line.gate.address, "GET", f"/gate/archive/{asked}", headers=LOCAL)
    assert reply.status == 200, reply.body
    return reply.json


def archive(file: Path) -> dict[str, Any]:
    return {"enabled": True, "url": str(file)}


@pytest.mark.slow
async def test_every_message_of_a_compacted_conversation_can_be_looked_up(tmp_path: Path) -> None:
    messages = talk()
    async with compacting(BUDGET, archive=archive(tmp_path / "archive.db")) as line:
        reply = await chat(line, messages)
        assert (reply.status, reply.gate("verdict")) == (200, "compact")
        for message in messages:
            assert (await look(line, message_hash(message)))["message"] == message
        shown = {found[0] or found[1] for found in MARKED.findall(json.dumps(sent(line)[-1].json()["messages"]))}
        named = (reply.gate("archived") or "").split()
        assert shown
        assert named
        for prefix in (shown & {message_hash(message)[:12] for message in messages}) | set(named[:20]):
            assert (await look(line, prefix))["message"] in messages
        found = await look(line, "search?q=QUARRY-5519")
        assert [FACTS[0] in match["excerpt"] for match in found["matches"]] == [True]
        assert line.metric("archive_messages_total", kind="new") == len({message_hash(one) for one in messages})


@pytest.mark.slow
async def test_what_fits_its_budget_is_never_written(tmp_path: Path) -> None:
    async with compacting(BUDGET, archive=archive(tmp_path / "archive.db")) as line:
        assert (await chat(line, talk(8))).gate("verdict") == "admit"
        assert (await look(line, "search?q=the"))["searched"] == 0


@pytest.mark.slow
async def test_another_gate_goes_on_with_the_same_beginning(tmp_path: Path) -> None:
    messages, keeping = talk(), archive(tmp_path / "archive.db")
    async with compacting(BUDGET, archive=keeping) as line:
        assert (await chat(line, messages)).gate("checkpoint") == "new"
        first = sent(line)[-1].json()["messages"]
    more = [*messages, {"role": "assistant", "content": "Aye."}, {"role": "user", "content": long_talks.FACTS_QUESTION}]
    async with compacting(BUDGET, archive=keeping) as line:
        assert (await chat(line, more)).gate("checkpoint") == "reused"
        second = sent(line)[-1].json()["messages"]
        assert (await look(line, message_hash(more[-2])))["message"] == more[-2]
    assert second[: len(first)] == first
    async with compacting(BUDGET, archive=archive(tmp_path / "another.db")) as line:
        assert (await chat(line, more)).gate("checkpoint") == "new"


@pytest.mark.slow
async def test_without_a_place_to_keep_it_a_conversation_is_refused_and_others_go_on(tmp_path: Path) -> None:
    obstacle = tmp_path / "state"
    obstacle.write_text("in the way")
    async with compacting(BUDGET, archive=archive(obstacle / "archive.db")) as line:
        refused = await chat(line, talk())
        assert (refused.status, refused.json["code"]) == (400, "context_length_exceeded")
        assert "could not be archived" in json.dumps(refused.json)
        assert (await chat(line, talk(8))).status == 200
        assert line.metric("archive_failures_total", what="keep") >= 1
        obstacle.unlink()
        line.gate.wiring.archive._unready = None  # type: ignore[union-attr]  # its two seconds are over
        again = await chat(line, [*talk(), {"role": "assistant", "content": "Aye."}, talk()[-1]])
        assert (again.status, again.gate("verdict")) == (200, "compact")


@pytest.mark.slow
async def test_a_picture_is_in_no_file(tmp_path: Path) -> None:
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(3000)).decode()
    messages = talk()
    messages[3] = {**messages[3], "images": [picture]}
    async with compacting(BUDGET, archive=archive(tmp_path / "archive.db")) as line:
        assert (await chat(line, messages, "long-vision")).gate("verdict") == "compact"
        kept = (await look(line, message_hash(messages[3])))["message"]
    assert (kept["role"], kept["content"]) == (messages[3]["role"], messages[3]["content"])
    assert [image[:8] for image in kept["images"]] == ["blake2b:"]
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert picture[100:160].encode() not in files
    assert base64.b64decode(picture)[100:160] not in files
