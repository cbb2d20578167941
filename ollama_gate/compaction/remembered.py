"""Checkpoints in memory: the last ones, for a gate without an archive."""

from collections import OrderedDict

from ollama_gate.compaction.originals import Checkpoint


class RememberedCheckpoints:
    """The checkpoints of the conversations that were compacted last; they are gone with the gate."""

    def __init__(self, most: int = 512, most_bytes: int = 32 << 20) -> None:
        """Keep up to `most` checkpoints of up to `most_bytes` together; the least recently used goes first."""
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: OrderedDict[tuple[str, str], Checkpoint] = OrderedDict()

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    async def latest_checkpoint(self, conversation: str, model: str) -> Checkpoint | None:
        """The last checkpoint of a conversation with a model."""
        found = self._held.get((conversation, model))
        if found is not None:
            self._held.move_to_end((conversation, model))
        return found

    async def keep_checkpoint(self, conversation: str, model: str, checkpoint: Checkpoint) -> None:
        """Keep one in place of the last; one that is too large for the memory is not kept."""
        key = (conversation, model)
        self._drop(key)
        if _size(checkpoint) > self._most_bytes:
            return
        self._held[key] = checkpoint
        self._bytes += _size(checkpoint)
        while len(self._held) > self._most or self._bytes > self._most_bytes:
            self._drop(next(iter(self._held)))

    def _drop(self, key: tuple[str, str]) -> None:
        dropped = self._held.pop(key, None)
        if dropped is not None:
            self._bytes -= _size(dropped)


def _size(checkpoint: Checkpoint) -> int:
    """Bytes that a checkpoint takes in memory, roughly: a hash of 32 digits is a string of 81 bytes in a tuple."""
    return 400 + 90 * len(checkpoint.replaces) + len(checkpoint.plan)
