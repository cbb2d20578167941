"""What tells one conversation from another, and one prompt from another."""

import hashlib
import re
from typing import Final

from ollama_gate.requests import InferenceRequest
from ollama_gate.wire.body import encode_json

_OPENING: Final = 512 * 1024
"""Characters of one text that are looked at to know it again."""
_BILLING: Final = re.compile(r"\Ax-anthropic-billing-header:(?:[ ]?[\w-]+=[^;\n]*;)*\n?", re.ASCII)


def conversation_key(request: InferenceRequest) -> bytes:
    """What tells one conversation from another: the client's session id, else the model and how it began.

    The first user message and what stands before it stay the same while a conversation grows, and agents keep them when
    they compact. Claude Code's billing line at the head of its system prompt does not stay the same, and is left out.
    Sixteen bytes.
    """
    if (weight := request.weighed) is not None:
        return weight.conversation
    if request.session:
        named = request.session.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(named, digest_size=16, person=b"session").digest()
    mark = hashlib.blake2b(request.model.lower().encode(), digest_size=16, person=b"opening")
    for message in request.body.get("messages") or ():
        mark.update(str(message.get("role")).encode("utf-8", "surrogatepass") + b"\0")
        content = without_billing((message.get("content") or "")[:_OPENING])
        mark.update(content.encode("utf-8", "surrogatepass") + b"\0")
        if message.get("role") == "user":
            break
    mark.update((request.body.get("prompt") or "")[:256].encode("utf-8", "surrogatepass"))
    return mark.digest()


def without_billing(text: str) -> str:
    """A system prompt without Claude Code's billing line at its head, which varies within one conversation."""
    return _BILLING.sub("", text, count=1)


def prompt_key(request: InferenceRequest) -> bytes:
    """What tells one prompt from another, whatever else a request says: clients vary options when they try again.

    Sixteen bytes.
    """
    if (weight := request.weighed) is not None:
        return weight.prompt
    said = {name: request.body.get(name) for name in ("system", "prompt", "suffix", "messages", "tools", "input")}
    text = encode_json(said)
    if len(text) > 2 * _OPENING:  # of a long one its length, how it begins and how it ends tell enough
        text = b"%d" % len(text) + text[:_OPENING] + text[-_OPENING:]
    return hashlib.blake2b(text, digest_size=16, person=b"prompt").digest()
