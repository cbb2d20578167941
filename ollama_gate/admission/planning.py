"""Which windows, slots and cache types of a model fit into so much memory; for people who plan a machine.

The order is the one that is advised: the biggest model that fits with a small window, then flash attention and a q8_0
cache, then the window raised until the next step would not fit any more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ollama_gate.admission.memory import Footprint, LaunchPlan, footprint, largest_window, launch_faults
from ollama_gate.admission.shapes import ModelShape

SMALL_WINDOW = 4096
"""The least window that is worth planning for, in tokens."""
TYPES = ("f16", "q8_0", "q4_0")
SLOTS = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Fit:
    """A window and what it takes."""

    num_ctx: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Combination:
    """One way to run a model: a cache type and a number of slots, and the windows that fit."""

    kv_cache_type: str
    num_parallel: int
    largest_num_ctx: int
    """Tokens a slot; 0 when none fits."""
    bytes: int
    """What it takes with that window; with the small window where none fits."""
    fitting: tuple[Fit, ...]
    """The usual windows that fit, smallest first; the last is the largest of all."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What is possible for one model."""

    model: str
    weights: int
    """Bytes."""
    trained: int
    """The largest window that it was trained for; 0 when that is not known."""
    least: int
    """Bytes with a small window, one slot and an f16 cache."""
    combinations: tuple[Combination, ...]
    best: Combination | None
    """What is advised: one slot, a q8_0 cache where the model can have one, and the largest window."""
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether there is any way to run it."""
        return any(each.largest_num_ctx for each in self.combinations)


@dataclass(frozen=True, slots=True)
class Planner:
    """So much memory, and the launch that the windows, slots and types are tried in."""

    limit: int
    """Bytes."""
    counts_host: bool
    """Whether the limit covers host memory beside the load."""

    def plan(self, model: str, shape: ModelShape, launch: LaunchPlan) -> ModelPlan:
        """Try one model."""
        small = min(SMALL_WINDOW, shape.trained_window or SMALL_WINDOW)
        least = footprint(shape, replace(launch, num_ctx=small, num_parallel=1, kv_cache_type="f16"))
        found = tuple(self._combinations(shape, launch, small))
        able = [each for each in found if each.num_parallel == 1 and each.largest_num_ctx]
        wished = [each for each in able if each.kv_cache_type == "q8_0"] or able
        return ModelPlan(
            model=model,
            weights=shape.weights,
            trained=shape.trained_window,
            least=self._size(least),
            combinations=found,
            best=max(wished, key=lambda each: each.largest_num_ctx, default=None),
            notes=least.notes,
        )

    def _combinations(self, shape: ModelShape, launch: LaunchPlan, small: int) -> Iterator[Combination]:
        for kind in TYPES if shape.cache else TYPES[:1]:
            for slots in SLOTS[:1] if shape.single_slot else SLOTS:
                tried = replace(launch, num_parallel=slots, kv_cache_type=kind)
                if launch_faults(shape, tried):
                    continue
                largest = largest_window(shape, tried, self.limit, with_host=self.counts_host)
                if largest < small:
                    largest = 0
                fits = tuple(Fit(num_ctx, self._at(shape, tried, num_ctx)) for num_ctx in _windows(small, largest))
                yield Combination(kind, slots, largest, self._at(shape, tried, largest or small), fits)

    def _at(self, shape: ModelShape, launch: LaunchPlan, num_ctx: int) -> int:
        return self._size(footprint(shape, replace(launch, num_ctx=num_ctx)))

    def _size(self, of: Footprint) -> int:
        return of.total if self.counts_host else of.loaded


def _windows(small: int, largest: int) -> Iterator[int]:
    while small < largest:
        yield small
        small *= 2
    if largest:
        yield largest


def in_order(plans: Sequence[ModelPlan]) -> list[ModelPlan]:
    """The biggest model that fits first; those that do not fit come last."""
    return sorted(plans, key=lambda plan: (not plan.fits, -plan.weights, plan.model))
