"""The /v1 routes: the recorded shapes, and that they cannot help cutting what does not fit."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from support.http import ask
from support.rawhttp import RawAnswer, exchange
from support.recorded import Recording, recording, recordings

MODELS = (
    Model("gemma3:270m", Mode.GO, "go-chatml", add_bos=True),
    Model("gate-small:latest", Mode.GO, "go-chatml", add_bos=True, parameters={"num_ctx": 256}),
    Model("gate-tools:latest", Mode.GO, "go-tools", capabilities=("completion", "tools")),
    Model("gate-think:latest", Mode.GO, "go-thinking", capabilities=("completion", "thinking")),
    Model("gate-fim:latest", Mode.GO, "go-chatml", capabilities=("completion", "insert")),
    Model("gate-native-small:latest", text="alternating", parameters={"num_ctx": 256}),
    Model("all-minilm:latest", Mode.EMBEDDING, "none", capabilities=("embedding",), context_length=512),
)
SAYS_OTHERWISE = {
    *recordings("v1-[cm]*-tools", "v1-[cm]*-tools-stream"),  # the recorded model called a tool unasked
    *recordings("v1-*logprobs*"),  # alternatives that this model does not have
    "v1-chat-max-completion-tokens",  # it went on to the end of the window
    "v1-chat-stop-list",
    "v1-messages-stop-sequence",
    "v1-chat-reasoning-none",
}
REPLAYED = [
    name
    for name in recordings("v1-chat-*", "v1-completions-*", "v1-embeddings-*", "v1-model*", "v1-messages-*")
    if name not in SAYS_OTHERWISE
]


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Settings(models=MODELS, context_length=2048)) as rehearsal:
        yield rehearsal


async def replay(upstream: Rehearsal, recorded: Recording) -> RawAnswer:
    return await exchange(upstream.url, recorded.method, recorded.path, body=recorded.body)


def events(chunks: list[str] | list[bytes]) -> list[tuple[str, Any]]:
    """(event, decoded data) of a stream, or of a whole answer as one event."""
    text = "".join(chunk if isinstance(chunk, str) else chunk.decode() for chunk in chunks)
    if not text.startswith(("data:", "event:")):
        try:
            return [("", json.loads(text))]
        except ValueError:
            return [("", text)]
    out = []
    for block in filter(None, text.split("\n\n")):
        name, data = re.fullmatch(r"(?:event: (.*)\n)?data: (.*)", block, re.DOTALL).groups()  # type: ignore[union-attr]
        out.append((name or "", data if data == "[DONE]" else json.loads(data)))
    return out


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def plain(value: Any) -> str:
    """An error without ids and without the token numbers of another vocabulary."""
    return re.sub(r"req_[0-9a-f]{24}|\d+ tokens|n_prompt_tokens\W+\d+", "N", json.dumps(value))


@pytest.mark.parametrize("name", REPLAYED)
async def test_answers_in_the_recorded_shape(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    answer = await replay(upstream, recorded)
    assert (answer.status, answer.complete) == (recorded.status, True)
    for header in ("Content-Type", "Cache-Control", "Connection"):
        assert answer.header(header) == recorded.answer_header(header)
    ours, theirs = events(answer.chunks), events(recorded.chunks)
    if recorded.status != 200:
        assert plain(ours) == plain(theirs)
        assert answer.body.endswith(b"\n") == recorded.chunks[-1].endswith("\n")
        return
    assert [name for name, _ in ours[:2]] == [name for name, _ in theirs[:2]]
    assert [shape(one) for one in ours[:1] + ours[-3:]] == [shape(one) for one in theirs[:1] + theirs[-3:]]
    if "stream" in name:
        assert answer.chunks[-1].count(b"\n\n") == recorded.chunks[-1].count("\n\n")


@pytest.mark.parametrize(
    "name", [name for name in recordings("v1-*-tools", "v1-*-tools-stream") if "responses" not in name]
)
async def test_calls_a_tool_in_the_recorded_shape(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    asked = recorded.json()
    asked["messages"][-1]["content"] = 'call tool get_weather with {"city": "Paris"}'
    answer = await exchange(upstream.url, "POST", recorded.path, body=json.dumps(asked).encode())
    ours, theirs = events(answer.chunks), events(recorded.chunks)
    assert [(name, shape(data)) for name, data in ours] == [(name, shape(data)) for name, data in theirs]


@pytest.mark.parametrize("name", ["v1-chat-over", "v1-completions-over", "v1-messages-over", "v1-embeddings-over"])
async def test_what_does_not_fit_is_cut_whatever_the_client_says(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    answer = await replay(upstream, recorded)
    ((_, ours),), ((_, theirs),) = events(answer.chunks), events(recorded.chunks)
    tokens = "input_tokens" if "messages" in name else "prompt_tokens"
    assert ours["usage"][tokens] == theirs["usage"][tokens]
    assert any("cut to" in note for note in upstream.journal[-1].notes)


@pytest.mark.parametrize("name", ["dies-v1-chat-stream", "dies-v1-completions-stream", "dies-v1-messages-stream"])
async def test_an_error_in_mid_stream_is_lost_as_recorded(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    headers = [("Host", "localhost"), ("X-Rehearsal-Fault", "dies:after=3")]
    answer = await exchange(upstream.url, "POST", recorded.path, headers=headers, body=recorded.body)
    assert answer.complete
    ours, theirs = events(answer.chunks), events(recorded.chunks)
    assert [(name, shape(data)) for name, data in ours] == [(name, shape(data)) for name, data in theirs]


@pytest.mark.parametrize("name", ["busy-v1-chat", "busy-v1-messages"])
async def test_busy_in_the_recorded_shape(upstream: Rehearsal, name: str) -> None:
    upstream.fault("busy")
    recorded = recording(name)
    answer = await replay(upstream, recorded)
    assert answer.status == recorded.status
    assert plain(events(answer.chunks)) == plain(events(recorded.chunks))


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("/v1/chat/completions", {"type": "function", "function": {"name": "f", "parameters": {"properties": []}}}),
        ("/v1/messages", {"name": "f", "input_schema": {"properties": []}}),
    ],
)
async def test_a_tool_of_another_type_is_refused(upstream: Rehearsal, path: str, tool: dict[str, Any]) -> None:
    said = [{"role": "user", "content": "hi"}]
    asked = {"model": "gemma3:270m", "messages": said, "max_tokens": 5, "tools": [tool]}
    reply = await ask(("127.0.0.1", upstream.port), "POST", path, asked)
    assert reply.status == 400
    assert "tools.function.parameters.properties" in reply.json["error"]["message"]


@pytest.mark.parametrize("stop", [5, True, {"a": 1}, [5, None], []])
async def test_a_stop_that_is_no_text_is_none(upstream: Rehearsal, stop: object) -> None:
    asked = {"model": "gemma3:270m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stop": stop}
    reply = await ask(("127.0.0.1", upstream.port), "POST", "/v1/chat/completions", asked)
    assert reply.status == 200
