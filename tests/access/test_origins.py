"""Which web pages may do what: preflights, answers that can be read, and models that a foreign page may not change."""

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.access.origins import Origins, cors_headers, is_local, opened, preflight
from ollama_gate.errors import Refused

PAGE = "https://app.example.org"


def request(method: str, origin: str, **headers: str) -> web.BaseRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_mocked_request(method, "/api/chat", {"Origin": origin, "Host": "gate.example.org:11435", **named})


@pytest.mark.parametrize(
    ("origin", "local"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:8080", True),
        ("http://0.0.0.0", True),
        ("tauri://localhost", True),
        ("http://tauri.localhost", True),
        ("https://tauri.localhost", True),
        ("http://app.localhost:3000", True),
        ("http://tauri-localhost", False),
        ("http://tauri.localhost.evil.example", False),
        ("vscode-webview://abc", True),
        ("app://x", True),
        ("file://", True),
        ("chrome-extension://abcdefgh", True),
        ("moz-extension://0-1-2", True),
        ("null", False),
        ("", False),
        (PAGE, False),
        ("http://localhost.evil.example", False),
        ("http://evil.example/localhost", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost@evil.example", False),
        ("http://[::1", False),
    ],
)
def test_this_machines_pages_are_known(origin: str, *, local: bool) -> None:
    assert is_local(origin) is local


@given(st.text(max_size=30))
def test_no_origin_makes_it_fail(origin: str) -> None:
    is_local(origin)
    assert Origins(("*",)).allows(origin)
    assert Origins().allows(origin) is is_local(origin)


@pytest.mark.parametrize(
    "page", ["http://localhost:3000", "https://127.0.0.1", "tauri://localhost", "moz-extension://1"]
)
def test_what_ollama_allows_without_being_told_is_allowed_here_too(page: str) -> None:
    assert opened(Origins(), request("POST", page))["Access-Control-Allow-Origin"] == page
    answer = preflight(Origins(), request("OPTIONS", page, Access_Control_Request_Method="POST"), "/api/chat")
    assert answer is not None
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, page)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("content-type", True),
        ("anthropic-beta, x-api-key,x-stainless-os", True),
        ("", False),
        ("a b", False),
        ("a,,b", False),
        ("a\x00", False),
        ("é", False),
        ("a" * 3000, False),
    ],
)
def test_a_page_may_send_every_header_that_is_one(asked: str, *, told: bool) -> None:
    headers = cors_headers(PAGE, asked)
    assert headers.get("Access-Control-Allow-Headers") == (asked if told else None)


def test_only_an_allowed_origin_is_opened() -> None:
    allowed = Origins((PAGE,))
    headers = opened(allowed, request("POST", PAGE))
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert headers["Vary"] == "Origin"
    assert opened(allowed, request("POST", "https://else.example.org")) == {}
    assert opened(Origins(), request("POST", PAGE)) == {}
    assert opened(Origins(("*",)), request("POST", "https://any.example"))["Access-Control-Allow-Origin"]


def test_a_preflight_of_an_allowed_origin_is_answered_here() -> None:
    asked = request("OPTIONS", PAGE, Access_Control_Request_Method="POST")
    answer = preflight(Origins((PAGE,)), asked, "/api/chat")
    assert answer is not None
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, PAGE)
    assert preflight(Origins(), asked, "/api/chat") is None
    assert preflight(Origins((PAGE,)), request("OPTIONS", PAGE), "/api/chat") is None


MANAGES = ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/sha256:0"]


@pytest.mark.parametrize("path", MANAGES)
@pytest.mark.parametrize("origin", [PAGE, "null", "http://[::1", "https://gate.example.org.evil.example:11435"])
def test_a_foreign_page_may_not_manage_models(path: str, origin: str) -> None:
    with pytest.raises(Refused) as refused:
        preflight(Origins(), request("POST", origin), path)
    assert (refused.value.refusal.status, refused.value.refusal.code) == (403, "origin_not_allowed")


@pytest.mark.parametrize("path", MANAGES)
@pytest.mark.parametrize("origin", ["http://localhost:8080", "http://gate.example.org:11435", "tauri://localhost"])
def test_the_gates_own_page_and_local_programs_may(path: str, origin: str) -> None:
    assert preflight(Origins(), request("POST", origin), path) is None


def test_without_a_host_no_page_is_the_gates_own() -> None:
    bare = make_mocked_request("POST", "/api/pull", {"Origin": "null"})
    with pytest.raises(Refused):
        preflight(Origins(), bare, "/api/pull")


@pytest.mark.parametrize("path", ["/api/chat", "/v1/models", "/", "/api/tags", "/api/show"])
def test_what_changes_nothing_is_open_to_every_page(path: str) -> None:
    assert preflight(Origins(), request("POST", "https://any.example"), path) is None


@pytest.mark.parametrize(
    ("allowed", "origin", "told"),
    [
        ((PAGE,), PAGE, "true"),
        ((), "http://localhost:3000", "true"),
        ((), "chrome-extension://a", "true"),
        (("*",), PAGE, None),
    ],
)
def test_a_page_that_is_named_may_reach_into_a_private_network(
    allowed: tuple[str, ...], origin: str, told: str | None
) -> None:
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Private_Network": "true"}
    answer = preflight(Origins(allowed), request("OPTIONS", origin, **asked), "/api/chat")
    assert answer is not None
    assert answer.headers.get("Access-Control-Allow-Private-Network") == told
    del asked["Access_Control_Request_Private_Network"]
    unasked = preflight(Origins(allowed), request("OPTIONS", origin, **asked), "/api/chat")
    assert unasked is not None
    assert "Access-Control-Allow-Private-Network" not in unasked.headers
