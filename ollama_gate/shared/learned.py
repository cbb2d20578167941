"""What gates have learned of models, in the database: for each model a row of each version of the gate."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson
from sqlalchemy import Connection, select

from ollama_gate.archive.database import Database, batches
from ollama_gate.archive.schema import LONGEST_NAME, SECOND, learned
from ollama_gate.counting.learned import Learned, learned_of, merged, of_a_file

_MOST: Final = 1024
"""Rows that are read, of what was learned last."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored."""

    everybody: Mapping[str, Learned]
    """By model, at its worst."""
    same: Mapping[str, Learned]
    """By model, as gates of this version wrote it."""


def rows(connection: Connection) -> Sequence[tuple[str, str, bytes]]:
    """Model, version of the gate, and what that has learned."""
    query = select(learned.c.model, learned.c.gate, learned.c.data).order_by(learned.c.learned_at.desc()).limit(_MOST)
    return [(model, gate, data) for model, gate, data in connection.execute(query)]


def known(stored: Iterable[tuple[str, str, bytes]], version: str) -> Known:
    """What `rows` gives, read by a gate of this version. Rows that make no sense are as good as none."""
    everybody: dict[str, Learned] = {}
    same: dict[str, Learned] = {}
    for model, gate, data in stored:
        try:
            found = learned_of(orjson.loads(data), same=gate == version)
        except ValueError:
            continue
        everybody[model] = merged(everybody[model], found) if model in everybody else found
        if gate == version:
            same[model] = found
    return Known(everybody, same)


def unwritten(mine: Mapping[str, Learned], there: Known) -> dict[str, bytes]:
    """What has to be written, by model, for what is stored to be what is known here."""
    return {
        model: orjson.dumps(asdict(one))
        for model, one in sorted(mine.items())
        if there.same.get(model) != one and len(model) <= LONGEST_NAME and not of_a_file(model)
    }


def write(connection: Connection, database: Database, fresh: Mapping[str, bytes], version: str, now: float) -> None:
    """Write it, in the order of the models: two gates that write the same ones then wait for each other, never both.

    What another gate wrote between reading and this is not lost: that gate finds it changed, and writes again.
    """
    statement = database.insert(learned)
    statement = statement.on_conflict_do_update(
        index_elements=[learned.c.model, learned.c.gate],
        set_={"learned_at": statement.excluded.learned_at, "data": statement.excluded.data},
    )
    at = int(now * SECOND)
    new: list[dict[str, Any]] = [
        {"model": model, "gate": version, "learned_at": at, "data": data} for model, data in fresh.items()
    ]
    for some in batches(new):
        connection.execute(statement, some)
