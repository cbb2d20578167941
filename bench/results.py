"""From values to a verdict: medians, ratios of neighbours, and the goals that they are held against."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from statistics import median
from typing import Any, Final

from bench.speed import Record


class Judged(Enum):
    """What a goal is about."""

    RATIO = "times nginx"
    """The gate's value over nginx's, in the same round."""
    ADDED = "times what nginx adds"
    """What the gate adds to no proxy, over what nginx adds."""
    LIMIT = "at most"
    """The gate's own value."""
    NOTHING = "for information"


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table."""

    key: str
    title: str
    unit: str
    """ms, µs, s, MB, /s, or × for what is a ratio already."""
    judged: Judged = Judged.NOTHING
    goal: float | None = None
    """In the row's unit, or a ratio."""


_SCALES: Final = {"ms": 1e3, "µs": 1e6, "s": 1.0, "MB": 1 / 1024**2, "/s": 1.0, "×": 1.0}

MEASURES: Final = (
    Measure("first byte", "time to a first byte that comes after a pause, without the pause", "ms", Judged.ADDED, 3.0),
    Measure("first byte at once", "time to a first byte that comes at once", "ms"),
    Measure("request c16", "CPU of a small request, 16 at once", "µs", Judged.RATIO, 8.0),
    Measure("request c64", "CPU of a small request, 64 at once", "µs", Judged.RATIO, 8.0),
    Measure("rate c16", "small requests, 16 at once", "/s"),
    Measure("rate c64", "small requests, 64 at once", "/s"),
    Measure("paced", "CPU of a streamed token, 100 paced streams", "µs", Judged.RATIO, 2.5),
    Measure("translated OpenAI", "the same as /v1/chat/completions, over the native lane", "×", Judged.LIMIT, 1.6),
    Measure("translated Anthropic", "the same as /v1/messages, over the native lane", "×", Judged.LIMIT, 1.6),
    Measure("latest token", "the latest of all tokens, 200 slow streams", "ms", Judged.LIMIT, 100.0),
    Measure("late p99", "lateness that 99 % of them stay below", "ms"),
    Measure("latest first token", "the latest of their first tokens", "ms"),
    Measure("start to ready", "from the start to the first answer", "s", Judged.LIMIT, 1.0),
    Measure("resident at start", "resident memory before a tokenizer is loaded", "MB", Judged.LIMIT, 60.0),
    Measure("resident at end", "resident memory after all of the above", "MB"),
    Measure(
        "resident with vocabulary",
        "more memory with a vocabulary of 262 144 tokens, just built",
        "MB",
        Judged.LIMIT,
        140.0,
    ),
    Measure("resident from cache", "more memory with the same one from the disk cache", "MB", Judged.LIMIT, 140.0),
    Measure("vocabulary ready", "from a model's first request to its tokenizer", "s", Judged.LIMIT, 3.0),
    Measure("vocabulary ready from cache", "the same from the disk cache", "s", Judged.LIMIT, 1.5),
    Measure("cold", "counting 120 messages, 74 000 tokens, for the first time", "ms", Judged.LIMIT, 250.0),
    Measure("turn", "the same with one more turn", "ms", Judged.LIMIT, 15.0),
    Measure("repeat", "the same again", "ms", Judged.LIMIT, 5.0),
    Measure(
        "tools warm", "35 KB system prompt and 12 tools, seen before, with a new question", "ms", Judged.LIMIT, 2.0
    ),
    Measure("count 1 MB", "counting 1 MB of text", "ms"),
    Measure("loop gap", "longest time that the event loop is held meanwhile", "ms", Judged.LIMIT, 25.0),
    Measure("loop gap idle", "the same with nothing to do", "ms"),
    Measure("compact cold", "compacting 74 000 tokens to fit 13 000, first count included", "s", Judged.LIMIT, 1.5),
    Measure("compact again", "the same with counts and worker warm", "s"),
    Measure("compact reuse", "the next turn, by the checkpoint", "ms", Judged.LIMIT, 30.0),
    Measure("compact loop gap", "longest time that the event loop is held while it compacts", "ms", Judged.LIMIT, 50.0),
    Measure("compact memory", "most memory of the compaction's process", "MB", Judged.LIMIT, 512.0),
    Measure("lease", "a lease on a free slot, taken and given back", "µs", Judged.LIMIT, 20.0),
    Measure("waiter comes", "CPU of each of 10 000 waiters of one model, to come", "µs"),
    Measure("waiter leaves", "the same, to leave while it waits", "µs"),
    Measure("waiter served", "the same, to be woken and served", "µs"),
    Measure("waiters growth", "all that, over what it is with 1 000 waiters", "×", Judged.LIMIT, 2.0),
    Measure("status", "/gate/status with 50 models loaded", "ms", Judged.LIMIT, 5.0),
)
TARGETS: Final = ("direct", "nginx", "gate")


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row; values in the measure's unit, None where there is none."""

    title: str
    unit: str
    direct: float | None
    nginx: float | None
    gate: float | None
    ratio: float | None
    goal: str
    holds: bool | None
    """None where there is no goal or nothing to hold against it."""


def rows_of(record: Record) -> list[Row]:
    """Every measured row."""
    return [_row(measure, record.values[measure.key]) for measure in MEASURES if measure.key in record.values]


def _row(measure: Measure, values: Mapping[str, list[float]]) -> Row:
    scale = _SCALES[measure.unit]
    direct, nginx, gate = (median(values[name]) * scale if values.get(name) else None for name in TARGETS)
    ratio = _ratio(measure.judged, values)
    judged = gate if measure.judged is Judged.LIMIT else ratio
    worst = max(values["gate"]) * scale if measure.key == "latest token" and values.get("gate") else judged
    goal = ""
    if measure.goal is not None:
        bound = f"{measure.goal:g} {measure.unit}" if measure.judged is Judged.LIMIT else f"{measure.goal:g} × nginx"
        goal = f"≤ {bound}".replace(" ×", "×") if measure.unit == "×" else f"≤ {bound}"
    holds = None if measure.goal is None or worst is None else worst <= measure.goal
    return Row(
        measure.title, measure.unit, direct, nginx, worst if measure.key == "latest token" else gate, ratio, goal, holds
    )


def _ratio(judged: Judged, values: Mapping[str, list[float]]) -> float | None:
    """The median of each round's ratio."""
    nginx, gate = values.get("nginx"), values.get("gate")
    if not nginx or not gate:
        return None
    if judged is Judged.RATIO:
        return median(ours / theirs for ours, theirs in zip(gate, nginx, strict=True))
    if judged is Judged.ADDED:
        triples = zip(values["direct"], nginx, gate, strict=True)
        return median((ours - none) / max(theirs - none, 1e-6) for none, theirs, ours in triples)
    return None


def document(record: Record, about: Mapping[str, str]) -> dict[str, Any]:
    """Everything, for a JSON file."""
    return {"about": dict(about), "rows": [asdict(row) for row in rows_of(record)], "values": record.values}
