"""Documents and search results on /v1/messages: their text reaches the model, and what has none is refused by name."""

from typing import Any

import pytest

from support.dialects import MESSAGES, parse, refusal_of

PLAIN = {"type": "text", "media_type": "text/plain", "data": "The ferry leaves at nine."}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}
ASK = {"type": "text", "text": "When?"}
DOT = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}


def asked(*blocks: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": list(blocks)}]}


def said(*blocks: Any) -> list[dict[str, Any]]:
    request = parse(MESSAGES, asked(*blocks))
    assert request.notes == ()
    messages: list[dict[str, Any]] = request.body["messages"]
    return messages


def document(source: Any, **more: Any) -> dict[str, Any]:
    return {"type": "document", "source": source, "citations": {"enabled": True}, **more}


def test_the_text_of_a_document_is_kept_apart_from_what_is_said_about_it() -> None:
    [message] = said({"type": "text", "text": "Read this:"}, document(PLAIN, title="Times", context="Winter"), ASK)
    assert message["content"] == "Read this:\n\nTimes\nWinter\nThe ferry leaves at nine.\n\nWhen?"


def test_a_document_alone_is_a_message() -> None:
    assert said(document(PLAIN)) == [{"role": "user", "content": "The ferry leaves at nine.\n\n"}]


def test_a_document_of_blocks_keeps_text_and_images() -> None:
    [message] = said(document({"type": "content", "content": [{"type": "text", "text": "one"}, DOT]}), ASK)
    assert message == {"role": "user", "content": "one\n\nWhen?", "images": ["QUJD"]}
    assert said(document({"type": "content", "content": "two"}))[0]["content"] == "two\n\n"


def test_a_search_result_is_kept_with_where_it_was_found() -> None:
    found = {"type": "search_result", "source": "https://x", "title": "T", "content": [{"type": "text", "text": "one"}]}
    assert said(found, ASK)[0]["content"] == "T\nhttps://x\none\n\nWhen?"


@pytest.mark.parametrize(
    "source",
    [
        PDF,
        {"type": "url", "url": "https://x"},
        {"type": "file", "file_id": "f"},
        {"type": "text"},
        {"type": "text", "data": 5},
        {"type": ["text"]},
        {"type": "content", "content": None},
        {"type": "content", "content": [5]},
        {"type": "content", "content": [{"type": "image", "source": {"type": "base64", "data": "?"}}]},
        {},
        None,
        "text",
    ],
)
def test_a_document_without_text_is_refused_by_its_place(source: Any) -> None:
    refusal = refusal_of(MESSAGES, asked(ASK, document(source)))
    assert (refusal.status, refusal.param) == (400, "messages[0].content[1]")
    assert refusal.message.startswith("messages[0].content[1] ")


def result(*parts: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": list(parts)}


def test_what_tools_give_is_read_in_the_same_way() -> None:
    parts = ({"type": "text", "text": "Found:"}, document(PLAIN), {"type": "tool_reference", "tool_name": "f"})
    [message] = said(result(*parts))
    assert message["role"] == "tool"
    assert message["content"] == "Found:\n\nThe ferry leaves at nine.\n\n\n\nf\n\n"


def test_a_tools_document_without_text_refuses_nobody_but_the_model_is_told() -> None:
    request = parse(MESSAGES, asked(result(document(PDF)), ASK))
    assert "is a document whose source (base64) is no text" in request.body["messages"][0]["content"]
    assert request.notes == ("content blocks of a kind Ollama does not know were left out",)
