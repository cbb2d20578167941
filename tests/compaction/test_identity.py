"""Which requests belong to one conversation."""

from typing import Any

from ollama_gate.compaction.identity import conversation_of
from ollama_gate.requests import InferenceRequest, Kind


def request(*texts: str, session: str | None = None) -> InferenceRequest:
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    return InferenceRequest(Kind.CHAT, "/api/chat", "m", {"messages": messages}, stream=False, session=session)


def test_a_conversation_keeps_its_name_while_it_grows() -> None:
    for session in (None, "s"):
        assert conversation_of(request("hi", session=session)) == conversation_of(
            request("hi", "a", "b", session=session)
        )


def test_sessions_and_beginnings_tell_conversations_apart() -> None:
    names = {conversation_of(request(text, session=session)) for text in ("x", "y") for session in (None, "s", "t")}
    assert len(names) == 6
    assert {len(name) for name in names} == {48}
