"""What compaction and its stores agree on: originals, their hashes, checkpoints, and where both are kept.

An original is a native message as it came, in one canonical form, under the hash of that form. Pictures are in it by
their own hash only: their bytes are never kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

import orjson

from ollama_gate.conversations import without_billing
from ollama_gate.errors import GateError

SHOWN: Final = 12
"""Hex digits of a hash that markers and tags show."""


class ArchiveFailed(GateError):
    """Originals could not be kept, so nothing may take their place."""


@dataclass(frozen=True, slots=True)
class Original:
    """One message as it came."""

    hash: str
    """blake2b of `body`, 64 hex digits."""
    role: str
    body: bytes
    """The message as canonical JSON: keys sorted, pictures replaced by `blake2b:<64 hex>` of what the client sent."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A compaction that can be done again, byte for byte, while the messages that it was made of are the same.

    It holds no text: hashes of what it replaces, places in it, and the hash of what comes out.
    """

    replaces: tuple[str, ...]
    """`likeness` of each message that it was made of, in order."""
    settled: int
    """How many of the first messages must be the same for it to be used. Those behind them were the last messages then,
    each kept at its place; where one of them differs, what was made of the messages before it is still used."""
    plan: bytes
    """What is made of the messages, as `plan.Plan` is packed."""
    prefix: str
    """blake2b of what comes out for the first `settled` messages, 32 hex digits."""
    names: tuple[str, ...] = ()
    """The first digits of the hash that each message was archived under, in order: markers and tags go on showing those
    where a client has renewed its ids since. Empty in what older versions stored."""

    def pack(self) -> bytes:
        """The checkpoint as JSON, for a store."""
        return orjson.dumps([self.replaces, self.settled, self.plan.decode(), self.prefix, self.names])

    @classmethod
    def unpack(cls, packed: bytes) -> "Checkpoint":
        """What `pack` packed.

        Raises:
            ValueError: it is none.
        """
        try:
            replaces, settled, plan, prefix, *later = orjson.loads(packed)
            names = tuple(map(str, later[0])) if later else ()
            checkpoint = cls(tuple(map(str, replaces)), int(settled), str(plan).encode(), str(prefix), names)
        except (TypeError, ValueError) as odd:
            raise ValueError(f"not a checkpoint: {odd}") from odd
        return checkpoint


class Archive(Protocol):
    """Where the originals of compacted conversations are kept."""

    async def keep(self, conversation: str, model: str, originals: Sequence[Original]) -> None:
        """Keep these messages of a conversation; those that are kept already cost nothing.

        Args:
            conversation: what tells it from others (`identity.conversation_of`).
            model: the model's canonical name.
            originals: in the order of the conversation.

        Raises:
            ArchiveFailed: not all of them are kept; the compaction is refused.
        """
        ...


class Checkpoints(Protocol):
    """Where the last checkpoint of each conversation is kept. Losing one only costs a compaction."""

    async def latest_checkpoint(self, conversation: str, model: str) -> Checkpoint | None:
        """The last one of a conversation with a model; None where there is none, or it cannot be read."""
        ...

    async def keep_checkpoint(self, conversation: str, model: str, checkpoint: Checkpoint) -> None:
        """Keep one in place of the last; a failure to do so is the store's own to report."""
        ...


def original_of(message: Mapping[str, Any]) -> Original:
    """A native message in its canonical form.

    Raises:
        ValueError: it cannot be written as JSON (broken surrogates, nesting beyond 250 levels).
    """
    body = _canonical(message)
    role = message.get("role")
    return Original(blake2b(body, digest_size=32).hexdigest(), role if isinstance(role, str) else "", body)


def message_hash(message: Mapping[str, Any]) -> str:
    """The hash that an original is kept under: 64 hex digits; markers and tags show the first 12. Raises ValueError."""
    return blake2b(_canonical(message), digest_size=32).hexdigest()


def likeness(message: Mapping[str, Any]) -> str:
    """A hash of what stays the same of a message while its conversation grows: without ids, which some clients renew.

    Claude Code's billing line at the head of its system prompt is left out too. 32 hex digits. Raises ValueError.
    """
    body = {name: value for name, value in message.items() if name != "tool_call_id"}
    if isinstance(body.get("content"), str):
        body["content"] = without_billing(body["content"])
    if body.get("tool_calls"):
        body["tool_calls"] = [_without_id(call) for call in body["tool_calls"]]
    return blake2b(_canonical(body), digest_size=16).hexdigest()


def _without_id(call: Any) -> Any:
    return {name: value for name, value in call.items() if name != "id"} if isinstance(call, Mapping) else call


def _canonical(message: Mapping[str, Any]) -> bytes:
    images = message.get("images")
    if images:
        message = {**message, "images": [_image(image) for image in images]}
    try:
        return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as odd:
        raise ValueError(f"a message cannot be written as JSON: {odd}") from odd


def _image(image: Any) -> str:
    sent = image.encode("utf-8", "surrogatepass") if isinstance(image, str) else orjson.dumps(image)
    return f"blake2b:{blake2b(sent, digest_size=32).hexdigest()}"
