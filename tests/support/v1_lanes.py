"""The four translated streams side by side: one question, its native answer, and what each dialect makes of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from support.dialects import CHAT, COMPLETIONS, MESSAGES, RESPONSES, events
from support.http import Reply
from support.scripted import LAST_CHUNK, STREAM_HEAD, chunk

QUESTION = [{"role": "user", "content": "Say hello."}]
ERRORS = ("error", "response.failed")


@dataclass(frozen=True, slots=True)
class Lane:
    """One translated route that streams."""

    path: str
    asked: Mapping[str, Any]
    native: str
    """The route that Ollama is asked on."""
    end: str
    """The event that ends a stream, or its data where events have no names."""

    def body(self, **more: Any) -> dict[str, Any]:
        """A request for a stream."""
        return {"model": "llama3.2", "stream": True, **self.asked, **more}

    def piece(self, text: str) -> bytes:
        """One native line with some text, as an HTTP chunk."""
        said = (
            {"response": text}
            if self.native == "/api/generate"
            else {"message": {"role": "assistant", "content": text}}
        )
        return line({**said, "done": False})

    def last(self, **more: Any) -> bytes:
        """The native line that ends an answer, as an HTTP chunk."""
        said = {"response": ""} if self.native == "/api/generate" else {"message": {"role": "assistant", "content": ""}}
        return line({**said, "done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 2, **more})

    def answer(self) -> bytes:
        """A whole native stream."""
        return STREAM_HEAD + self.piece("Hel") + self.piece("lo.") + self.last() + LAST_CHUNK

    def text_of(self, reply: Reply) -> str:
        """What the model said, put together by the dialect's rules."""
        return "".join(self._texts(reply))

    def _texts(self, reply: Reply) -> Iterator[str]:
        for name, data in events(reply.body.decode()):
            if name == "response.output_text.delta":
                yield data["delta"]
            elif name == "content_block_delta":
                yield data["delta"].get("text", "")
            elif not name and data != "[DONE]":
                for choice in data.get("choices", ()):
                    yield choice.get("text") or choice.get("delta", {}).get("content") or ""

    def ended(self, reply: Reply) -> bool:
        """Whether the stream has its end mark."""
        return any(self.end in (name, data) for name, data in events(reply.body.decode()))

    def failure(self, reply: Reply) -> Any:
        """The error object of the stream's last event; None when that is no error."""
        *_, (name, data) = events(reply.body.decode())
        if name == "response.failed":
            return data["response"]["error"]
        return data.get("error") if isinstance(data, dict) and name in ("", "error") else None


def line(native: Mapping[str, Any]) -> bytes:
    """One native line as an HTTP chunk."""
    return chunk(orjson.dumps({"model": "llama3.2", "created_at": "2026-11-30T08:20:39.9Z", **native}) + b"\n")


LANES = {
    "chat": Lane(CHAT, {"messages": QUESTION}, "/api/chat", "[DONE]"),
    "completions": Lane(COMPLETIONS, {"prompt": "Say hello."}, "/api/generate", "[DONE]"),
    "responses": Lane(RESPONSES, {"input": "Say hello."}, "/api/chat", "response.completed"),
    "messages": Lane(MESSAGES, {"messages": QUESTION, "max_tokens": 50}, "/api/chat", "message_stop"),
}
