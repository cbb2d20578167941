"""What really goes to Ollama: the gate's fields over whatever the client sent."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.dialects import native
from ollama_gate.forcing import force, overruled
from ollama_gate.requests import LOAD_OPTIONS
from ollama_gate.window import Output, Window

ROOM = Window(4096, 3000)
AS_ASKED = Output(None)
KEPT = {"truncate": False, "shift": False, "options": {"num_ctx": 4096}}
HI = [{"role": "user", "content": "hi"}]


def forced(path: str, body: dict[str, Any], room: Window | None = ROOM, output: Output = AS_ASKED) -> Any:
    return force(native.parse(path, {"model": "m", **body}), room, output)


@pytest.mark.parametrize(
    ("path", "body", "sent"),
    [
        ("/api/chat", {"messages": HI}, KEPT),
        (
            "/api/chat",
            {"messages": HI, "truncate": True, "shift": True, "options": {"num_ctx": 99, "seed": 1}},
            {"truncate": False, "shift": False, "options": {"num_ctx": 4096, "seed": 1}},
        ),
        ("/api/generate", {"prompt": "x"}, KEPT),
        ("/api/embed", {"input": "x", "truncate": True}, {"truncate": False, "options": {"num_ctx": 4096}}),
        ("/api/embeddings", {"prompt": "x"}, {"options": {"num_ctx": 4096}}),
        (
            "/api/chat",
            {"messages": HI, "options": None},
            {"truncate": False, "shift": False, "options": {"num_ctx": 4096}},
        ),
    ],
)
def test_the_fields_that_keep_a_prompt_whole_are_forced(path: str, body: dict[str, Any], sent: dict[str, Any]) -> None:
    kept = {key: value for key, value in body.items() if key not in ("truncate", "shift", "options")}
    assert forced(path, body).body == {"model": "m", **kept, **sent}


def test_the_clients_own_body_is_left_alone() -> None:
    options = {"num_ctx": 1}
    body = {"model": "m", "messages": HI, "options": options, "truncate": True}
    force(native.parse("/api/chat", body), ROOM, AS_ASKED)
    assert body == {"model": "m", "messages": HI, "options": {"num_ctx": 1}, "truncate": True}


def test_what_the_operator_declares_for_loading_is_sent_on_every_route() -> None:
    room = replace(ROOM, load_options=(("num_gpu", 3), ("use_mmap", False)))
    for path, body in (("/api/chat", {"messages": HI}), ("/api/embed", {"input": "x"}), ("/api/generate", {})):
        out = forced(path, {**body, "options": {"num_gpu": 99}}, room)
        assert out.body["options"] == {"num_ctx": 4096, "num_gpu": 3, "use_mmap": False}
        assert out.reload_avoided


@pytest.mark.parametrize("name", sorted(LOAD_OPTIONS))
def test_options_that_would_reload_the_model_are_dropped_and_said(name: str) -> None:
    out = forced("/api/chat", {"messages": HI, "options": {name: True if name == "use_mmap" else 5}})
    assert out.body["options"] == {"num_ctx": 4096}
    assert out.reload_avoided
    unset = forced("/api/chat", {"messages": HI, "options": {name: None}})
    assert (unset.body["options"], unset.reload_avoided) == ({"num_ctx": 4096}, False)


@pytest.mark.parametrize(
    ("body", "notes"),
    [
        (
            {"options": {"num_gpu": 3, "num_batch": 64}},
            ["num_batch, num_gpu ignored: the model would have to be loaded again"],
        ),
        ({"options": {"num_gpu": None}}, []),
        ({"options": {"num_ctx": 8192}}, ["num_ctx 8192 ignored: the window is 4096"]),
        ({"options": {"num_ctx": 8192.5}}, ["num_ctx 8192 ignored: the window is 4096"]),
        ({"options": {"num_ctx": 4096}, "num_ctx": 8192}, []),
        ({"options": {"num_ctx": None}, "num_ctx": 8192}, ["num_ctx 8192 ignored: the window is 4096"]),
        ({"num_ctx": 8192}, ["num_ctx 8192 ignored: the window is 4096"]),
        ({}, []),
    ],
)
def test_what_the_operator_decides_in_place_of_a_client_is_said(body: dict[str, Any], notes: list[str]) -> None:
    assert list(overruled(native.parse("/api/chat", {"model": "m", "messages": HI, **body}), ROOM)) == notes


@pytest.mark.parametrize(
    ("options", "notes", "avoided"),
    [
        ({"num_gpu": 99}, ["num_gpu ignored: it is 3 for this model"], True),
        ({"use_mmap": True}, ["use_mmap ignored: it is false for this model"], True),
        ({"num_gpu": 3, "use_mmap": False}, [], False),
        (
            {"num_gpu": 1, "main_gpu": 1},
            [
                "num_gpu ignored: it is 3 for this model",
                "main_gpu ignored: the model would have to be loaded again",
            ],
            True,
        ),
    ],
)
def test_the_reason_is_what_the_operator_set_or_that_the_model_would_be_loaded_again(
    options: dict[str, Any], notes: list[str], *, avoided: bool
) -> None:
    room = replace(ROOM, load_options=(("num_gpu", 3), ("use_mmap", False)))
    request = native.parse("/api/chat", {"model": "m", "messages": HI, "options": options})
    assert list(overruled(request, room)) == notes
    out = force(request, room, AS_ASKED)
    assert out.reload_avoided is avoided
    assert {"num_gpu": 3, "use_mmap": False}.items() <= out.body["options"].items()
    assert "main_gpu" not in out.body["options"]


@pytest.mark.parametrize(
    ("body", "avoided"),
    [
        ({}, False),
        ({"options": {"num_ctx": 4096}}, False),
        ({"options": {"num_ctx": 4095}}, True),
        ({"num_ctx": 4095}, False),
        ({"shift": False}, False),
        ({"shift": True}, True),
        ({"shift": None}, False),
        ({"options": {"temperature": 0}}, False),
    ],
)
def test_a_reload_that_did_not_happen_is_known(body: dict[str, Any], *, avoided: bool) -> None:
    assert forced("/api/chat", {"messages": HI, **body}).reload_avoided is avoided


def test_the_length_of_the_answer_is_put_in_when_it_was_decided() -> None:
    clamped = forced("/api/chat", {"messages": HI, "options": {"num_predict": 9000}}, output=Output(100, clamped=True))
    unlimited = forced("/api/chat", {"messages": HI, "options": {"num_predict": -1}}, output=Output(100))
    asked = forced("/api/chat", {"messages": HI, "options": {"num_predict": 5}})
    assert clamped.body["options"]["num_predict"] == 100
    assert unlimited.body["options"]["num_predict"] == 100
    assert asked.body["options"]["num_predict"] == 5


def test_where_the_operator_allows_shift_it_is_asked_for() -> None:
    shifting = Window(4096, 3000, shift=True)
    request = native.parse("/api/chat", {"model": "m", "messages": HI, "shift": False})
    assert force(request, shifting, AS_ASKED).body["shift"] is True


def test_a_model_that_is_not_pinned_keeps_its_options_and_is_still_not_cut() -> None:
    out = forced("/api/chat", {"messages": HI, "options": {"num_ctx": 9, "num_gpu": 1}, "truncate": True}, room=None)
    assert out.body["options"] == {"num_ctx": 9, "num_gpu": 1}
    assert (out.body["truncate"], out.body["shift"]) == (False, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=6), st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_whatever_else_a_client_sends_goes_up_as_it_is(extra: dict[str, Any], options: dict[str, Any]) -> None:
    own = {key: value for key, value in extra.items() if key not in native.FIELDS["/api/chat"]}
    free = {key: value for key, value in options.items() if key not in ("num_ctx", "num_predict", *LOAD_OPTIONS)}
    body = {"model": "m", **own, "messages": HI, "options": free}
    request = native.parse("/api/chat", {**body, "options": None})
    out = force(type(request)(request.kind, request.path, "m", body, stream=True), ROOM, AS_ASKED).body
    assert out == {**body, "truncate": False, "shift": False, "options": {**free, "num_ctx": 4096}}
