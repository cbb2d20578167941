"""Where the gate does better than Ollama's own /v1 layer, one test for each line of the table in docs/dialects.md."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cases import front
from support.dialects import events
from support.gate import running_gate
from support.http import Reply, ask
from support.scripted import LAST_CHUNK, STREAM_HEAD, Got, ScriptedOllama, model, whole
from support.v1_lanes import LANES, Lane, line

DOCS = Path(__file__).parents[2] / "docs" / "dialects.md"
MODEL = "llama3.2"
HELLO = [{"role": "user", "content": "Hello."}]
CHAT = {"model": MODEL, "messages": HELLO}
MESSAGES = {**CHAT, "max_tokens": 50}
RESPONSES = {"model": MODEL, "input": "Hello."}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = {"id": "call_1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}}


def said(content: str = "", **message: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content, **message}, "done": False}


def done(reason: str = "stop", prompt: int = 9, completion: int = 3, **more: Any) -> dict[str, Any]:
    counts = {"prompt_eval_count": prompt, "eval_count": completion}
    return {**said(), "done": True, "done_reason": reason, **counts, **more}


async def answered(path: str, body: Any, *chunks: Mapping[str, Any], **headers: str) -> tuple[Reply, list[Got]]:
    """What a client gets when Ollama answers so, as a stream or whole, and what Ollama got."""

    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        if body.get("stream"):
            writer.write(STREAM_HEAD + b"".join(map(line, chunks)) + LAST_CHUNK)
        else:
            writer.write(whole({"model": MODEL, "created_at": "2026-11-30T08:20:39.9Z", **chunks[0]}))

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    models = {f"{MODEL}:latest": model(MODEL, capabilities=["completion", "tools", "thinking"])}
    async with ScriptedOllama(script, models) as ollama, running_gate(ollama.url) as gate:
        return await ask(gate.address, "POST", path, body, named), ollama.got


def told(reply: Reply) -> list[tuple[str, Any]]:
    return list(events(reply.body.decode()))


async def test_max_completion_tokens_is_honoured() -> None:
    body = {**CHAT, "max_completion_tokens": 2, "max_tokens": 500}
    _, [got] = await answered("/v1/chat/completions", body, done("length", completion=2))
    assert got.json["options"]["num_predict"] == 2


@pytest.mark.parametrize("lane", LANES.values(), ids=LANES)
async def test_a_death_in_mid_stream_is_told(lane: Lane) -> None:
    text = {"response": "Hel", "done": False} if lane.native == "/api/generate" else said("Hel")
    reply, _ = await answered(lane.path, lane.body(), text, {"error": "the runner died"})
    assert lane.text_of(reply) == "Hel"
    assert lane.failure(reply)["message"] == "the runner died"
    assert not lane.ended(reply)


async def test_an_answer_that_was_cut_is_incomplete() -> None:
    cut = {**said("Hel"), **done("length"), "message": said("Hel")["message"]}
    reply, _ = await answered("/v1/responses", RESPONSES, cut)
    assert (reply.json["status"], reply.json["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    streamed, _ = await answered("/v1/responses", {**RESPONSES, "stream": True}, said("Hel"), done("length"))
    assert told(streamed)[-1][0] == "response.incomplete"


async def test_text_beside_a_function_call_is_kept() -> None:
    answer = {**done(), "message": said("I look.", tool_calls=[CALL])["message"]}
    reply, _ = await answered("/v1/responses", RESPONSES, answer)
    assert [item["type"] for item in reply.json["output"]] == ["message", "function_call"]
    assert reply.json["output"][0]["content"][0]["text"] == "I look."


@pytest.mark.parametrize(("completion", "reason"), [(50, "max_tokens"), (20, "model_context_window_exceeded")])
async def test_a_full_window_has_its_own_stop_reason(completion: int, reason: str) -> None:
    reply, _ = await answered("/v1/messages", MESSAGES, done("length", completion=completion))
    assert reply.json["stop_reason"] == reason


async def test_a_message_starts_with_the_real_count() -> None:
    body = {**MESSAGES, "messages": [{"role": "user", "content": "東京 Tromsø " * 30}], "stream": True}
    async with front() as gate:
        await gate.ask("/v1/messages", {**MESSAGES, "max_tokens": 1})
        reply = await gate.ask("/v1/messages", body)
        entry = gate.got()[-1]
    [start] = [data for name, data in told(reply) if name == "message_start"]
    assert start["message"]["usage"]["input_tokens"] == entry.prompt_tokens


async def test_thinking_after_text_is_kept() -> None:
    reply, _ = await answered("/v1/messages", {**MESSAGES, "stream": True}, said("A."), said(thinking="Hm."), done())
    deltas = [data["delta"] for name, data in told(reply) if name == "content_block_delta"]
    assert deltas == [{"type": "text_delta", "text": "A."}, {"type": "thinking_delta", "thinking": "Hm."}]


async def test_an_empty_answer_is_an_empty_list() -> None:
    reply, _ = await answered("/v1/messages", MESSAGES, done())
    assert reply.json["content"] == []
    streamed, _ = await answered("/v1/responses", {**RESPONSES, "stream": True}, done())
    assert told(streamed)[-1][1]["response"]["output"] == []


async def test_no_models_are_an_empty_list() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nothing is run")

    async with ScriptedOllama(script, {}) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "GET", "/v1/models")
    assert reply.json == {"object": "list", "data": []}


async def test_cached_tokens_are_told() -> None:
    answer = done(prompt=9, prompt_eval_cached_count=7)
    chat, _ = await answered("/v1/chat/completions", CHAT, answer)
    response, _ = await answered("/v1/responses", RESPONSES, answer)
    message, _ = await answered("/v1/messages", MESSAGES, answer)
    assert chat.json["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}
    assert response.json["usage"]["input_tokens_details"] == {"cached_tokens": 7}
    assert message.json["usage"] == {"input_tokens": 2, "cache_read_input_tokens": 7, "output_tokens": 3}


async def test_tool_choice_none_is_honoured() -> None:
    function = {"name": "weather", "description": "", "parameters": SCHEMA}
    asked: dict[str, Any] = {
        "/v1/chat/completions": {**CHAT, "tools": [{"type": "function", "function": function}], "tool_choice": "none"},
        "/v1/responses": {**RESPONSES, "tools": [{"type": "function", **function}], "tool_choice": "none"},
        "/v1/messages": {
            **MESSAGES,
            "tools": [{"name": "weather", "input_schema": SCHEMA}],
            "tool_choice": {"type": "none"},
        },
    }
    for path, body in asked.items():
        reply, [got] = await answered(path, body, done())
        assert not got.json.get("tools")
        assert reply.gate("note") == "tool_choice none: the tools were left out"


async def test_a_schema_for_a_message_is_honoured() -> None:
    wish = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    _, [got] = await answered("/v1/messages", {**MESSAGES, **wish}, done())
    assert got.json["format"] == SCHEMA


async def test_a_list_of_one_prompt_is_unwrapped() -> None:
    _, [got] = await answered("/v1/completions", {"model": MODEL, "prompt": ["Once."]}, {"response": "", "done": True})
    assert got.json["prompt"] == "Once."


@pytest.mark.parametrize("prompt", [["One.", "Two."], [1, 2], [[1], [2]], []])
async def test_other_lists_of_prompts_are_refused_in_plain_words(prompt: list[Any]) -> None:
    reply, got = await answered("/v1/completions", {"model": MODEL, "prompt": prompt}, {"done": True})
    assert not got
    assert (reply.status, reply.json["error"]["param"]) == (400, "prompt")
    assert "unmarshal" not in reply.json["error"]["message"]


async def test_a_message_without_content_is_named() -> None:
    body = {**MESSAGES, "messages": [*HELLO, {"role": "assistant"}]}
    reply, _ = await answered("/v1/messages", body, done())
    assert (reply.status, reply.json["error"]["message"]) == (400, "messages[1].content is required")


NOTHING = [{"role": "user", "content": []}]
PLAIN = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "At nine."}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}}


async def refused(path: str, body: Any) -> Any:
    """The error of a request that never reaches Ollama."""
    reply, got = await answered(path, body, done())
    assert not got
    assert reply.status == 400
    return reply.json["error"]


async def test_a_conversation_of_which_nothing_is_left_is_refused() -> None:
    upload = [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]
    assert (await refused("/v1/chat/completions", {**CHAT, "messages": NOTHING}))["param"] == "messages"
    assert (await refused("/v1/responses", {**RESPONSES, "input": [{"type": "reasoning", "summary": []}]}))["message"]
    assert (await refused("/v1/messages", {**MESSAGES, "messages": NOTHING}))["message"]
    assert '"container_upload"' in (await refused("/v1/messages", {**MESSAGES, "messages": upload}))["message"]


async def test_the_text_of_a_document_reaches_the_model() -> None:
    asked = {**MESSAGES, "messages": [{"role": "user", "content": [PLAIN, {"type": "text", "text": "When?"}]}]}
    _, [got] = await answered("/v1/messages", asked, done())
    assert got.json["messages"] == [{"role": "user", "content": "At nine.\n\nWhen?"}]
    unread = {**MESSAGES, "messages": [{"role": "user", "content": [PLAIN, PDF]}]}
    assert (await refused("/v1/messages", unread))["message"].startswith("messages[0].content[1] is a document")


async def test_calls_beside_an_empty_list_stay_where_they_are() -> None:
    function = {"name": "f", "arguments": "{}"}
    called = {"role": "assistant", "content": [], "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    _, [got] = await answered("/v1/chat/completions", {**CHAT, "messages": [*HELLO, called]}, done())
    assert [message.get("tool_calls") is not None for message in got.json["messages"]] == [False, True]


async def test_json_without_a_schema_is_honoured() -> None:
    _, [got] = await answered("/v1/responses", {**RESPONSES, "text": {"format": {"type": "json_object"}}}, done())
    assert got.json["format"] == "json"


async def test_what_ollama_would_fail_on_is_refused_by_name() -> None:
    wish = {"type": "json_schema", "json_schema": {"schema": "x"}, "schema": "x"}
    chat = await refused("/v1/chat/completions", {**CHAT, "response_format": wish})
    assert chat["param"] == "response_format.json_schema.schema"
    assert (await refused("/v1/responses", {**RESPONSES, "text": {"format": wish}}))["param"] == "text.format.schema"
    message = await refused("/v1/messages", {**MESSAGES, "output_config": {"format": wish}})
    assert message["message"] == "output_config.format.schema must be a JSON schema, an object"
    assert (await refused("/v1/chat/completions", {**CHAT, "temperature": 1e39}))["param"] == "temperature"


async def test_a_stored_prompt_is_refused_in_plain_words() -> None:
    assert "stored at OpenAI" in (await refused("/v1/responses", {**RESPONSES, "prompt": {"id": "p"}}))["message"]


async def test_a_response_that_nobody_keeps_is_not_missed_in_silence() -> None:
    follows = {**RESPONSES, "previous_response_id": "resp_1"}
    result = {"type": "function_call_output", "call_id": "c", "output": "42"}
    for said_now in ("And then?", [{"role": "user", "content": "And then?"}], [result]):
        error = await refused("/v1/responses", {**follows, "input": said_now})
        assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
        assert "'resp_1' not found" in error["message"]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    for complete in ([{"role": "user", "content": "What?"}, call, result], [{"role": "assistant", "content": "Yes."}]):
        reply, [got] = await answered("/v1/responses", {**follows, "input": complete}, done())
        assert reply.status == 200
        assert got.json["messages"][-1]["content"] in {"42", "Yes."}
        assert "Ollama keeps no responses" in (reply.header("x-ollama-gate-note") or "")


async def test_half_an_answer_is_a_bad_gateway() -> None:
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES)):
        reply, _ = await answered(path, body, said("Hel"))
        assert (reply.status, reply.json["error"]["type"]) == (502, "api_error")


async def test_keep_alive_is_a_header() -> None:
    for value, sent in (("5m", "5m"), ("30", 30), ("0", 0)):
        _, [got] = await answered("/v1/chat/completions", CHAT, done(), x_ollama_gate_keep_alive=value)
        assert got.json["keep_alive"] == sent


async def test_a_model_whose_name_has_slashes_is_found() -> None:
    async with front() as gate:
        for name in ("mylab/llama3.2", "hf.co/example-org/Example-7B-GGUF:Q4_K_M"):
            reply = await gate.ask(f"/v1/models/{name}", method="GET")
            quoted = await gate.ask(f"/v1/models/{name.replace('/', '%2F')}", method="GET")
            assert (reply.status, reply.json["id"]) == (200, name)
            assert quoted.body == reply.body


async def test_prompts_are_counted_without_being_run() -> None:
    async with front() as gate:
        counts = [
            await gate.ask("/v1/messages/count_tokens", CHAT),
            await gate.ask("/v1/responses/input_tokens", RESPONSES),
        ]
        assert not gate.got()
    assert all(reply.json["input_tokens"] > 0 for reply in counts)


async def test_a_prompt_that_is_too_long_is_refused_and_never_cut() -> None:
    async with front(window=512) as gate:
        reply = await gate.ask(
            "/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "word " * 600}]}
        )
        assert not gate.got()
    assert reply.json["error"]["code"] == "context_length_exceeded"


def test_the_table_in_the_docs_names_these_tests() -> None:
    """Each line of the table ends in the name of what shows it, and each test here is named there."""
    table = DOCS.read_text("utf-8").partition("## Where the gate does better")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(test_\w+)`", table))
    here = {name for name in globals() if name.startswith("test_")} - {"test_the_table_in_the_docs_names_these_tests"}
    assert named == here
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    assert all(re.search(r"`test_\w+` \|$", row) for row in rows)


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/chat/completions", {"messages": []}), ("/v1/responses", {"input": []})]
)
async def test_a_developer_is_heard(path: str, body: dict[str, list[Any]]) -> None:
    talk = [{"role": "developer", "content": "Be brief."}, *HELLO]
    template = (
        '{{ .System }}{{ range .Messages }}{{ if eq .Role "user" }}<|{{ .Role }}|>{{ .Content }}{{ end }}{{ end }}'
    )

    async def script(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({"model": MODEL, "created_at": "2026-11-30T08:20:39.9Z", **done()}))

    models = {f"{MODEL}:latest": model(MODEL, template=template)}
    async with ScriptedOllama(script, models) as ollama, running_gate(ollama.url) as gate:
        reply = await ask(gate.address, "POST", path, {"model": MODEL, **dict.fromkeys(body, talk)})
        [got] = ollama.got
    assert got.json["messages"] == [{"role": "system", "content": "Be brief."}, *HELLO]
    assert "developer messages are sent as system messages" in (reply.gate("note") or "")


async def test_thinking_that_comes_back_by_its_other_name_is_kept() -> None:
    talk = [*HELLO, {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."}, *HELLO]
    both = [*HELLO, {**talk[1], "reasoning": "Ollama's own."}, *HELLO]
    for messages, thought in ((talk, "A greeting."), (both, "Ollama's own.")):
        _, [got] = await answered("/v1/chat/completions", {**CHAT, "messages": messages}, done())
        assert got.json["messages"][1] == {"role": "assistant", "content": "Hi.", "thinking": thought}


@pytest.mark.parametrize(
    ("thought", "kept"),
    [
        ({"summary": [{"type": "summary_text", "text": "In short."}]}, "In short."),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "At length."}]}, "At length."),
        (
            {"summary": [{"text": "In short."}], "content": [{"text": "At length."}, {"text": "And on."}]},
            "At length.\n\nAnd on.",
        ),
        (
            {"summary": [{"text": "In short."}], "content": [{"text": "At length."}], "encrypted_content": "Ours."},
            "Ours.",
        ),
        ({"summary": [None, {"text": 5}], "content": [7, {"text": None}]}, None),
        ({"summary": None, "content": "no list"}, None),
    ],
)
async def test_thinking_that_comes_back_in_another_servers_form_is_kept(thought: Any, kept: str | None) -> None:
    said = {"role": "assistant", "content": "Hi."}
    body = {**RESPONSES, "input": [*HELLO, {"type": "reasoning", "id": "rs_1", **thought}, said, *HELLO]}
    _, [got] = await answered("/v1/responses", body, done())
    assert got.json["messages"][1] == ({**said, "thinking": kept} if kept else said)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_a_result_has_the_name_of_its_tool(path: str) -> None:
    if path == "/v1/responses":
        calls = [{"type": "function_call", "call_id": id_, "name": id_ * 2, "arguments": "{}"} for id_ in "ab"]
        results = [{"type": "function_call_output", "call_id": id_, "output": "r"} for id_ in "bac"]
        body: dict[str, Any] = {"model": MODEL, "input": [*HELLO, *calls, *results]}
    else:
        uses = [{"type": "tool_use", "id": id_, "name": id_ * 2, "input": {}} for id_ in "ab"]
        found = [{"type": "tool_result", "tool_use_id": id_, "content": "r"} for id_ in "bac"]
        said = [{"role": "assistant", "content": uses}, {"role": "user", "content": found}]
        body = {"model": MODEL, "messages": [*HELLO, *said], "max_tokens": 9}
    _, [got] = await answered(path, body, done())
    told = [(each["tool_call_id"], each.get("tool_name")) for each in got.json["messages"] if each["role"] == "tool"]
    assert told == [("b", "bb"), ("a", "aa"), ("c", None)]


async def test_a_result_in_parts_keeps_its_call() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    calls = {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]}
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    results = [
        {"role": "tool", "tool_call_id": "c1", "content": parts},
        {"role": "tool", "tool_call_id": "c2", "content": []},
    ]
    body = {**CHAT, "messages": [*HELLO, calls, *results]}
    _, [got] = await answered("/v1/chat/completions", body, done())
    told = [(each["content"], each["tool_name"], each["tool_call_id"]) for each in got.json["messages"][2:]]
    assert told == [("one", "look", "c1"), ("two", "look", "c1"), ("", "look", "c2")]


@pytest.mark.parametrize("arguments", ["", " \n"])
async def test_a_call_with_empty_arguments_is_a_call(arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    talk = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "r"}]
    reply, [got] = await answered("/v1/chat/completions", {**CHAT, "messages": talk}, done())
    assert reply.status == 200
    assert got.json["messages"][1]["tool_calls"][0]["function"]["arguments"] == {}


_FLAT = {"type": "function", "name": "look", "parameters": {}}
_NESTED = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.mark.parametrize(
    ("path", "tool", "param"),
    [
        ("/v1/chat/completions", _FLAT, "tools[1].function.name"),
        ("/v1/chat/completions", {"name": "look", "input_schema": {}}, "tools[1].function.name"),
        ("/v1/responses", _NESTED, "tools[1].name"),
        ("/v1/messages", _NESTED, "tools[1].name"),
        ("/api/chat", _FLAT, "tools[1].function.name"),
    ],
)
async def test_a_tool_without_a_name_is_refused(path: str, tool: dict[str, Any], param: str) -> None:
    good = {**_FLAT, "function": {"name": "ask"}, "name": "ask"}
    said = {"input": "Hello."} if path == "/v1/responses" else {"messages": HELLO}
    body = {"model": MODEL, "max_tokens": 9, **said, "tools": [good, tool]}
    reply, got = await answered(path, body, done())
    assert reply.status == 400
    assert f"{param} is missing" in reply.body.decode()
    assert not got


_CALLED = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "look"}]}
_CALL_ITEM = {"type": "function_call", "call_id": "c1", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/v1/chat/completions", {"messages": [*HELLO, _CALLED]}, "messages[1].tool_calls[0].function.name"),
        ("/api/chat", {"messages": [*HELLO, _CALLED]}, "messages[1].tool_calls[0].function.name"),
        ("/v1/responses", {"input": [*HELLO, _CALL_ITEM]}, "input[1]: name"),
    ],
)
async def test_a_call_without_a_name_is_refused(path: str, body: dict[str, Any], place: str) -> None:
    reply, got = await answered(path, {"model": MODEL, **body}, done())
    assert reply.status == 400
    assert f"{place} is missing" in reply.body.decode()
    assert not got


async def test_a_tool_that_a_server_would_have_to_run_is_left_out_of_a_chat() -> None:
    body = {**CHAT, "tools": [{"type": "web_search"}, _NESTED]}
    reply, [got] = await answered("/v1/chat/completions", body, done())
    assert [tool["function"]["name"] for tool in got.json["tools"]] == ["look"]
    assert "tools of a kind Ollama does not know were left out" in (reply.gate("note") or "")
