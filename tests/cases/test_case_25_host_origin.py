"""The client's Host or Origin reaches Ollama: a bare 403 (ollama#3269, #6021, olla#135, jan#8131)."""

import pytest

from support.cases import case, front
from support.http import ask

CHAT = case("25-host-origin")
HEADERS = {
    "Host": "gate.example.org",
    "Authorization": "Bearer secret",
    "Cookie": "session=1",
    "x-api-key": "secret",
    "Connection": "keep-alive, X-Hop",
    "X-Hop": "1",
    "TE": "trailers",
    "User-Agent": "agent/1.0",
}


async def test_ollama_itself_says_403_without_a_word() -> None:
    async with front() as line:
        address = ("127.0.0.1", line.ollama.port)
        by_host = await ask(address, "POST", "/api/chat", CHAT, {"Host": "gate.example.org"})
        by_origin = await ask(address, "POST", "/api/chat", CHAT, {"Host": "localhost", "Origin": "null"})
    assert (by_host.status, by_host.body) == (by_origin.status, by_origin.body) == (403, b"")


@pytest.mark.parametrize("origin", ["null", "https://app.example.org"])
@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_ollama_gets_its_own_host_and_none_of_the_clients_secrets(path: str, origin: str) -> None:
    async with front() as line:
        reply = await line.ask(path, CHAT, headers={**HEADERS, "Origin": origin})
        [got] = line.got()
    assert reply.status == 200
    assert reply.header("Access-Control-Allow-Origin") is None
    assert got.header("Host") == f"127.0.0.1:{line.ollama.port}"
    for name in ("Origin", "Authorization", "Cookie", "x-api-key", "X-Hop", "TE"):
        assert got.header(name) is None, name
    assert got.header("User-Agent") == "agent/1.0"


async def test_a_proxy_behind_the_gate_gets_the_authorization_when_the_operator_says_so() -> None:
    async with front(upstream={"forward_authorization": True}) as line:
        await line.ask("/api/chat", CHAT, headers=HEADERS)
        [got] = line.got()
    assert got.header("Authorization") == "Bearer secret"
    assert got.header("x-api-key") is None


async def test_an_allowed_origin_gets_its_preflight_answered_and_its_answer_opened() -> None:
    page = "https://app.example.org"
    asks = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with front(server={"origins": [page]}) as line:
        preflight = await line.ask("/api/chat", method="OPTIONS", headers=asks)
        reply = await line.ask("/api/chat", CHAT, headers={"Origin": page})
        refused = await line.ask("/api/chat", "{", headers={"Origin": page})
        own = await line.ask("/gate/status", method="GET", headers={"Origin": page})
        passed = await line.ask("/api/tags", method="GET", headers={"Origin": page})
        openai = await line.ask("/v1/chat/completions", {**CHAT, "stream": True}, headers={"Origin": page})
        other = await line.ask("/api/chat", CHAT, headers={"Origin": "https://else.example.org"})
    assert preflight.status == 204
    assert preflight.header("Access-Control-Allow-Origin") == page
    assert "POST" in (preflight.header("Access-Control-Allow-Methods") or "")
    assert preflight.header("Access-Control-Allow-Headers") == "content-type"
    assert (refused.status, reply.status) == (400, 200)
    for answer in (reply, refused, own, passed, openai):
        assert answer.header("Access-Control-Allow-Origin") == page
    assert other.header("Access-Control-Allow-Origin") is None


@pytest.mark.parametrize("path", ["/api/pull", "/api/create", "/api/delete", "/api/copy", "/api/blobs/sha256-0"])
async def test_a_foreign_page_may_not_manage_models(path: str) -> None:
    method = "DELETE" if path == "/api/delete" else "POST"
    async with front() as line:
        reply = await line.ask(
            path, {"model": "llama3.2:1b"}, method=method, headers={"Origin": "https://evil.example"}
        )
        got = [one for one in line.ollama.journal if one.path == path]
    assert (reply.status, reply.json["code"]) == (403, "origin_not_allowed")
    assert not got
