"""Counts that were made, kept for bodies that come again."""

import hashlib
from collections import OrderedDict
from typing import Final

from ollama_gate.requests import InferenceRequest, Json, PromptCount
from ollama_gate.wire.body import encode_json

_MOST: Final = 512
_NOT_COUNTED: Final = frozenset({"stream", "options", "keep_alive", "truncate", "shift", "logprobs", "top_logprobs"})
"""What a body may say that changes nothing in its prompt."""


class RememberedCounts:
    """The last counts, by what they were made of."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: OrderedDict[bytes, PromptCount] = OrderedDict()

    def find(self, key: bytes) -> PromptCount | None:
        """The count under this key."""
        found = self._counts.get(key)
        if found is not None:
            self._counts.move_to_end(key)
        return found

    def keep(self, key: bytes, count: PromptCount) -> None:
        """Remember a count; the one that was not asked for the longest time goes."""
        self._counts[key] = count
        if len(self._counts) > _MOST:
            self._counts.popitem(last=False)

    def clear(self) -> None:
        """Forget all: what counts may be called has changed."""
        self._counts.clear()


def key_of(request: InferenceRequest, model: str, image_tokens: int | None, *, exactly: bool) -> bytes:
    """What a count depends on, as a key.

    Args:
        request: what is counted.
        model: what its model is remembered by (`learned.remembered_as`): another mode or version makes other text.
        image_tokens: the configured cost of one image.
        exactly: whether it is counted in full.
    """
    mark = hashlib.sha256(f"{model} {request.path} {request.dialect} {image_tokens} {exactly}".encode())
    weight = request.weighed
    mark.update(weight.counted if weight is not None else encode_json(_counted(request.body)))
    return mark.digest()


def counted_key(body: Json) -> bytes:
    """What a count depends on of a large body, as a key."""
    return hashlib.sha256(encode_json(_counted(body))).digest()


def _counted(body: Json) -> Json:
    return {key: value for key, value in body.items() if key not in _NOT_COUNTED}
