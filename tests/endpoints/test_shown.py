"""What clients are told of the models: from memory while it is fresh, with the window that the gate serves."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from ollama_gate.app import Gate
from ollama_gate.catalog.card import card_from_show
from ollama_gate.endpoints.shown import described, plainly_asked, with_bare_names
from ollama_gate.errors import Refused
from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import running_gate
from support.http import Reply, ask
from support.recorded import recording, recordings
from support.scripted import Got, ScriptedOllama

WINDOW = 5000
SHOWS = [name for name in recordings("native-show-*") if "verbose" not in name]


def shown(name: str) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads("".join(recording(name).chunks))
    return decoded


def told(show: dict[str, Any], num_ctx: int) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(described(card_from_show("k", "n", "d", show), num_ctx))
    return decoded


@pytest.mark.parametrize("name", SHOWS)
def test_a_recorded_description_tells_the_window_and_is_otherwise_unchanged(name: str) -> None:
    before = shown(name)
    after = told(before, WINDOW)
    key = before["model_info"]["general.architecture"] + ".context_length"
    assert after["model_info"][key] == min(WINDOW, before["model_info"][key])
    assert after["parameters"].splitlines().count(f"num_ctx                        {WINDOW}") == 1
    after["model_info"][key] = before["model_info"][key]
    others = [line for line in after.pop("parameters").splitlines() if not line.startswith("num_ctx")]
    assert others == before.pop("parameters", "").splitlines()
    assert after == before
    assert list(after) == list(before)


def test_a_modelfiles_own_num_ctx_is_replaced_where_it_stands() -> None:
    lines = (("stop", '"num_ctx 1"'), ("num_ctx", "256"), ("top_k", "4"))
    parameters = "\n".join(f"{name:<30} {value}" for name, value in lines)
    after = told({**shown("native-show-gate-tools"), "parameters": parameters}, WINDOW)["parameters"]
    assert after == parameters.replace("256", str(WINDOW))


def test_parameters_stand_after_the_modelfile_where_there_were_none() -> None:
    assert list(told(shown("native-show-all-minilm"), 512))[:3] == ["modelfile", "parameters", "template"]


def test_a_description_without_metadata_is_left_alone_but_for_the_parameters() -> None:
    assert told({"license": "<none>"}, 77) == {"license": "<none>", "parameters": f"{'num_ctx':<30} 77"}


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"a"}', "a"),
        (b'{"name":"a"}', "a"),
        (b'{"Name":"a"}', "a"),
        (b'{"model":"a","name":"b"}', "a"),
        (b'{"model":"a","verbose":false,"system":"","options":{}}', "a"),
        (b'{"model":"a","verbose":true}', None),
        (b'{"model":"a","system":"x"}', None),
        (b'{"model":"a","template":"x"}', None),
        (b'{"model":"a","options":{"num_ctx":1}}', None),
        (b"{}", None),
        (b'{"model":7}', None),
    ],
)
def test_only_a_plain_question_is_answered_from_memory(body: bytes, model: str | None) -> None:
    assert plainly_asked(body) == model


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":"a","Model":"b"}'])
def test_what_is_no_clear_question_is_ollamas_to_answer(body: bytes) -> None:
    with pytest.raises(Refused):
        plainly_asked(body)


@dataclass(frozen=True, slots=True)
class Line:
    gate: Gate
    ollama: Rehearsal

    async def show(self, body: Any, **headers: str) -> Reply:
        return await ask(self.gate.address, "POST", "/api/show", body, headers)

    async def get(self, path: str) -> Reply:
        return await ask(self.gate.address, "GET", path)

    async def straight(self, method: str, path: str, body: Any = None) -> Reply:
        return await ask(("127.0.0.1", self.ollama.port), method, path, body, {"Host": "localhost"})

    def asked(self, path: str) -> int:
        return len(self.ollama.journal.to(path))


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, defaults={"num_ctx": WINDOW}) as gate:
        yield Line(gate, ollama)


async def test_the_description_tells_the_served_window_and_a_header_says_so(line: Line) -> None:
    reply = await line.show({"model": "rehearsal"})
    straight = await line.straight("POST", "/api/show", {"model": "rehearsal"})
    key = reply.json["model_info"]["general.architecture"] + ".context_length"
    assert reply.json["model_info"][key] == WINDOW
    assert straight.json["model_info"][key] > WINDOW
    assert reply.header("Content-Type") == straight.header("Content-Type")
    assert reply.gate("note") == "context_length and num_ctx are those that this gate serves"


async def test_a_charset_in_content_encoding_changes_nothing(line: Line) -> None:
    plain = await line.show({"model": "rehearsal"})
    for charset in ("utf-8", "UTF8", "identity", "latin1"):
        odd = await line.show({"model": "rehearsal"}, **{"Content-Encoding": charset})
        assert (odd.json, odd.gate("note")) == (plain.json, plain.gate("note"))


async def test_copilot_is_told_the_name_that_it_asked_for(line: Line) -> None:
    # It calls each model by its base name, and variants of one share theirs.
    asked = [
        await line.show({"model": name}, **{"User-Agent": agent})
        for name in ("rehearsal:latest", "rehearsal-go:latest")
        for agent in ("GitHubCopilotChat/0.53.1", "ollama/0.33.0")
    ]
    names = [reply.json["model_info"].get("general.basename") for reply in asked]
    assert names[0::2] == ["rehearsal:latest", "rehearsal-go:latest"]
    assert names[1] == names[3] != names[0]
    copilots, plain = ({**reply.json["model_info"], "general.basename": None} for reply in asked[:2])
    assert copilots == plain


async def test_a_hundred_descriptions_cost_ollama_one_question_a_model(line: Line) -> None:
    names = [row["name"] for row in (await line.get("/api/tags")).json["models"]]
    replies = await asyncio.gather(*(line.show({"name": name}) for name in names * 8))
    assert {reply.status for reply in replies} == {200}
    assert line.asked("/api/show") == len(names)
    assert line.asked("/api/tags") == 1


async def test_lists_are_passed_on_unchanged_and_asked_for_once(line: Line) -> None:
    straight = await line.straight("GET", "/api/tags")
    openai = await line.straight("GET", "/v1/models")
    replies = [await line.get("/api/tags") for _ in range(5)]
    assert {reply.body for reply in replies} == {straight.body}
    assert replies[0].header("Content-Type") == straight.header("Content-Type")
    models = await line.get("/v1/models")
    assert (models.body, models.header("Content-Type")) == (openai.body, openai.header("Content-Type"))
    assert line.asked("/api/tags") == 2


async def test_a_model_that_is_copied_or_deleted_through_the_gate_shows_at_once(line: Line) -> None:
    copied = {"source": "rehearsal", "destination": "somebody/new"}
    await line.get("/api/tags")
    assert (await ask(line.gate.address, "POST", "/api/copy", copied)).status == 200
    assert b"somebody/new" in (await line.get("/api/tags")).body
    assert (await line.show({"model": "somebody/new"})).status == 200
    assert (await ask(line.gate.address, "DELETE", "/api/delete", {"model": "somebody/new"})).status == 200
    assert b"somebody/new" not in (await line.get("/v1/models")).body
    assert (await line.show({"model": "somebody/new"})).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {"model": "rehearsal", "verbose": True},
        {"model": "rehearsal", "system": "x"},
        {"model": "nope"},
        {},
        b"{",
        b"[]",
    ],
)
async def test_everything_else_is_ollamas_own_answer(line: Line, body: Any) -> None:
    reply = await line.show(body)
    straight = await line.straight("POST", "/api/show", body)
    assert (reply.status, reply.body) == (straight.status, straight.body)
    assert reply.gate("note") is None


async def test_no_ollama_is_503_in_the_shape_of_the_route() -> None:
    async with Rehearsal(Settings()) as ollama:
        url = ollama.url
    async with running_gate(url) as gate:
        tags = await ask(gate.address, "GET", "/api/tags")
        models = await ask(gate.address, "GET", "/v1/models")
        show = await ask(gate.address, "POST", "/api/show", {"model": "x"})
    assert (tags.status, models.status, show.status) == (503, 503, 503)
    assert isinstance(tags.json["error"], str)
    assert models.json["error"]["code"] == "upstream_unreachable"


def test_a_list_can_name_each_latest_model_without_its_tag_too() -> None:
    listed = [{"name": "a:latest", "model": "a:latest", "size": 1}, {"name": "b:8b"}, {"name": "h/u/c:latest"}]
    tags = json.dumps({"models": listed}).encode()
    rows = json.loads(with_bare_names(tags))["models"]
    assert [row["name"] for row in rows] == ["a:latest", "a", "b:8b", "h/u/c:latest", "h/u/c"]
    assert rows[1] == {"name": "a", "model": "a", "size": 1}


@pytest.mark.parametrize("tags", [b'{"models":null}', b'{"models":[null,5]}'])
@pytest.mark.parametrize("bare", [True, False])
async def test_a_list_without_models_is_an_empty_one(tags: bytes, *, bare: bool) -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nothing is run")

    dialects = {"bare_names": bare}
    async with ScriptedOllama(script, tags=tags) as ollama, running_gate(ollama.url, dialects=dialects) as gate:
        models = await ask(gate.address, "GET", "/v1/models")
        listed = await ask(gate.address, "GET", "/api/tags")
    assert (models.status, models.json) == (200, {"object": "list", "data": []})
    assert (listed.status, listed.body == tags) == (200, not bare)
