"""Who gets in: whole requests to a gate with keys, and to one without."""

import base64
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ollama_gate import pipeline
from ollama_gate.access.hosts import Hosts, is_loopback, name_in
from ollama_gate.access.keyfile import read, write
from ollama_gate.access.keys import KeyRing, Right
from ollama_gate.errors import ConfigError, Refusal, Refused
from ollama_gate.rehearsal.faults import Fault
from ollama_gate.routes import LANES, right_for
from support.cases import Front, front
from support.gate import config_for, running_gate
from support.http import ask
from support.keyring import add_key, bearer
from support.waiting import until

CHAT = {"model": "qwen2.5:0.5b", "messages": [{"role": "user", "content": "hi"}], "stream": False}
MANAGES = [
    ("POST", "/api/pull"),
    ("POST", "/api/push"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("DELETE", "/api/delete"),
    ("POST", "/api/blobs/sha256-0"),
    ("HEAD", "/api/blobs/sha256-0"),
]
OWN = [("GET", "/gate/status"), ("GET", "/gate/metrics"), ("POST", "/gate/count"), ("GET", "/gate/nothing")]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def guarded(keys: Path, **sections: Any) -> Any:
    return front(access={"keys": str(keys)}, **sections)


async def chat(line: Front, headers: dict[str, str] | None = None, path: str = "/api/chat", **more: Any) -> Any:
    return await line.ask(path, {**CHAT, **more}, headers=headers)


async def test_nobody_gets_in_without_a_key(keys: Path) -> None:
    text = add_key(keys)
    async with guarded(keys) as line:
        none = await chat(line)
        wrong = await chat(line, bearer(text[:-1] + ("A" if text[-1] != "A" else "B")))
        right = await chat(line, bearer(text))
        passed = await line.ask("/api/version", method="GET")
        health = await line.ask("/gate/health", method="GET")
        denied = line.metric("denied_total", code="invalid_api_key")
        got = line.got()
    assert (none.status, wrong.status, passed.status) == (401, 401, 401)
    assert none.header("WWW-Authenticate") == 'Bearer realm="ollama-gate"'
    assert isinstance(none.json["error"], str)
    assert (none.json["code"], none.json["type"]) == ("invalid_api_key", "authentication_error")
    assert (right.status, health.status, denied) == (200, 200, 3)
    assert len(got) == 1
    assert got[0].header("Authorization") is None


@pytest.mark.parametrize("way", ["bearer", "x-api-key", "basic"])
async def test_a_key_opens_in_each_way_and_goes_no_further(
    keys: Path, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    text = add_key(keys)
    basic = base64.b64encode(f"anything:{text}".encode()).decode()
    headers = {
        "bearer": bearer(text),
        "x-api-key": {"x-api-key": text},
        "basic": {"Authorization": f"Basic {basic}"},
    }[way]
    async with guarded(keys) as line:
        assert (await chat(line, headers)).status == 200
        assert (await line.ask("/api/version", method="GET", headers=headers)).status == 200
        [got] = line.got()
        seen = list(line.ollama.journal)
    secret = text.split("_", 2)[2]
    assert got.header("Authorization") is got.header("x-api-key") is None
    assert all(text not in str(entry) and basic not in str(entry) for entry in seen)
    assert secret not in "".join(capfd.readouterr())


async def test_each_dialect_says_no_in_its_own_shape(keys: Path) -> None:
    add_key(keys)
    async with guarded(keys) as line:
        openai = await chat(line, path="/v1/chat/completions")
        anthropic = await chat(line, path="/v1/messages", max_tokens=5)
        listing = await line.ask("/v1/models", method="GET")
    assert openai.json["error"]["code"] == "invalid_api_key"
    assert openai.json["error"]["type"] == "authentication_error"
    assert anthropic.json["type"] == "error"
    assert anthropic.json["error"]["type"] == "authentication_error"
    assert (listing.status, listing.json["error"]["type"]) == (401, "authentication_error")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [*MANAGES, *OWN, ("POST", "/api/signout"), ("GET", "/v1/models/../../x")])
async def test_what_changes_or_shows_takes_an_admin(keys: Path, method: str, path: str) -> None:
    plain, admin = add_key(keys, "plain"), add_key(keys, "admin", admin=True)
    async with guarded(keys) as line:
        no = await line.ask(path, None if method == "HEAD" else {}, method=method, headers=bearer(plain))
        yes = await line.ask(path, None if method == "HEAD" else {}, method=method, headers=bearer(admin))
        reached = [entry.path for entry in line.ollama.journal].count(path)
    assert no.status == 403
    assert yes.status != 403
    assert reached <= 1
    if method != "HEAD":
        assert b'"admin_key_needed"' in no.body


@pytest.mark.slow
async def test_counting_takes_an_admin_or_a_key_made_for_it(keys: Path) -> None:
    counts = add_key(keys, "rag", counts=True, models=("qwen2.5*",))
    async with guarded(keys) as line:
        for path, body in (
            ("/gate/count", CHAT),
            ("/gate/tokenize", {"model": CHAT["model"], "text": "hi"}),
            ("/gate/chunk", {"model": CHAT["model"], "text": "hi", "max_tokens": 5}),
        ):
            assert (await line.ask(path, body, headers=bearer(counts))).status == 200, path
            other = await line.ask(path, {**body, "model": "llama3.2:1b"}, headers=bearer(counts))
            assert (other.status, other.json["code"]) == (403, "model_not_allowed"), path
        assert (await line.ask("/gate/status", method="GET", headers=bearer(counts))).status == 403


async def test_a_key_for_some_models_sees_and_uses_those_only(keys: Path) -> None:
    text = add_key(keys, models=("llama3.2:*",))
    headers = bearer(text)
    async with guarded(keys) as line:
        tags = await line.ask("/api/tags", method="GET", headers=headers)
        models = await line.ask("/v1/models", method="GET", headers=headers)
        ps = await line.ask("/api/ps", method="GET", headers=headers)
        assert (await chat(line, headers, model="llama3.2:1b")).status == 200
        loaded = await line.ask("/api/ps", method="GET", headers=headers)
        no = [
            await chat(line, headers),
            await chat(line, headers, path="/v1/chat/completions"),
            await chat(line, headers, path="/v1/messages/count_tokens"),
            await line.ask("/api/show", {"model": "qwen2.5:0.5b"}, headers=headers),
            await line.ask("/api/show", {"model": "qwen2.5:0.5b", "verbose": True}, headers=headers),
            await line.ask("/v1/models/qwen2.5:0.5b", method="GET", headers=headers),
            await line.ask("/api/embed", {"model": "all-minilm", "input": "x"}, headers=headers),
        ]
        bad = await line.ask("/api/show", {"model": "llama3.2:1b", "name": "qwen2.5:0.5b"}, headers=headers)
        yes = await line.ask("/api/show", {"model": "llama3.2:1b", "verbose": True}, headers=headers)
    assert {row["name"] for row in tags.json["models"]} == {"llama3.2:1b", "llama3.2:latest"}
    assert {row["id"] for row in models.json["data"]} == {"llama3.2:1b", "llama3.2:latest"}
    assert ps.json["models"] == []
    assert [row["name"] for row in loaded.json["models"]] == ["llama3.2:1b"]
    assert [(reply.status, "model_not_allowed" in reply.body.decode()) for reply in no[:2]] == [(403, True)] * 2
    assert {reply.status for reply in no} == {403}
    assert (bad.status, yes.status) == (400, 200)


async def test_quotas_are_429_with_a_time_in_each_dialect(keys: Path) -> None:
    text = add_key(keys, limits={"requests_per_minute": 1})
    async with guarded(keys) as line:
        assert (await chat(line, bearer(text))).status == 200
        native = await chat(line, bearer(text))
        openai = await chat(line, bearer(text), path="/v1/chat/completions")
        anthropic = await chat(line, bearer(text), path="/v1/messages", max_tokens=5)
        assert (await line.ask("/api/tags", method="GET", headers=bearer(text))).status == 200
        got = line.got()
    for reply in (native, openai, anthropic):
        assert reply.status == 429
        assert 1 <= int(reply.header("Retry-After") or 0) <= 61
    assert native.json["type"] == openai.json["error"]["type"] == anthropic.json["error"]["type"] == "rate_limit_error"
    assert len(got) == 1


@pytest.mark.slow
async def test_prompt_tokens_are_booked_and_put_right_by_what_ollama_counted(keys: Path) -> None:
    text = add_key(keys, limits={"tokens_per_minute": 400})
    async with guarded(keys) as line:
        first = await chat(line, bearer(text))
        used = line.gate.entrance.door.quotas.of(read(keys)[0].keys[0]).tokens_minute.used(line.gate.clock())
        long = await chat(line, bearer(text), messages=[{"role": "user", "content": "word " * 600}])
    assert (first.status, first.gate("rung")) == (200, "bound")
    assert used == first.json["prompt_eval_count"] < int(first.gate("prompt-tokens") or 0)
    assert (long.status, long.json["details"]["quota"]) == (429, "tokens_per_minute")
    assert long.header("Retry-After") is not None


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_that_ollama_did_not_evaluate_is_given_back(keys: Path, path: str, *, stream: bool) -> None:
    text = add_key(keys, limits={"tokens_per_minute": 5000})
    async with guarded(keys, faults=(Fault("status", path="/api/chat", times=1),)) as line:
        window = line.gate.entrance.door.quotas.of(read(keys)[0].keys[0]).tokens_minute
        failed = await chat(line, bearer(text), path=path, stream=stream)
        after_an_error = window.used(line.gate.clock())
        whole = await chat(line, bearer(text), path=path, stream=stream)
        spent = window.used(line.gate.clock())
        await line.ollama.stop()
        await until(
            lambda: all(kept.closed for kept in line.gate.wiring.upstream._idle)
        )  # sent on one of these it is a 502
        silent = await chat(line, bearer(text), path=path, stream=stream)
        after_silence = window.used(line.gate.clock())
    assert (failed.status, whole.status, silent.status) == (500, 200, 503)
    assert (after_an_error, after_silence) == (0, spent)
    assert spent > 0


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("fault", "stream", "status", "kept"),
    [
        (Fault("busy", path="/api/chat", times=1), False, 503, False),
        (Fault("status", path="/api/chat", status=400, times=1), False, 400, False),
        (Fault("dies", path="/api/chat", times=1), False, 500, True),
        (Fault("dies", path="/api/chat", times=1), True, 500, True),
        (Fault("dies", path="/api/chat", after=3, times=1), False, 500, True),
        (Fault("dies", path="/api/chat", after=3, times=1), True, 200, True),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else str(value),
)
async def test_a_prompt_that_a_model_failed_on_is_given_back_only_where_it_had_not_begun(
    keys: Path, path: str, fault: Fault, *, stream: bool, status: int, kept: bool
) -> None:
    text = add_key(keys, limits={"tokens_per_minute": 5000})
    async with guarded(keys, faults=(fault,)) as line:
        window = line.gate.entrance.door.quotas.of(read(keys)[0].keys[0]).tokens_minute
        reply = await chat(line, bearer(text), path=path, stream=stream)
        await until(lambda: not line.gate.turns)
        used = window.used(line.gate.clock())
    assert reply.status == status
    assert (used > 0) == kept


async def test_a_prompt_that_could_not_be_sent_is_given_back(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> bytes:
        raise Refused(Refusal(400, "invalid_json", "A value cannot be sent on."))

    text = add_key(keys, limits={"tokens_per_minute": 5000})
    monkeypatch.setattr(pipeline, "encode_json", refuse)
    async with guarded(keys) as line:
        window = line.gate.entrance.door.quotas.of(read(keys)[0].keys[0]).tokens_minute
        assert (await chat(line, bearer(text))).status == 400
        assert window.used(line.gate.clock()) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/chat", {**CHAT, "messages": [{"role": "user", "content": "word " * 120}]}),
        ("/v1/embeddings", {"model": "all-minilm", "input": ["word " * 60] * 3}),
    ],
)
async def test_a_bound_that_a_quota_has_no_room_for_is_replaced_by_a_count(
    keys: Path, path: str, body: dict[str, Any]
) -> None:
    text = add_key(keys, limits={"tokens_per_minute": 700})
    async with guarded(keys) as line:
        await chat(line, bearer(text))
        reply = await line.ask(path, body, headers=bearer(text))
        used = line.gate.entrance.door.quotas.of(read(keys)[0].keys[0]).tokens_minute.used(line.gate.clock())
        long = await chat(line, bearer(text), messages=[{"role": "user", "content": "word " * 700}])
    assert (reply.status, reply.gate("rung")) == (200, "exact")
    assert used < 500
    assert (long.status, long.gate("rung")) == (429, "exact")


@pytest.mark.slow
async def test_a_prompt_that_does_not_fit_is_400_whatever_the_quota(keys: Path) -> None:
    text = add_key(keys, limits={"tokens_per_minute": 10})
    async with guarded(keys, window=256) as line:
        reply = await chat(line, bearer(text), messages=[{"role": "user", "content": "word " * 600}])
    assert (reply.status, reply.json["code"], reply.header("Retry-After")) == (400, "context_length_exceeded", None)


async def test_parallel_requests_are_given_back_however_they_end(keys: Path) -> None:
    text = add_key(keys, limits={"parallel": 1})
    async with guarded(keys) as line:
        for path, body in (("/api/chat", CHAT), ("/api/chat", "{"), ("/api/chat", {**CHAT, "model": "nobody"})):
            reply = await line.ask(path, body, headers=bearer(text))
            assert reply.status != 429
        usage = line.gate.entrance.door.quotas.of(read(keys)[0].keys[0])
    assert usage.running == 0


async def test_keys_are_made_and_revoked_while_the_gate_runs(keys: Path) -> None:
    async with guarded(keys) as line:
        assert (await chat(line)).status == 200
        text = add_key(keys)
        line.gate.entrance.look()
        assert (await chat(line)).status == 401
        assert (await chat(line, bearer(text))).status == 200
        second = add_key(keys, "second")
        assert (await chat(line, bearer(second))).status == 200  # without waiting for the next look
        ring = read(keys)[0]
        write(keys, KeyRing(tuple(key for key in ring.keys if key.name == "second")))
        line.gate.entrance.look()
        assert (await chat(line, bearer(text))).status == 401
        keys.write_text("broken")
        line.gate.entrance.look()
        assert (await chat(line, bearer(second))).status == 200
        keys.unlink()
        line.gate.entrance.look()
        assert (await chat(line)).status == 401


async def test_a_file_of_keys_that_breaks_is_logged_whoever_meets_it_first(keys: Path) -> None:
    text = add_key(keys)
    async with guarded(keys) as line:
        with capture_logs() as logged:
            keys.write_text("broken")
            assert (await chat(line, bearer("unknown"))).status == 401  # looked for in the file before the next look
            line.gate.entrance.look()
        assert (await chat(line, bearer(text))).status == 200
    assert [entry["event"] for entry in logged].count("keys not read again: the old ones stay in force") == 1


async def test_an_expired_key_says_so(keys: Path) -> None:
    text = add_key(keys, expires=1.0)
    async with guarded(keys) as line:
        reply = await chat(line, bearer(text))
    assert (reply.status, "expired" in reply.json["error"]) == (401, True)


async def test_own_pages_offer_a_browser_to_ask_for_the_key(keys: Path) -> None:
    add_key(keys)
    async with guarded(keys) as line:
        reply = await line.ask("/gate/status", method="GET")
    assert "Basic" in (reply.header("WWW-Authenticate") or "")


# --- without keys


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "192.0.2.1:0", "[::]:0", "gate.example.org:0"])
async def test_an_address_that_others_reach_is_not_opened_by_accident(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"keys add NAME.*--open"):
        async with running_gate("http://127.0.0.1:9", server={"listen": listen}):
            pass


async def test_it_is_opened_where_the_operator_says_so_or_keys_exist(keys: Path) -> None:
    async with running_gate("http://127.0.0.1:9", server={"listen": "0.0.0.0:0", "open": True}) as gate:
        assert (await ask(("127.0.0.1", gate.address[1]), "GET", "/gate/health/live")).status == 200
    add_key(keys)
    async with running_gate("http://127.0.0.1:9", server={"listen": "0.0.0.0:0"}, access={"keys": str(keys)}) as gate:
        assert (await ask(("127.0.0.1", gate.address[1]), "GET", "/gate/health/live")).status == 200


async def test_a_reload_does_not_open_it_by_accident(keys: Path, tmp_path: Path) -> None:
    add_key(keys)
    upstream = "http://127.0.0.1:9"
    async with running_gate(upstream, server={"listen": "0.0.0.0:0"}, access={"keys": str(keys)}) as gate:
        without = config_for(upstream, access={"keys": str(tmp_path / "other.json")})
        assert not await gate.reload(lambda: without)
        assert (await ask(("127.0.0.1", gate.address[1]), "GET", "/api/version")).status == 401


@pytest.mark.parametrize(("method", "path"), [*MANAGES[:3], *OWN[:3]])
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
async def test_behind_a_proxy_on_this_machine_nothing_is_local(method: str, path: str, header: str) -> None:
    async with front() as line:
        reply = await line.ask(path, {}, method=method, headers={header: "203.0.113.9"})
        here = await line.ask("/gate/status", method="GET")
    assert (reply.status, reply.json["code"], here.status) == (403, "local_only", 200)


PAGE = "rebound.example:11435"


@pytest.mark.parametrize(
    ("method", "path", "origin"),
    [
        ("GET", "/api/tags", None),
        ("GET", "/api/ps", None),
        ("GET", "/v1/models", None),
        ("GET", "/", None),
        ("GET", "/gate/status", None),
        ("GET", "/gate/health", None),
        ("POST", "/api/show", "null"),
        ("POST", "/api/pull", f"http://{PAGE}"),
        ("POST", "/api/pull", "null"),
        ("POST", "/api/chat", f"http://{PAGE}"),
        ("POST", "/v1/chat/completions", f"http://{PAGE.upper()}"),
    ],
)
async def test_a_page_that_was_rebound_to_this_machine_reads_nothing(
    method: str, path: str, origin: str | None
) -> None:
    headers = {"Host": PAGE, **({"Origin": origin} if origin else {})}
    async with front() as line:
        reply = await line.ask(path, CHAT if method == "POST" else None, method=method, headers=headers)
        assert not line.got()
    assert reply.status == 403
    assert b"unknown_host" in reply.body or b"origin_not_allowed" in reply.body


async def test_a_reverse_proxy_may_keep_the_clients_host_and_configured_names_are_the_only_ones() -> None:
    async with front() as line:
        proxied = await chat(line, {"Host": "gate.example.org", "Origin": "https://app.example.org"})
    async with front(server={"hosts": ["gate.example.org", ".lan"]}) as line:
        statuses = [
            (await line.ask("/api/tags", method="GET", headers={"Host": host})).status
            for host in ("gate.example.org", "Gate.Example.org:443", "a.lan:1", "127.0.0.1", "[::1]:5", "localhost")
        ]
        other = await chat(line, {"Host": "other.example.org"})
    assert proxied.status == 200
    assert statuses == [200] * 6
    assert (other.status, other.json["code"]) == (403, "unknown_host")


@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        (None, True),
        ("", True),
        ("localhost", True),
        ("LOCALHOST:11435", True),
        ("a.localhost", True),
        ("127.0.0.1:1", True),
        ("192.168.1.5", True),
        ("[fe80::1%25eth0]:1", True),
        ("::1", True),
        ("evil.example", False),
        ("evil.example:11435", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost:x", False),
        ("a:b:c", False),
        (":80", False),
        ("localhost.", True),
        ("127.0.0.1, evil.example", False),
    ],
)
def test_names_that_cannot_be_a_pages_own(host: str | None, *, trusted: bool) -> None:
    assert Hosts().trusts(host) is trusted


def test_addresses_of_this_machine() -> None:
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert is_loopback(address)
    for other in ("", None, "10.0.0.1", "::", "0.0.0.0", "localhost", "fe80::1"):
        assert not is_loopback(other)
    assert name_in("[::1]:5") == "::1"


def test_a_route_that_is_not_known_takes_the_most() -> None:
    assert {right_for("POST", path) for path in LANES} == {Right.USE}
    for method, path in (
        *MANAGES,
        ("GET", "/api/chat"),
        ("PUT", "/api/tags"),
        ("POST", "/api/me"),
        ("DELETE", "/v1/models/x"),
        ("GET", "/v1/models/../x"),
        ("GET", "//api/tags"),
        ("GET", "/anything"),
        ("GET", "/gate/openapi.json"),
        ("POST", "/v1/images/generations"),
    ):
        assert right_for(method, path) is Right.ADMIN, path
