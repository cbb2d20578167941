"""Reads numbers out of `/api/show`: scalars, per-layer arrays, and the shapes of tensors.

Everything here was written by whoever made the model file, so nothing is trusted: a number that no model can have is
treated as absent.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, TypeGuard

from ollama_gate.admission.memory_rules import TENSOR_BLOCKS
from ollama_gate.errors import GateError
from ollama_gate.requests import Json

MOST_LAYERS = 4096
_MOST_DIMENSIONS = 4
_MOST = 1 << 40
"""No length, count or window is larger; such a number is damage, or an attempt to cost time."""


class UnknownShape(GateError):
    """The metadata lacks what no default can stand for; the message names the key."""


class Metadata:
    """`model_info` under its architecture's prefix, and `tensors` by name.

    Raises:
        UnknownShape: there is no `general.architecture`.
    """

    def __init__(self, show: Json) -> None:
        info = show.get("model_info")
        if not isinstance(info, dict) or not isinstance(name := info.get("general.architecture"), str):
            raise UnknownShape("the model's metadata has no general.architecture")
        self.architecture = name
        self.notes: list[str] = []
        """What had to be assumed so far."""
        self.shapes: dict[str, Sequence[int]] = {}
        self.weights = 0
        """Bytes of all tensors."""
        capabilities = show.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, list) else []
        self._info = info
        tensors = show.get("tensors")
        for tensor in tensors if isinstance(tensors, list) else ():
            self._take(tensor)

    def _take(self, tensor: Any) -> None:
        if not isinstance(tensor, dict):
            return
        name, kind, shape = tensor.get("name"), tensor.get("type"), tensor.get("shape")
        if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(shape, list):
            return  # a foreign entry has no weight that could be known
        if len(shape) > _MOST_DIMENSIONS or not all(map(is_length, shape)):
            return
        if (block := TENSOR_BLOCKS.get(kind.lower())) is None:
            self.assume(f"weights of type {kind[:20]} taken at 4 bytes an element")
            block = 4, 1
        size, elements = block
        self.shapes[name] = shape
        self.weights += -(-prod(shape) // elements) * size

    def assume(self, what: str) -> None:
        """Note an assumption, once."""
        if what not in self.notes:
            self.notes.append(what)

    def has(self, key: str) -> bool:
        """Whether the key is there at all, be it null."""
        return f"{self.architecture}.{key}" in self._info

    def raw(self, key: str) -> Any:
        """The value under the architecture's prefix as it was sent."""
        return self._info.get(f"{self.architecture}.{key}")

    def scalar(self, key: str, default: int = 0) -> int:
        """The key's whole number; `default` when it is absent, an array, or no length."""
        value = self.raw(key)
        return value if is_length(value) else default

    def needed(self, key: str, most: int = _MOST) -> int:
        """The key's positive number.

        Raises:
            UnknownShape: there is none, or it is larger than `most`.
        """
        value = self.scalar(key)
        if not 0 < value <= most:
            raise UnknownShape(f"the model's metadata has no usable {self.architecture[:40]}.{key}")
        return value

    def by_layer(self, key: str, layers: int) -> list[int] | None:
        """One number a layer: the array, or a scalar repeated; None when it is absent or withheld."""
        value = self.raw(key)
        if is_length(value):
            return [value] * layers
        if isinstance(value, list) and len(value) >= layers and all(is_length(n) or isinstance(n, bool) for n in value):
            return [int(n) for n in value[:layers]]
        return None

    def length(self, layer: int, tensor: str, axis: int = 1) -> int | None:
        """One length of a layer's tensor, None when there is no such tensor."""
        shape = self.shapes.get(f"blk.{layer}.{tensor}.weight")
        return shape[axis] if shape is not None and len(shape) > axis else None

    def widths(self, layer: int) -> tuple[int, int] | None:
        """Elements a token that an attention layer writes for keys and values, by its tensors; None without them."""
        if (latent := self.length(layer, "attn_kv_a_mqa")) is not None:
            return latent, 0
        if (keys := self.length(layer, "attn_k")) is not None:
            values = self.length(layer, "attn_v")
            return keys, keys if values is None else values
        fused, output = self.length(layer, "attn_qkv"), self.length(layer, "attn_output", 0)
        if fused is None or self.is_recurrent(layer):
            return None
        half = fused if output is None or output > fused else (fused - output) // 2
        return half, half

    def is_recurrent(self, layer: int) -> bool:
        """Whether the layer's tensors hold a convolution, which only recurrent layers have."""
        return any(f"blk.{layer}.{name}.weight" in self.shapes for name in _CONVOLUTIONS)

    def lists_all(self, layers: int) -> bool:
        """Whether `tensors` has something of every layer, so that what it lacks is not there."""
        listed = {name.split(".", 2)[1] for name in self.shapes if name.startswith("blk.")}
        return listed.issuperset(map(str, range(layers)))


_CONVOLUTIONS = ("ssm_conv1d", "ssm_conv1d_q", "shortconv.conv")


def is_length(value: Any) -> TypeGuard[int]:
    """Whether a value can be a length or a count."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
