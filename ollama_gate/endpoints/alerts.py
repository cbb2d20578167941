"""What somebody should look at now, in words, whoever found it: the list that status page, `top` and `doctor` show."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ollama_gate.admission.alerts import SAYS
from ollama_gate.config.units import told_apart

_BYTES: Final = frozenset({"size", "size_vram", "booked", "limit", "held"})


def alerts(status: Mapping[str, Any]) -> list[dict[str, str]]:
    """Every alert of a status, as a record of strings.

    Args:
        status: the sections of /gate/status as they are told; one that is off is None or says nothing.

    Returns:
        For each its `level` (error or warning), what it is `about`, `what` it says, and the `page` on what to do.
    """
    return [
        {"level": level, "about": about, "what": what, "page": page}
        for level, about, what, page in (*_guard(status), *_others(status))
    ]


def _guard(status: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """What was found when the ledger was compared with /api/ps."""
    for facts in status["memory"].alerts:
        kind, about = facts["kind"], facts.get("model") or "memory"
        if kind == "MemoryUnknown":
            numbers = f"for {facts['seconds']:.0f} s; {facts['why']}"
        else:
            numbers = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _numbers(kind, facts))
        level = "error" if kind == "MemoryUnknown" else "warning"
        yield level, about, SAYS[kind] + (f" ({numbers})" if numbers else ""), "docs/operate.md#queue-and-memory"


def _others(status: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for level, about, section, field, page in (
        ("error", "Ollama", "upstream", "warning", "docs/verification.md"),
        ("warning", "Ollama", "log", "alert", "docs/operate.md#ollamas-own-log"),
        ("warning", "Ollama's log", "log", "problem", "docs/operate.md#ollamas-own-log"),
        ("error", "archive", "archive", "problem", "docs/archive.md"),
        ("error", "keys", "keys", "problem", "docs/security.md#keys"),
        ("error", "shared", "shared", "problem", "docs/operate.md#several-gates"),
    ):
        if what := (status[section] or {}).get(field):
            yield level, about, what, page


def _numbers(kind: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an alert says in numbers; those of bytes are told so that one sees that they differ."""
    of_bytes = [name for name in facts if name in _BYTES or (kind == "BiggerThanBooked" and name == "found")]
    sizes = dict(zip(of_bytes, told_apart(*(facts[name] for name in of_bytes)), strict=True))
    for name, value in facts.items():
        if name == "likely":
            yield name, " or ".join(f"{slots} with {cache}" for slots, cache in value)
        elif name not in {"kind", "model"}:
            yield name, sizes.get(name) or str(value)
