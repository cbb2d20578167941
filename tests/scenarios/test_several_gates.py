"""Several gates, each in front of an Ollama of its own, and one database: one key, one quota, one memory of counts."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ollama_gate.access.quotas import Usage
from ollama_gate.app import Gate
from ollama_gate.archive.schema import key as key_table
from ollama_gate.cli import main
from ollama_gate.config.archive import Archive, archive_url
from ollama_gate.config.server import Shared
from ollama_gate.errors import ConfigError
from ollama_gate.observe import log
from ollama_gate.rehearsal import Rehearsal
from ollama_gate.shared.exchange import Exchange
from support.archives import database_url, needs_postgresql, opened, through, url
from support.gate import metric, running_gate
from support.http import Reply, ask
from support.keyring import bearer

__all__ = ("url",)

HELLO = {
    "model": "rehearsal-go",
    "messages": [{"role": "user", "content": "Say hi."}],
    "stream": False,
    "options": {"num_predict": 2},
}


@dataclass(slots=True)
class Operator:
    """Who makes keys on the command line."""

    home: Path
    url: str

    async def keys(self, *arguments: str) -> Any:
        """What `ollama-gate keys` writes."""
        file = self.home / "ollama-gate.toml"
        file.write_text(f"[shared]\nenabled = true\n[archive]\nurl = {json.dumps(self.url)}\n")
        command = ["keys", *arguments, "--config", str(file), "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, main, command)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    async def new_key(self, name: str, *limits: str) -> str:
        """The text of a new key."""
        text: str = (await self.keys("add", name, *limits))["key"]
        return text


@asynccontextmanager
async def gate_at(ollama: Rehearsal, url: str, home: Path, name: str = "one", **sections: Any) -> AsyncIterator[Gate]:
    """A gate that shares, on a host of its own."""
    counting = {"cache_dir": str(home / name)}
    archive = {"url": url}
    async with running_gate(
        ollama.url, shared={"enabled": True}, archive=archive, counting=counting, **sections
    ) as gate:
        yield gate


@asynccontextmanager
async def two_gates(url: str, home: Path) -> AsyncIterator[tuple[Gate, Gate]]:
    async with (
        Rehearsal() as ollama,
        Rehearsal() as other,
        gate_at(ollama, url, home) as one,
        gate_at(other, url, home, "two") as two,
    ):
        yield one, two


def exchange(gate: Gate) -> Exchange:
    assert gate.exchange is not None
    return gate.exchange


def usage(gate: Gate) -> Usage:
    [key] = gate.entrance.door.ring.keys
    return gate.entrance.quotas.of(key)


async def share(*gates: Gate) -> None:
    """A second passes: all tell and hear."""
    for gate in (*gates, *gates):
        await exchange(gate).once()


async def chat(gate: Gate, key: str) -> Reply:
    return await ask(gate.address, "POST", "/api/chat", HELLO, headers=bearer(key))


@pytest.mark.slow
async def test_what_is_used_up_at_one_gate_is_used_up_at_the_other_also_after_a_restart(
    url: str, tmp_path: Path
) -> None:
    key = await Operator(tmp_path, url).new_key("laptop", "--requests-per-day", "3", "--tokens-per-minute", "1000")
    async with two_gates(url, tmp_path) as (one, two):
        assert [(await chat(one, key)).status for _ in range(2)] == [200, 200]
        await share(one, two)
        assert [(await chat(two, key)).status for _ in range(2)] == [200, 429]
        await share(two, one)
        refused = await chat(one, key)
        assert (refused.status, refused.json["code"]) == (429, "rate_limit_exceeded")
        assert refused.json["details"]["quota"] == "requests_per_day"
        used = [usage(gate).tokens_minute.used(time.time()) for gate in (one, two)]
        assert used[0] == used[1] > 0
    async with Rehearsal() as ollama, gate_at(ollama, url, tmp_path) as again:
        assert (await chat(again, key)).status == 429


@pytest.mark.slow
async def test_a_key_that_was_made_or_revoked_is_so_at_every_gate(url: str, tmp_path: Path) -> None:
    operator = Operator(tmp_path, url)
    first = await operator.new_key("laptop")
    async with two_gates(url, tmp_path) as (one, two):
        assert [(await chat(gate, first)).status for gate in (one, two)] == [200, 200]
        second = await operator.new_key("desktop")
        await share(one, two)
        assert [(await chat(gate, second)).status for gate in (one, two)] == [200, 200]
        await operator.keys("revoke", "laptop")
        await share(one, two)
        assert [(await chat(gate, first)).status for gate in (one, two)] == [401, 401]
        third = (await operator.keys("rotate", "desktop"))["key"]
        await share(one, two)
        assert [(await chat(gate, key)).status for gate in (one, two) for key in (second, third)] == [401, 200] * 2
        listed = await operator.keys("list", "--all")
        assert [(row["name"], row["state"]) for row in listed] == [
            ("laptop", "revoked"),
            ("desktop", "revoked"),
            ("desktop", "in force"),
        ]


@pytest.mark.slow
async def test_what_one_gate_learned_of_a_models_counts_another_knows(url: str, tmp_path: Path) -> None:
    key = await Operator(tmp_path, url).new_key("admin", "--admin")

    async def rung(gate: Gate) -> Any:
        return (await ask(gate.address, "POST", "/gate/count", HELLO, headers=bearer(key))).json["rung"]

    async with two_gates(url, tmp_path) as (one, two):
        assert [await rung(gate) for gate in (one, two)] == ["estimate", "estimate"]
        assert (await chat(one, key)).status == 200
        assert await rung(one) == "exact"
        for gate in (one, two):
            exchange(gate)._learned_at = float("-inf")  # half a minute passes
        await share(one, two)
        assert await rung(two) == "exact"
    async with Rehearsal() as ollama, gate_at(ollama, url, tmp_path, "three") as three:
        assert await rung(three) == "exact"


@needs_postgresql
@pytest.mark.slow
async def test_while_the_database_is_away_both_gates_go_on_and_afterwards_all_is_counted(tmp_path: Path) -> None:
    async with database_url("postgresql", tmp_path) as direct, through(direct) as (forwarder, url):
        operator = Operator(tmp_path, direct)
        key = await operator.new_key("laptop", "--requests-per-day", "6")
        admin = await operator.new_key("admin", "--admin")
        async with two_gates(url, tmp_path) as (one, two):
            await share(one, two)
            await forwarder.close()
            await share(one, two)
            assert [(await chat(gate, key)).status for gate in (one, two, one, two)] == [200] * 4
            assert (await chat(one, f"{key[:-1]}{'A' if key[-1] != 'A' else 'B'}")).status == 401
            for gate in (one, two):
                told = (await ask(gate.address, "GET", "/gate/status", headers=bearer(admin))).json["shared"]
                assert told["enabled"]
                assert "Connect" in told["problem"]
                assert metric(gate, "shared_failures_total") >= 1
                assert metric(gate, "shared_behind_seconds") > 0
            await forwarder.open()
            await share(one, two)
            assert [exchange(gate).problem for gate in (one, two)] == ["", ""]
            assert [(await chat(one, key)).status for _ in range(3)] == [200, 200, 429]
            await share(one, two)
            assert (await chat(two, key)).status == 429


@needs_postgresql
@pytest.mark.slow
async def test_a_gate_that_has_never_read_its_keys_lets_nobody_in_until_it_has(tmp_path: Path) -> None:
    async with database_url("postgresql", tmp_path) as direct, through(direct) as (forwarder, url):
        key = await Operator(tmp_path, direct).new_key("laptop")
        await forwarder.close()
        async with Rehearsal() as ollama, gate_at(ollama, url, tmp_path) as gate:
            for headers in ({}, bearer(key)):
                shut = await ask(gate.address, "POST", "/api/chat", HELLO, headers=headers)
                assert (shut.status, shut.json["code"], shut.header("Retry-After")) == (503, "keys_unknown", "2")
            assert (await ask(gate.address, "GET", "/api/tags")).status == 503
            health = await ask(gate.address, "GET", "/gate/health")
            assert (health.status, health.json["ready"]) == (503, False)
            assert "/api/chat" not in {seen.path for seen in ollama.journal}
            await forwarder.open()
            await share(gate)
            assert (await chat(gate, key)).status == 200
            assert (await ask(gate.address, "POST", "/api/chat", HELLO)).status == 401
            assert (await ask(gate.address, "GET", "/gate/health")).status == 200


@pytest.mark.slow
async def test_a_gate_that_others_can_reach_is_never_open_for_want_of_shared_keys(tmp_path: Path) -> None:
    url = str(tmp_path / "archive.db")
    operator, public = Operator(tmp_path, url), {"listen": "0.0.0.0:0"}
    async with Rehearsal() as ollama:
        with pytest.raises(ConfigError, match="others can reach"):
            async with gate_at(ollama, url, tmp_path, server=public):
                pass
        key = await operator.new_key("laptop")
        async with gate_at(ollama, url, tmp_path, server=public) as gate:
            assert (await chat(gate, key)).status == 200
            async with opened(archive_url(url)) as database, database.writing() as connection:
                await connection.execute(key_table.delete())
            await share(gate)
            assert (await chat(gate, key)).status == 401
            assert (await ask(gate.address, "POST", "/api/chat", HELLO)).status == 401


@pytest.mark.slow
async def test_sharing_begins_and_ends_with_a_restart_only(
    tmp_path: Path, written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "configure", lambda *_: None)  # a reload would write elsewhere from there on
    url = str(tmp_path / "archive.db")
    key = await Operator(tmp_path, url).new_key("laptop")
    async with Rehearsal() as ollama, gate_at(ollama, url, tmp_path) as gate:
        on, off = gate.config, gate.config.model_copy(update={"shared": Shared()})
        other = on.model_copy(update={"archive": Archive(url=str(tmp_path / "other.db"))})
        for config in (off, off, on, other, on):
            assert await gate.reload(config.model_copy)
        told = [line["event"] for line in map(json.loads, written_log.getvalue().splitlines())]
        assert [event for event in told if "restart only" in event] == [
            *["shared.enabled is changed by a restart only"] * 2,
            "archive.url is changed by a restart only for what is shared: it stays where it was",
        ]
        await share(gate)
        assert (await chat(gate, key)).status == 200
        assert (await ask(gate.address, "POST", "/api/chat", HELLO)).status == 401
