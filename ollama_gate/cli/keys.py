"""`ollama-gate keys`: who gets in."""

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ollama_gate.access.keyfile import read
from ollama_gate.access.keys import MOST_PRIORITY, Key, KeyRing, Limits, minted, name_fault, pattern_fault, prefix
from ollama_gate.cli import Unusable
from ollama_gate.cli.kept import Kept, kept_at
from ollama_gate.cli.options import as_time, config_option, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.config.units import parse_duration

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DAY = 86400.0


@click.group("keys")
def command() -> None:
    """Make, list, revoke and replace the keys that clients show.

    A gate that runs takes a change up within a second, gates that share their
    keys (shared.enabled) within two. As soon as one key was made, nobody gets
    in without one.
    """


def _limit(name: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(f"--{name}", type=click.IntRange(min=1), metavar="N", help=what)


@command.command()
@click.argument("name")
@config_option
@click.option("--model", "models", multiple=True, metavar="PATTERN", help="Only these models (qwen3:8b, qwen3*).")
@_limit("requests-per-minute", "Most inference requests within a minute.")
@_limit("requests-per-day", "Most inference requests within 24 hours.")
@_limit("tokens-per-minute", "Most prompt tokens within a minute.")
@_limit("tokens-per-day", "Most prompt tokens within 24 hours.")
@_limit("parallel", "Most inference requests at one time.")
@click.option(
    "--priority", type=click.IntRange(-MOST_PRIORITY, MOST_PRIORITY), default=0, help="Higher goes first in the queue."
)
@click.option("--admin", is_flag=True, help="May change models and see /gate/*.")
@click.option("--count", "counts", is_flag=True, help="May use /gate/count, /gate/tokenize and /gate/chunk.")
@click.option("--expires", metavar="WHEN", help="After a time (30d) or at the end of a day (2027-06-30, UTC).")
@json_option
def add(
    name: str,
    path: Path | None,
    models: tuple[str, ...],
    priority: int,
    expires: str | None,
    *,
    admin: bool,
    counts: bool,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Make a key for NAME and show it, this once."""
    now = time.time()
    for fault in (name_fault(name), *map(pattern_fault, models)):
        if fault is not None:
            raise Unusable(fault)
    until = None if expires is None else _when(expires, now)

    text, key = _fresh(
        Key(
            id="",
            name=name,
            digest=b"",
            created=now,
            expires=until,
            models=models,
            limits=Limits(**limits),
            priority=priority,
            admin=admin,
            counts=counts,
        )
    )

    def with_it(ring: KeyRing) -> KeyRing:
        if ring.named(name, now):
            raise Unusable(f"there is a key {name!r} already: rotate or revoke it, or take another name")
        return ring.with_key(key)

    kept = kept_at(path)
    before = kept.change(with_it)
    _show_new(text, key, kept, now, as_json=as_json)
    if not before:
        click.echo("From now on every client needs a key. How each is told one: docs/security.md", err=True)


@command.command("list")
@config_option
@click.option("--all", "everything", is_flag=True, help="Those that are revoked or expired too.")
@json_option
def list_(path: Path | None, *, everything: bool, as_json: bool) -> None:
    """List the keys; what they are made of is not kept."""
    now = time.time()
    kept = kept_at(path)
    ring = kept.read()
    keys = [key for key in ring.keys if everything or key.over(now) is None]
    if as_json:
        write_json([_told(key, now) for key in keys])
        return
    if not keys:
        click.echo(f"There are no keys in {kept.place}.{_closed(ring, kept, now)}")
        return
    rows = [("name", "key", "state", "models", "may", "limits"), *(_row(key, now) for key in keys)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command()
@click.argument("name")
@config_option
@json_option
def revoke(name: str, path: Path | None, *, as_json: bool) -> None:
    """Let the key NAME (or id) open nothing any more."""
    now = time.time()
    kept = kept_at(path)

    def without(ring: KeyRing) -> KeyRing:
        for key in _found(ring, name, now, kept):
            ring = ring.with_key(replace(key, revoked=now))
        return ring

    before = kept.change(without)
    found = before.named(name, now)
    if as_json:
        write_json([_told(replace(key, revoked=now), now) for key in found])
    else:
        told = "\n".join(f"{key.name} ({prefix(key)}…) is revoked." for key in found)
        click.echo(told + _closed(without(before), kept, now))


def _closed(ring: KeyRing, kept: Kept, now: float) -> str:
    """What it means that no key is in force; empty where one is, or none was ever made."""
    if not ring or any(key.over(now) is None for key in ring.keys):
        return ""
    return f"\nNo key is in force, so nobody gets in. Add one, or {kept.undone}"


@command.command()
@click.argument("name")
@config_option
@click.option(
    "--grace",
    callback=as_time,
    metavar="TIME",
    default="0s",
    help="How long the old key works on (1h); default: not at all.",
)
@json_option
def rotate(name: str, path: Path | None, grace: float, *, as_json: bool) -> None:
    """Replace the key NAME (or id) by a new one with the same rights, and show that."""
    now = time.time()
    kept = kept_at(path)
    made: list[tuple[str, Key]] = []

    def renewed(ring: KeyRing) -> KeyRing:
        found = _found(ring, name, now, kept)
        made.append(_fresh(replace(found[-1], created=now)))
        for old in found:
            ends = now + grace if old.expires is None else min(now + grace, old.expires)
            ring = ring.with_key(replace(old, expires=ends) if grace else replace(old, revoked=now))
        return ring.with_key(made[-1][1])

    kept.change(renewed)
    _show_new(*made[-1], kept, now, as_json=as_json)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@config_option
def import_(file: Path, path: Path | None) -> None:
    """Take over the keys of FILE, the one of a gate that had its own, where they are not there yet.

    Clients go on with the keys that they have, and a key that was revoked stays revoked.
    """
    taken = read(file)[0].keys
    if not taken:
        raise Unusable(f"there are no keys in {file}")
    kept = kept_at(path)

    def with_them(ring: KeyRing) -> KeyRing:
        there = frozenset(key.id for key in ring.keys)
        return KeyRing((*ring.keys, *(key for key in taken if key.id not in there)))

    before = kept.change(with_them)
    added = len(with_them(before).keys) - len(before.keys)
    click.echo(f"{added} of {len(taken)} keys were taken over into {kept.place}.")


def _fresh(like: Key) -> tuple[str, Key]:
    """A new key with these rights, and its text."""
    return minted(like, secrets.token_bytes(8), secrets.token_bytes(32))


def _found(ring: KeyRing, name: str, now: float, kept: Kept) -> list[Key]:
    found = ring.named(name, now)
    if not found:
        raise Unusable(f"there is no key {name!r} in force in {kept.place}")
    return found


def _when(text: str, now: float) -> float:
    try:
        if _DATE.fullmatch(text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() + _DAY
        seconds = parse_duration(text)
    except ValueError as bad:
        raise Unusable(f"--expires: {bad}; or write a day, 2027-06-30") from bad
    if seconds <= 0:
        raise Unusable("--expires: that is now")
    return now + seconds


def _show_new(text: str, key: Key, kept: Kept, now: float, *, as_json: bool) -> None:
    if as_json:
        write_json({**_told(key, now), "key": text})
        return
    click.echo(text)
    click.echo(f"That is the key of {key.name}. It is shown this once: {kept.place} holds its hash.", err=True)


def _told(key: Key, now: float) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "prefix": prefix(key),
        "state": key.over(now) or "in force",
        "created": _date(key.created),
        "expires": _date(key.expires),
        "revoked": _date(key.revoked),
        "models": list(key.models),
        "limits": {name: value for name, value in asdict(key.limits).items() if value is not None},
        "priority": key.priority,
        "admin": key.admin,
        "count": key.admin or key.counts,
    }


def _row(key: Key, now: float) -> tuple[str, ...]:
    state = key.over(now) or (f"until {_date(key.expires)}" if key.expires else "in force")
    may = "admin" if key.admin else "use, count" if key.counts else "use"
    limits = [f"{name.replace('_', ' ')} {value}" for name, value in asdict(key.limits).items() if value is not None]
    if key.priority:
        limits.append(f"priority {key.priority}")
    return key.name, f"{prefix(key)}…", state, ", ".join(key.models) or "all", may, ", ".join(limits) or "none"


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
