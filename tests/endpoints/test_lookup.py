"""The archive over HTTP."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.app import Gate
from ollama_gate.compaction.originals import Original, original_of
from ollama_gate.config import Config
from support.archives import said, talk
from support.gate import config_for, metric, running_gate
from support.http import Reply, ask
from support.keyring import add_key, bearer
from support.waiting import until

NOWHERE = "http://127.0.0.1:9"
LOCAL = {"Host": "127.0.0.1:11435"}


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    async with running_gate(NOWHERE, archive={"enabled": True, "url": str(tmp_path / "archive.db")}) as running:
        yield running


async def kept(gate: Gate, originals: list[Original], conversation: str = "talk") -> None:
    assert gate.wiring.archive is not None
    await gate.wiring.archive.keep(conversation, "m:latest", originals)


async def look(gate: Gate, asked: str, headers: Mapping[str, str] = LOCAL) -> Reply:
    return await ask(gate.address, "GET", f"/gate/archive/{asked}", headers=headers)


def refused(reply: Reply) -> tuple[int, str, str | None]:
    return reply.status, reply.json["code"], reply.json.get("param")


async def test_a_message_is_shown_by_its_hash_or_the_start_of_it(gate: Gate) -> None:
    call = {"id": "c1", "function": {"name": "read", "arguments": {"path": "/ä", "lines": [1, 2.5]}}}
    message = {"role": "assistant", "content": "I read it.\n", "tool_calls": [call]}
    original = original_of(message)
    await kept(gate, [original])
    for asked in (original.hash, original.hash[:12], original.hash[:40].upper()):
        reply = await look(gate, asked)
        assert reply.status == 200
        assert reply.header("Cache-Control") == "no-store"
        told = reply.json
        assert (told["hash"], told["role"], told["message"]) == (original.hash, "assistant", message)
        assert told["conversations"] == ["talk"]
        assert told["kept_at"].endswith("Z")


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        "",
        "0",
        "0123456789a",
        "g" * 12,
        "0" * 65,
        "../search",
        "..%2f..%2fetc",
        "%00" * 12,
        "%ff%fe",
        "%C3%A9" * 12,
        "x" * 4000,
    ],
)
async def test_what_is_no_hash_is_told_how_to_ask(gate: Gate, asked: str) -> None:
    reply = await look(gate, asked)
    assert refused(reply) in {(400, "invalid_request", "hash"), (404, "not_found", None)}
    assert len(reply.body) < 1000


async def test_a_message_that_is_not_there_is_not_found(gate: Gate) -> None:
    reply = await look(gate, "0" * 12)
    assert refused(reply) == (404, "not_found", "hash")
    assert "purged" in reply.json["error"]


async def test_a_search_finds_words_and_phrases_the_newest_first(gate: Gate) -> None:
    await kept(gate, [*said("The key is under the mat."), *said("Under the MAT, you say?", role="assistant")])
    await kept(gate, said("A mat, a key, and more: under everything."), "later")
    told = (await look(gate, "search?q=under+key")).json
    assert [match["excerpt"] for match in told["matches"]] == [
        "A mat, a key, and more: under everything.",
        "The key is under the mat.",
    ]
    assert (told["complete"], told["next"], told["searched"]) == (True, None, 3)
    assert len((await look(gate, "search?q=%22under+the+mat%22")).json["matches"]) == 2
    assert len((await look(gate, "search?q=mat&role=assistant")).json["matches"]) == 1
    assert len((await look(gate, "search?q=mat&conversation=later")).json["matches"]) == 1
    assert (await look(gate, "search?q=nowhere")).json["matches"] == []


async def test_a_search_goes_on_where_the_one_before_stopped(gate: Gate) -> None:
    await kept(gate, talk(25))
    found: list[str] = []
    target = "search?q=message&limit=10"
    pages = 0
    after = ""
    while pages < 10:
        told = (await look(gate, target + after)).json
        found += [match["hash"] for match in told["matches"]]
        pages += 1
        if told["complete"]:
            break
        after = f"&after={told['next']}"
    assert len(found) == len(set(found)) == 25
    assert pages == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("", "q"),
        ("?q=", "q"),
        ("?q=%20%22%22", "q"),
        ("?q=" + "x" * 1001, "q"),
        ("?q=" + "+".join(map(str, range(17))), "q"),
        ("?q=a&limit=0", "limit"),
        ("?q=a&limit=201", "limit"),
        ("?q=a&limit=%D9%A3", "limit"),
        ("?q=a&limit=-1", "limit"),
        ("?q=a&after=nonsense", "after"),
        ("?q=a&after=1-" + "g" * 64, "after"),
        ("?q=a&after=" + "9" * 400 + "-" + "0" * 64, "after"),
        ("?q=a&converstion=b", "converstion"),
    ],
)
async def test_what_cannot_be_searched_for_is_told(gate: Gate, query: str, param: str) -> None:
    assert refused(await look(gate, f"search{query}")) == (400, "invalid_request", param)


@pytest.mark.parametrize(
    "query", ["?q=%00", "?q=a&role=%00&conversation=%00", "?q=%ff%fe", "?q=%25%27%3B--", "?q=a&role=" + "x" * 99]
)
async def test_odd_queries_find_nothing_and_break_nothing(gate: Gate, query: str) -> None:
    await kept(gate, said("plain"))
    assert (await look(gate, f"search{query}")).json["matches"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "gate.example"},
        {"Host": "127.0.0.1:11435", "X-Forwarded-For": "10.0.0.9"},
        {"Host": "localhost:11435", "Forwarded": "for=10.0.0.9"},
    ],
    ids=str,
)
async def test_only_this_machine_is_shown_messages(gate: Gate, headers: dict[str, str]) -> None:
    original = said("secret")[0]
    await kept(gate, [original])
    for asked in (original.hash, "search?q=secret"):
        reply = await look(gate, asked, headers)
        assert refused(reply)[:2] in {(403, "local_only"), (403, "unknown_host")}
        assert b"secret" not in reply.body


async def test_with_keys_an_admins_is_needed_from_everywhere(tmp_path: Path) -> None:
    keys, original = tmp_path / "keys.json", said("secret")[0]
    admin, plain = add_key(keys, "ops", admin=True), add_key(keys, "app")
    archive = {"enabled": True, "url": str(tmp_path / "archive.db")}
    async with running_gate(NOWHERE, archive=archive, access={"keys": str(keys)}) as gate:
        await kept(gate, [original])
        for asked in (original.hash, "search?q=secret"):
            for headers, status in ((LOCAL, 401), ({**LOCAL, **bearer(plain)}, 403)):
                reply = await look(gate, asked, headers)
                assert reply.status == status
                assert b"secret" not in reply.body
            assert (await look(gate, asked, {**LOCAL, **bearer(admin)})).status == 200


async def test_other_methods_are_not_taken(gate: Gate) -> None:
    for method in ("POST", "DELETE", "PUT"):
        reply = await ask(gate.address, method, f"/gate/archive/{'0' * 12}", headers=LOCAL)
        assert (reply.status, reply.header("Allow")) == (405, "GET")
    assert (await ask(gate.address, "HEAD", "/gate/archive/search?q=a", headers=LOCAL)).status == 200


async def test_without_an_archive_it_is_said_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gate(NOWHERE) as gate:
        assert gate.wiring.archive is None
        assert refused(await look(gate, "0" * 12))[:2] == (404, "archive_off")
        status = (await ask(gate.address, "GET", "/gate/status")).json
    assert status["archive"] == {"enabled": False, "problem": None}


async def test_an_archive_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    file.write_bytes(b"this is not a database, and never was one" * 100)
    async with running_gate(NOWHERE, archive={"enabled": True, "url": str(file)}) as gate:
        reply = await look(gate, "0" * 12)
        assert refused(reply)[:2] == (503, "archive_failed")
        assert reply.header("Retry-After")
        status: dict[str, Any] = (await ask(gate.address, "GET", "/gate/status")).json
        assert "not a database" in status["archive"]["problem"]
        assert metric(gate, "archive_failures_total", what="read") == 1


@pytest.mark.slow
async def test_an_archive_comes_and_goes_with_the_configuration(tmp_path: Path) -> None:
    def config(**archive: object) -> Config:
        return config_for(NOWHERE, archive={"url": str(tmp_path / "archive.db"), **archive})

    original = said("kept")[0]
    async with running_gate(NOWHERE) as gate:
        assert await gate.reload(lambda: config(enabled=True))
        await kept(gate, [original])
        first = gate.wiring.archive
        assert await gate.reload(lambda: config(enabled=True))
        assert gate.wiring.archive is first
        assert (await look(gate, original.hash)).status == 200
        assert await gate.reload(lambda: config(enabled=True, keep_for="1d"))
        second = gate.wiring.archive
        assert first is not None
        assert second is not None
        assert second is not first
        assert (await look(gate, original.hash)).status == 200
        assert await gate.reload(lambda: config(enabled=False))
        assert refused(await look(gate, original.hash))[:2] == (404, "archive_off")
        await until(lambda: first.closed and second.closed)
