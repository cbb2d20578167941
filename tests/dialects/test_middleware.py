"""A few hundred requests with native answers, as Ollama's own compatibility layer translated them.

`tests/data/dialects/README.md` says how they were recorded.
"""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from ollama_gate.requests import AnswerFacts
from support.dialects import (
    CHAT,
    ENDPOINTS,
    MESSAGES,
    RESPONSES,
    as_its_layer_makes_it,
    as_ollama_reads_it,
    normal,
    refusal_of,
    writer_of,
)

RECORDED = Path(__file__).parent.parent / "data/dialects/middleware.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text("utf-8").split("\n") if line]


def lost(line: dict[str, Any]) -> bool:
    """Whether the layer lost what was asked, which the gate refuses: a document, a stored image, or all of it."""
    emptied = "messages" in line["body"] and line["native"].get("messages") is None
    body = json.dumps(line["body"])
    return emptied or '"document"' in body or ('"file_id"' in body and '"input_image"' in body)


def in_parts(line: dict[str, Any]) -> bool:
    """Whether a tool's result came in parts: the layer forgets whose it is, and all of an empty one."""
    messages = line["body"].get("messages") or ()
    return any(each["role"] == "tool" and isinstance(each["content"], list) for each in messages)


def forgotten(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without whose results those of tools are, and without empty ones."""
    shown = [{**each} if each["role"] != "tool" else {**each, "tool_name": "", "tool_call_id": ""} for each in messages]
    return [each for each in shown if each["role"] != "tool" or each["content"] or each.get("images")]


def told_in_short(line: dict[str, Any]) -> bool:
    """Whether earlier thinking came as a summary only, which the layer forgets."""
    items = line["body"].get("input") if line["path"] == RESPONSES else None
    thoughts = [each for each in items if each.get("type") == "reasoning"] if isinstance(items, list) else ()
    return any(each.get("summary") and not each.get("encrypted_content") for each in thoughts)


TRANSLATED = [line for line in LINES if line.get("status") == 200 and not lost(line)]
LOST = [line for line in LINES if line.get("status") == 200 and lost(line)]
REFUSED = [line for line in LINES if line.get("status") == 400]


def named(line: dict[str, Any]) -> str:
    return str(line["path"])


def better(path: str, answer: str) -> str:
    """The layer's answer with what the gate does on purpose otherwise."""
    answer = answer.replace('"output":null', '"output":[]').replace('"content":null,"stop', '"content":[],"stop')
    if path == MESSAGES:
        answer = re.sub(r'("message_start".*?"input_tokens":)\d+', r"\g<1>5", answer)
        return answer.replace("model_context_window_exceeded", "max_tokens")
    if path == RESPONSES:
        for completed, incomplete in (
            ('"incomplete_details":null', '"incomplete_details":{"reason":"max_output_tokens"}'),
            ("response.completed", "response.incomplete"),
            ('"status":"completed"', '"status":"incomplete"'),
        ):
            answer = answer.replace(incomplete, completed)
        answer = re.sub(r'"completed_at":\d+', '"completed_at":null', answer)
    return answer


@pytest.mark.parametrize("line", TRANSLATED, ids=named)
def test_a_request_is_translated_as_ollama_translates_it(line: dict[str, Any]) -> None:
    request = ENDPOINTS[line["path"]].parse(line["body"], {}, "drop")
    native = orjson.loads(orjson.dumps(dict(request.body)))
    read, recorded = as_its_layer_makes_it(line["path"], native), as_ollama_reads_it(line["native"])
    if line["path"] == CHAT and in_parts(line):
        read["messages"], recorded["messages"] = forgotten(read["messages"]), forgotten(recorded["messages"])
    if told_in_short(line):
        kept = [each.pop("thinking", "") for each in read["messages"]]
        assert [each.pop("thinking", "") for each in recorded["messages"]] != kept
    assert read == recorded


@pytest.mark.parametrize("line", TRANSLATED, ids=named)
def test_an_answer_is_translated_as_ollama_translates_it(line: dict[str, Any]) -> None:
    path, body, chunks = line["path"], line["body"], line["chunks"]
    request = ENDPOINTS[path].parse(body, {}, "drop")
    writer = writer_of(path, request, body, AnswerFacts(prompt_tokens=5))
    if request.stream:
        sent = b"".join(writer.feed(chunk) for chunk in chunks)
        assert writer.finish() == b""
    else:
        sent = writer.whole(chunks[0])
    assert better(path, normal(sent.decode())) == better(path, normal(line["answer"]))


@pytest.mark.parametrize("line", REFUSED, ids=named)
def test_a_request_is_refused_as_ollama_refuses_it(line: dict[str, Any]) -> None:
    refusal = refusal_of(line["path"], line["body"])
    written, content_type = ENDPOINTS[line["path"]].render_refusal(refusal, "7f")
    expected = json.loads(line["answer"])
    assert refusal.status == 400
    assert content_type == "application/json; charset=utf-8"
    if line["path"] == MESSAGES:
        told = json.loads(normal(written.decode()))
        assert {key: told[key] for key in expected} == json.loads(normal(line["answer"]))
    else:
        assert written.decode() == line["answer"]


@pytest.mark.parametrize("line", LOST, ids=named)
def test_better_than_ollama_what_would_be_lost_is_refused(line: dict[str, Any]) -> None:
    assert refusal_of(line["path"], line["body"]).status == 400
