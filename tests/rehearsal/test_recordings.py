"""The rehearsal is asked what a real Ollama was asked, and must answer in the same shape."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from support.rawhttp import RawAnswer, exchange
from support.recorded import Recording, recording, recordings

# The recorded names, in the modes they had there; the vocabulary is the rehearsal's, so token numbers differ.
_STOP = {"stop": ["<end_of_turn>"]}
MODELS = (
    Model("gemma3:270m", Mode.GO, "go-chatml", add_bos=True, parameters={**_STOP, "temperature": 1}),
    Model("gate-small:latest", Mode.GO, "go-chatml", add_bos=True, parameters={"num_ctx": 256}),
    Model("gate-system:latest", Mode.GO, "go-chatml", system="You are Gate.", parameters=_STOP),
    Model("gate-tools:latest", Mode.GO, "go-tools", capabilities=("completion", "tools"), parameters=_STOP),
    Model("gate-think:latest", Mode.GO, "go-thinking", capabilities=("completion", "thinking")),
    Model("gate-fim:latest", Mode.GO, "go-chatml", capabilities=("completion", "insert")),
    Model("gate-r-qwen3-coder:latest", Mode.RENDERER, "renderer", renderer="qwen3-coder", parser="qwen3-coder"),
    Model("gate-r-gemma4:latest", Mode.RENDERER, "renderer", renderer="gemma4", parser="gemma4"),
    Model("gate-native:latest", text="alternating"),
    Model("gate-native-small:latest", text="alternating", parameters={"num_ctx": 256}),
    Model(
        "gate-native-chatml:latest",
        text="chatml-thinking",
        capabilities=("completion", "tools", "thinking"),
        blob="shared",
    ),
    Model("gate-nobos:latest", Mode.GO, "go-tools", capabilities=("completion", "tools"), blob="shared"),
    Model("all-minilm:latest", Mode.EMBEDDING, "none", capabilities=("embedding",), context_length=512),
)
# Not replayed as they are, each with a test of its own below or in another file:
ELSEWHERE = {
    *recordings("native-chat-shared-blob-*"),  # on a runner that another name had loaded
    *recordings("native-ps*"),  # after certain loads
    *recordings("native-show-*"),  # its model_info is that of another architecture
    *recordings("native-chat-tools-call*"),  # the recorded model called a tool unasked
    *recordings("edge-*", "predict-*"),  # about token numbers of another vocabulary: test_window.py
    "native-chat-mode-native-think",  # the recorded model could think and did not
}


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    async with Rehearsal(Settings(models=MODELS, context_length=2048)) as rehearsal:
        yield rehearsal


async def replay(upstream: Rehearsal, recorded: Recording) -> RawAnswer:
    headers = [(n, v.replace("11434", str(upstream.port)) if n == "Host" else v) for n, v in recorded.headers]
    return await exchange(upstream.url, recorded.method, recorded.path, headers=headers, body=recorded.body)


def shape(value: Any) -> Any:
    """Keys and their order, and the types of values; of a list, its first item."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def decoded(chunks: list[str] | list[bytes]) -> list[Any]:
    whole = "".join(chunk if isinstance(chunk, str) else chunk.decode() for chunk in chunks)
    try:
        return [json.loads(whole)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError:
        return [whole]


def comparable(answers: list[Any]) -> str:
    """An error text without what is another vocabulary's (token numbers) or jinja engine's (where it failed)."""
    text = re.sub(r"\d+ tokens|\\\"n_prompt_tokens\\\":\d+", "N", json.dumps(answers))
    return re.sub(r"While executing .*(?=Error: Jinja)", "", text)


def same_head(answer: RawAnswer, recorded: Recording) -> None:
    assert (answer.status, answer.reason) == (recorded.status, recorded.reason)
    ours = [name for name, _ in answer.headers if name not in {"Content-Length", "Transfer-Encoding"}]
    theirs = [name for name, _ in recorded.answer_headers if name not in {"Content-Length", "Transfer-Encoding"}]
    assert ours == theirs
    for name in ("Content-Type", "Allow", "Location", "Vary", "Access-Control-Allow-Origin"):
        assert answer.header(name) == recorded.answer_header(name)


def same_framing(answer: RawAnswer, recorded: Recording) -> None:
    """Chunked or with a length as recorded, unless our own text of another length decides that."""
    framing = "Content-Length" if recorded.answer_header("Content-Length") else "Transfer-Encoding"
    if recorded.status == 204 or recorded.edited or (len(recorded.chunks) == 1 and len(recorded.chunks[0]) > 1500):
        return
    assert answer.header(framing) is not None


REPLAYED = [
    name
    for name in recordings("native-*", "http-*", "key-*", "over-*", "num-predict-0", "repeat-guard-*")
    if "v1" not in name and name not in ELSEWHERE
]


@pytest.mark.parametrize("name", REPLAYED)
async def test_answers_in_the_recorded_shape(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    answer = await replay(upstream, recorded)
    same_head(answer, recorded)
    assert answer.complete
    same_framing(answer, recorded)
    if not recorded.chunks:
        assert answer.body == b""
        return
    ours, theirs = decoded(answer.chunks), decoded(recorded.chunks)
    if recorded.status != 200:
        assert comparable(ours) == comparable(theirs)
        return
    if recorded.answer_header("Content-Type") == "application/x-ndjson":
        assert all(chunk.endswith(b"\n") and chunk.count(b"\n") == 1 for chunk in answer.chunks)
    assert shape(ours[0]) == shape(theirs[0])
    assert shape(ours[-1]) == shape(theirs[-1])


@pytest.mark.parametrize("name", ["native-chat-tools-call", "native-chat-tools-call-stream"])
async def test_calls_a_tool_in_the_recorded_shape(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    asked = recorded.json()
    asked["messages"][-1]["content"] = 'call tool get_weather with {"city": "Paris"}'
    answer = await exchange(upstream.url, "POST", recorded.path, body=json.dumps(asked).encode())
    ours, theirs = decoded(answer.chunks), decoded(recorded.chunks)
    assert [shape(one) for one in ours] == [shape(one) for one in theirs]
    calls = ours[0]["message"]["tool_calls"]
    assert calls[0]["function"] == theirs[0]["message"]["tool_calls"][0]["function"]
    assert re.fullmatch(r"call_[0-9a-z]{8}", calls[0]["id"])


async def test_thinks_before_it_answers(upstream: Rehearsal) -> None:
    answer = await replay(upstream, recording("native-chat-mode-native-think"))
    first, *_, last = decoded(answer.chunks)
    assert first["message"]["content"] == ""
    assert first["message"]["thinking"]
    assert shape(last) == shape(decoded(recording("native-chat-mode-native-think").chunks)[-1])


@pytest.mark.parametrize("name", recordings("native-show-*"))
async def test_shows_a_model_in_the_recorded_shape(upstream: Rehearsal, name: str) -> None:
    recorded = recording(name)
    answer = await replay(upstream, recorded)
    same_head(answer, recorded)
    (ours,), (theirs,) = decoded(answer.chunks), decoded(recorded.chunks)
    info, their_info = ours.pop("model_info"), theirs.pop("model_info")
    assert list(info) == sorted(info)
    arrays = {key for key, value in info.items() if value is None or isinstance(value, list)}
    assert all(isinstance(info[key], list) == bool(recorded.json().get("verbose")) for key in arrays)
    assert {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type"} <= arrays & their_info.keys()
    assert shape(ours) == shape(theirs)
    first_words = [
        line.split(" ")[0] for line in theirs["modelfile"].splitlines() if re.match("# |FROM|REN|PARS|PARAM", line)
    ]
    for word in {"FROM", "RENDERER", "PARSER"} & set(first_words):
        assert re.search(rf"^{word} ", ours["modelfile"], re.MULTILINE)


async def test_lists_what_is_loaded_in_the_recorded_shape(upstream: Rehearsal) -> None:
    for model, keep_alive in (("all-minilm", 600), ("gemma3:270m", 900)):
        path = "/api/embed" if model == "all-minilm" else "/api/chat"
        body = json.dumps({"model": model, "keep_alive": keep_alive, "options": {"num_ctx": 1024}}).encode()
        await exchange(upstream.url, "POST", path, body=body)
    recorded = recording("native-ps")
    answer = await replay(upstream, recorded)
    same_head(answer, recorded)
    (ours,), (theirs,) = decoded(answer.chunks), decoded(recorded.chunks)
    assert shape(ours) == shape(theirs)
    # The one that stays longest comes first, and the window is cut to what the model was trained for.
    assert [(m["name"], m["context_length"]) for m in ours["models"]] == [
        ("gemma3:270m", 1024),
        ("all-minilm:latest", 512),
    ]
    assert [(m["name"], m["context_length"]) for m in theirs["models"]][:2] == [
        (m["name"], m["context_length"]) for m in ours["models"]
    ]


async def test_a_runner_that_another_name_loaded_renders_with_its_own_template(upstream: Rehearsal) -> None:
    load = json.dumps({"model": "gate-nobos"}).encode()
    await exchange(upstream.url, "POST", "/api/chat", body=load)
    wrong_prompt = recording("native-chat-shared-blob-wrong-prompt")
    answer = await replay(upstream, wrong_prompt)
    (ours,), (theirs,) = decoded(answer.chunks), decoded(wrong_prompt.chunks)
    assert ours["_debug_info"] == theirs["_debug_info"]
    no_tools = recording("native-chat-shared-blob-tools-error")
    answer = await replay(upstream, no_tools)
    assert (answer.status, decoded(answer.chunks)) == (no_tools.status, decoded(no_tools.chunks))


async def test_its_own_runner_renders_with_its_own_template(upstream: Rehearsal) -> None:
    recorded = recording("native-chat-mode-native-debug-render")
    (ours,), (theirs,) = decoded((await replay(upstream, recorded)).chunks), decoded(recorded.chunks)
    assert ours["_debug_info"] == theirs["_debug_info"]
