"""What the guard finds when it compares the ledger with `/api/ps`. Values only: others log and count them."""

from dataclasses import dataclass, replace
from typing import Final

from ollama_gate.admission.demand import Demand
from ollama_gate.admission.memory import Footprint, footprint
from ollama_gate.admission.residents import Reported

_CANDIDATE_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16)
_CANDIDATE_TYPES = ("f16", "q8_0", "q4_0")
_LEAST_COMPUTE = 0.4
"""Of the compute bound; measured buffers were never a smaller part of theirs."""


@dataclass(frozen=True, slots=True)
class WindowDiffers:
    """A model is resident with another window than the gate's; the next request will reload it."""

    model: str
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class LoadedElsewhere:
    """Somebody loaded a model past the gate."""

    model: str
    size: int


@dataclass(frozen=True, slots=True)
class Spilled:
    """Part of a model, or all of it, lies in host memory although there is a GPU: it will be slow."""

    model: str
    size: int
    size_vram: int


@dataclass(frozen=True, slots=True)
class BiggerThanBooked:
    """A model takes more than the arithmetic allows; the ledger books what was found."""

    model: str
    booked: int
    found: int


@dataclass(frozen=True, slots=True)
class SettingsDiffer:
    """The size of a model can only be explained by other settings of the Ollama service than the gate was told."""

    model: str
    num_parallel: int
    kv_cache_type: str
    """These two are what the gate was told."""
    likely: tuple[tuple[int, str], ...]
    """(num_parallel, kv_cache_type) that would explain the size."""


@dataclass(frozen=True, slots=True)
class StillThere:
    """A model that was told to go has not gone."""

    model: str


@dataclass(frozen=True, slots=True)
class OverLimit:
    """What is resident passes the limit, loaded by others than the gate."""

    limit: int
    held: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class MemoryUnknown:
    """Ollama does not say what is loaded: what was found before is old, and nothing new is found."""

    since: float
    """When it was asked first and gave no answer that can be used, on the gate's clock."""
    why: str
    model: str = ""


SAYS: Final = {
    "WindowDiffers": "a model is loaded with another window than the gate's: something else talks to Ollama",
    "LoadedElsewhere": "a model was loaded past the gate: something else talks to Ollama",
    "Spilled": "a model lies partly in host memory and will be slow",
    "BiggerThanBooked": "a model takes more memory than was worked out",
    "SettingsDiffer": "Ollama runs with other settings than upstream.num_parallel and upstream.kv_cache_type say",
    "StillThere": "a model that was told to go has not gone",
    "OverLimit": "what is loaded passes memory.limit",
    "MemoryUnknown": "Ollama does not say what is loaded: where there is a limit, no model is loaded until it does",
}
"""What each kind of alert means, in the log and wherever else it is told."""

Alert = (
    WindowDiffers
    | LoadedElsewhere
    | Spilled
    | BiggerThanBooked
    | SettingsDiffer
    | StillThere
    | OverLimit
    | MemoryUnknown
)


def settings_alert(demand: Demand, found: Reported) -> SettingsDiffer | None:
    """Whether the reported size proves that num_parallel or the cache type are others than configured.

    Silent when the size can be explained as configured, or by nothing that was tried. Weights are known to a few
    per cent and compute buffers only from above, so small differences prove nothing.
    """
    shape, plan = demand.shape, demand.plan
    if shape is None or plan is None or not found.num_ctx or shape.vision or plan.draft_tokens:
        return None
    told = replace(plan, num_ctx=found.num_ctx)
    expected = footprint(shape, told)
    if _explains(expected, found.size):
        return None
    if found.size_vram and found.size < expected.loaded - expected.unreported:
        return None  # with all layers on a GPU what stays on the host is not in `size`
    likely = tuple(
        (slots, kind)
        for kind in dict.fromkeys((plan.kv_cache_type, *_CANDIDATE_TYPES))
        for slots in ((1,) if shape.single_slot else _CANDIDATE_SLOTS)
        if _explains(footprint(shape, replace(told, num_parallel=slots, kv_cache_type=kind)), found.size)
    )
    return SettingsDiffer(found.model, plan.num_parallel, plan.kv_cache_type, likely) if likely else None


def _explains(of: Footprint, size: int) -> bool:
    """Whether a model of this footprint may be reported with this size."""
    certain = of.loaded - of.unreported - of.compute_bound - of.headroom
    least = certain - of.weights // 20 + (0 if of.draft else int(_LEAST_COMPUTE * of.compute_bound))
    return least <= size <= of.loaded - of.unreported + of.weights // 20
