"""A gate that is reloaded, drained and stopped while requests are under way."""

import asyncio
import io
import json
import os
import signal
from collections.abc import AsyncIterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ollama_gate import app
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config, load
from ollama_gate.counting.store import TokenizerStore
from ollama_gate.errors import ConfigError
from ollama_gate.notify import Notifier
from ollama_gate.observe import log
from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import config_for, metric, running_gate
from support.http import Client, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, chunk
from support.waiting import until

MODEL = "rehearsal-go"
CHAT = {"model": MODEL, "stream": False, "messages": [{"role": "user", "content": "hi"}]}
LONG = {**CHAT, "messages": [{"role": "user", "content": "word " * 900}]}


@pytest.fixture(autouse=True)
def _one_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload sets the log up anew; here it stays the test's."""
    monkeypatch.setattr(log, "configure", lambda *_: None)


@pytest.fixture
async def ollama() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Settings()) as rehearsal:
        yield rehearsal


def workers(gate: app.Gate) -> list[int]:
    """The processes of its tokenizers."""
    loaded = [entry.tokenizer for entry in gate.wiring._store._entries.values()]
    return [tokenizer.worker.process.pid for tokenizer in loaded if tokenizer is not None]


def events(log: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in log.getvalue().splitlines()]


async def test_a_new_configuration_holds_from_the_next_request_on(ollama: Rehearsal) -> None:
    async with running_gate(ollama.url, defaults={"num_ctx": 512}) as gate:
        refused = await ask(gate.address, "POST", "/api/chat", LONG)
        assert await gate.reload(lambda: config_for(ollama.url, defaults={"num_ctx": 4096}))
        passed = await ask(gate.address, "POST", "/api/chat", LONG)
        windows = {entry.json()["options"]["num_ctx"] for entry in ollama.journal.to("/api/chat")}
    assert (refused.status, passed.status) == (400, 200)
    assert windows == {4096}


async def test_the_status_page_knows_the_models_right_behind_a_reload(ollama: Rehearsal) -> None:
    async with running_gate(ollama.url) as gate:
        assert (await ask(gate.address, "POST", "/api/chat", LONG)).status == 200
        before = (await ask(gate.address, "GET", "/gate/status")).json["models"]
        assert await gate.reload(lambda: config_for(ollama.url, defaults={"num_ctx": 4096}))
        after = (await ask(gate.address, "GET", "/gate/status")).json["models"]
        assert before
        assert [model["name"] for model in after] == [model["name"] for model in before]
        async with Rehearsal(Settings()) as other:
            assert await gate.reload(lambda: config_for(other.url))
            assert (await ask(gate.address, "GET", "/gate/status")).json["models"] == []


async def test_a_bad_configuration_is_refused_and_the_old_one_stays(
    ollama: Rehearsal, written_log: io.StringIO
) -> None:
    def bad() -> Config:
        raise ConfigError("[models] is not a table")

    async with running_gate(ollama.url, defaults={"num_ctx": 512}) as gate:
        before = gate.wiring
        assert not await gate.reload(bad)
        assert gate.wiring is before
        reply = await ask(gate.address, "POST", "/api/chat", CHAT)
    assert reply.gate("window") == "512"
    problems = [json.loads(line).get("problem") for line in written_log.getvalue().splitlines()]
    assert "[models] is not a table" in problems


SCRIPTED = {**CHAT, "model": "llama3.2"}
ANSWER = b'{"message":{"role":"assistant","content":"x"},"done":true}\n'


@dataclass(slots=True)
class Held:
    """Answers begin, and end when they are let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + chunk(b'{"message":{"role":"assistant","content":"x"},"done":false}\n'))
        await self.go.wait()
        writer.write(chunk(ANSWER) + LAST_CHUNK)


async def test_requests_under_way_finish_as_they_began() -> None:
    held = Held()
    async with (
        ScriptedOllama(held) as ollama,
        running_gate(ollama.url, defaults={"num_ctx": 8192}) as gate,
        await Client.connect(gate.address) as client,
    ):
        await client.send("POST", "/api/chat", {**SCRIPTED, "stream": True})
        reply = await client.head()
        old = gate.wiring
        assert await gate.reload(lambda: config_for(ollama.url, defaults={"num_ctx": 16384}))
        assert gate.wiring is not old
        held.go.set()
        await client.rest(reply)
        assert reply.complete
        assert reply.body.endswith(ANSWER)
        await until(lambda: not old.users)
        # The slot is one and the same thing before and after: the next request gets it.
        assert (await ask(gate.address, "POST", "/api/chat", SCRIPTED)).gate("window") == "16384"
        assert [queue.running for queue in gate.wiring.admission.gatekeeper.scheduler.queues.values()] == [0]


async def test_what_two_reloads_have_in_common_stays_until_the_oldest_requests_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reload hands the tokenizers on, the second one makes others: the first configuration's are in use."""
    held, closed = Held(), asyncio.Event()
    async with (
        ScriptedOllama(held) as ollama,
        running_gate(ollama.url) as gate,
        asyncio.TaskGroup() as group,
    ):
        request = group.create_task(ask(gate.address, "POST", "/api/chat", SCRIPTED))
        await until(lambda: ollama.got)
        store, close = gate.wiring._store, TokenizerStore.close

        async def noted(one: TokenizerStore) -> None:
            if one is store:
                closed.set()
            await close(one)

        monkeypatch.setattr(TokenizerStore, "close", noted)
        assert await gate.reload(lambda: config_for(ollama.url, defaults={"num_ctx": 4096}))
        assert gate.wiring._store is store
        assert await gate.reload(lambda: config_for(ollama.url, counting={"cache_dir": str(tmp_path)}))
        assert gate.wiring._store is not store
        assert (await ask(gate.address, "GET", "/gate/health")).status == 200
        assert not closed.is_set()
        held.go.set()
        assert (await request).status == 200
        async with asyncio.timeout(5):
            await closed.wait()


async def test_who_waits_for_a_slot_keeps_the_place_over_a_reload() -> None:
    held = Held()
    async with (
        ScriptedOllama(held) as ollama,
        running_gate(ollama.url) as gate,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(ask(gate.address, "POST", "/api/chat", {**SCRIPTED, "stream": True}))
        await until(lambda: ollama.got)
        second = group.create_task(ask(gate.address, "POST", "/api/chat", {**SCRIPTED, "stream": True}))
        await until(lambda: [turn for turn in gate.turns.values() if turn.phase == "queued"])
        assert await gate.reload(lambda: config_for(ollama.url))
        assert len(ollama.got) == 1
        held.go.set()
        assert [(await one).status for one in (first, second)] == [200, 200]


async def test_tokenizers_and_who_was_refused_outlive_a_reload(ollama: Rehearsal) -> None:
    long: dict[str, Any] = {**CHAT, "messages": [{"role": "user", "content": "word " * 3000}]}
    async with running_gate(ollama.url, defaults={"num_ctx": 4096, "budget": 2000}) as gate:
        refused = await ask(gate.address, "POST", "/api/chat", long)
        told = await ask(gate.address, "POST", "/gate/tokenize", {"model": MODEL, "text": "Hello."})
        before = workers(gate)
        old = gate.wiring
        assert await gate.reload(lambda: config_for(ollama.url, defaults={"num_ctx": 4096, "budget": 1000}))
        await until(lambda: not old.users)
        again = await ask(gate.address, "POST", "/gate/tokenize", {"model": MODEL, "text": "Hello."})
        compaction = [*long["messages"], {"role": "user", "content": "Summarise."}]
        passed = await ask(gate.address, "POST", "/api/chat", {**long, "messages": compaction})
        after = workers(gate)
    assert (told.json["count"], told.json) == (again.json["count"], again.json)
    assert after == before
    assert len(before) == 1
    assert (refused.status, refused.gate("verdict")) == (400, "refuse")
    assert (passed.status, passed.gate("verdict")) == (200, "grace"), passed.body


async def test_another_upstream_after_a_reload_and_metrics_that_go_on(ollama: Rehearsal) -> None:
    async with Rehearsal(Settings()) as other, running_gate(ollama.url) as gate:
        await ask(gate.address, "POST", "/api/chat", CHAT)
        assert await gate.reload(lambda: config_for(other.url))
        await ask(gate.address, "POST", "/api/chat", CHAT)
        assert (len(ollama.journal.to("/api/chat")), len(other.journal.to("/api/chat"))) == (1, 1)
        full = f"registry.ollama.ai/library/{MODEL}:latest"
        assert metric(gate, "requests_total", route="/api/chat", model=full, verdict="admit") == 2


async def test_a_gate_that_stops_lets_running_requests_finish_and_takes_no_more(written_log: io.StringIO) -> None:
    held = Held()
    async with ScriptedOllama(held) as ollama:
        gate = app.Gate(config_for(ollama.url))
        await gate.start()
        address = gate.address
        running = asyncio.ensure_future(ask(address, "POST", "/api/chat", {**SCRIPTED, "stream": True}))
        await until(lambda: ollama.got)
        stopping = asyncio.ensure_future(gate.stop(drain=20.0))
        await until(lambda: "draining" in events(written_log))
        # Not tried with a connection: by now the port may be somebody else's.
        assert gate.entrance._listener is not None
        assert not gate.entrance._listener.is_serving()
        held.go.set()
        assert (await running).complete
        await asyncio.wait_for(stopping, 5.0)
    assert "cut off at the end of the drain time" not in events(written_log)


async def test_what_is_left_at_the_end_of_the_drain_time_is_cut(ollama: Rehearsal, written_log: io.StringIO) -> None:
    ollama.fault("hang", path="/api/chat", at="stream", after=1)
    gate = app.Gate(config_for(ollama.url))
    await gate.start()
    async with await Client.connect(gate.address) as client:
        await client.send("POST", "/api/chat", {**CHAT, "stream": True})
        reply = await client.head()
        await client.next_chunk(reply)
        await asyncio.wait_for(gate.stop(drain=0.05), 1.5)
        await client.rest(reply)
        assert not reply.complete
    assert "cut off at the end of the drain time" in events(written_log)
    await ollama.journal.until(lambda journal: journal.to("/api/chat")[0].client_left, within=1.0)


async def test_idle_connections_do_not_hold_up_the_stop(ollama: Rehearsal) -> None:
    gate = app.Gate(config_for(ollama.url))
    await gate.start()
    async with await Client.connect(gate.address) as client:
        await client.send("GET", "/api/version")
        assert (await client.rest(await client.head())).status == 200
        await asyncio.wait_for(gate.stop(drain=30.0), 4.0)
        assert await client.reader.read() == b""


async def test_a_taken_address_is_told_in_plain_words(ollama: Rehearsal) -> None:
    async with running_gate(ollama.url) as gate:
        host, port = gate.address
        second = app.Gate(config_for(ollama.url, server={"listen": f"{host}:{port}"}))
        with pytest.raises(ConfigError, match=r"cannot listen on .* Is another gate running"):
            await second.start()


async def test_signals_reload_and_stop_the_process(
    ollama: Rehearsal, tmp_path: Path, written_log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Notifier, "_send", lambda _self, state: told.append(state.partition("\n")[0]))
    file = tmp_path / "ollama-gate.toml"
    file.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[upstream]\nurl = "{ollama.url}"\n')

    def read() -> Config:
        return load(file, {}, canonical)

    serving = asyncio.ensure_future(app._serve(read(), read))
    await until(lambda: "READY=1" in told)
    file.write_text("nonsense = 1\n")
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: "configuration not reloaded: the old one stays in force" in events(written_log))
    file.write_text(f'[server]\nlisten = "127.0.0.1:0"\n[upstream]\nurl = "{ollama.url}"\n[defaults]\nnum_ctx = 512\n')
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: "configuration reloaded" in events(written_log))
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(serving, 5.0) == 0
    assert told == ["READY=1", "RELOADING=1", "READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]


async def test_reloads_at_the_same_time_take_turns_and_leave_one_configuration(ollama: Rehearsal) -> None:
    def running(name: str) -> int:
        return sum(task.get_name() == name for task in asyncio.all_tasks())

    async with running_gate(ollama.url) as gate:
        windows = [512 * number for number in range(1, 6)]
        configs = [config_for(ollama.url, defaults={"num_ctx": window}) for window in windows]
        taken = await asyncio.gather(*(gate.reload(partial(copy, config)) for config in configs))
        assert taken == [True] * len(windows)
        await until(lambda: not running("old configuration"))
        assert (running("guard"), running("keep what was learned")) == (1, 1)
        assert (await ask(gate.address, "POST", "/api/chat", CHAT)).gate("window") == str(windows[-1])


async def test_limits_of_connections_hold_from_the_next_connection_on() -> None:
    """Those that aiohttp keeps too: what a head may be like, and how long an idle connection stays open."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    many = {f"X-{number}": "x" for number in range(20)}
    limits = {"max_headers": 16, "max_header": "4KiB", "keep_alive": "7s"}
    async with ScriptedOllama(script) as ollama, running_gate(ollama.url) as gate:
        async with await Client.connect(gate.address) as before:
            assert await gate.reload(lambda: config_for(ollama.url, server=limits))
            await before.send("GET", "/api/version", headers=many)
            assert (await before.rest(await before.head())).status == 200
        assert (await ask(gate.address, "GET", "/api/version", headers=many)).status == 400
        assert (await ask(gate.address, "GET", "/api/version", headers={"X-1": "x" * 5000})).status == 400
        async with await Client.connect(gate.address) as after:
            await after.send("GET", "/api/version")
            assert (await after.rest(await after.head())).status == 200
            [connection] = gate.entrance._server.connections  # type: ignore[union-attr]
            assert connection.keepalive_timeout == 7.0


async def test_an_address_that_a_restart_would_change_is_said_as_long_as_it_differs(written_log: io.StringIO) -> None:
    async with ScriptedOllama(Held()) as ollama, running_gate(ollama.url) as gate:
        for listen in ("127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:0"):
            assert await gate.reload(partial(config_for, ollama.url, server={"listen": listen}))
    told = [line for line in map(json.loads, written_log.getvalue().splitlines()) if "restart only" in line["event"]]
    assert [line["listen"] for line in told] == ["127.0.0.1:1", "127.0.0.1:1"]
