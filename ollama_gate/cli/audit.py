"""`ollama-gate audit`: what a long system prompt costs, section by section, and how to make it smaller."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ollama_gate.catalog.names import display
from ollama_gate.cli import FINDINGS, NoAnswer, Unusable
from ollama_gate.cli.answers import mappings, whole
from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.cli.running import Named, Running, gate_options, message
from ollama_gate.cli.sections import CORE, UNIT, Repeated, Section, Unit, changing, repeated, sections, slug, split
from ollama_gate.cli.terminal import wide
from ollama_gate.config import Config
from ollama_gate.policies import Policies

_AT_ONCE: Final = 64
"""Texts that are counted with one question."""
_SHOWN: Final = 10
_LARGE_SHARE: Final = 0.25
_WORTH_SAYING: Final = 50
"""Tokens said twice below which nothing is advised."""
HANDOVER: Final = """\
# Hand-over

What the next session must know, in a page. Written at the end of a session, read at the start of the next.

## Goal

## State: what is done, what works, what is broken

## Decisions, and why

## Files that matter

## Open questions

## Next step
"""


@dataclass(frozen=True, slots=True)
class Share:
    """A model's window and budget in tokens, and the share of the window that the prompt takes."""

    model: str
    window: int
    budget: int
    of_window: float


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in a prompt."""

    tokens: int
    model: str | None
    """The model whose vocabulary counted; without one, four characters are taken for a token."""
    sections: list[tuple[Section, int]]
    shares: list[Share]
    repeated: list[Repeated]
    wasted: int
    """About the tokens that repeated passages take beyond their first time."""
    changing: list[tuple[int, str]]
    """What differs from session to session: the number of the section, and what was seen there."""
    advice: tuple[str, ...] = ()


@click.command("audit")
@click.argument("file", type=click.File("rb"))
@click.option("--model", "-m", help="Count with this model's vocabulary (asks the running gate). Default: estimated.")
@click.option("--split", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write units into DIR.")
@gate_options
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    file: Any,
    *,
    model: str | None,
    folder: Path | None,
    gate: Named,
    path: Path | None,
    as_json: bool,
) -> None:
    """Say what the system prompt in FILE costs, and how to make it smaller.

    Shows tokens by section, the share of each model's window, passages that stand there twice, and what changes from
    session to session. With --split DIR the text is written as a core of 2,000 tokens, units of 2,000 to 4,000, and a
    hand-over page to fill in; put together, core and units are the text. Exit code 0 when there is nothing to advise,
    1 when there is, 2 when FILE or the arguments cannot be used, 3 when the gate does not answer.
    """
    text = file.read().decode("utf-8-sig", "replace")  # with its own line ends
    if not text.strip():
        raise Unusable(f"{file.name} is empty")
    config, _ = configuration(path)
    running = Running.named(gate, config)
    count = counter(running, model) if model else _estimates
    with _looking():
        parts = sections(text)
    tokens = count([part.text for part in parts])
    windows = _windows(config, running)
    with _looking():
        told = report(parts, tokens, windows, model)
    units: list[Unit] = []
    if folder is not None:
        units = _write(folder, split(parts, lambda piece: count([piece])[0]))
    if as_json:
        write_json(_told(told, units, folder))
    else:
        wide().print(*_picture(told, units, folder), sep="\n")
    ctx.exit(FINDINGS if told.advice else 0)


def _looking() -> AbstractContextManager[object]:
    """Shows that something is done; a log of many megabytes takes seconds."""
    return Console(stderr=True).status("looking", spinner="dots") if sys.stderr.isatty() else nullcontext()


def counter(running: Running, model: str) -> Callable[[Sequence[str]], list[int]]:
    """Counts texts with a model's own vocabulary, each by itself, by asking the gate."""
    known: dict[str, int] = {}

    def count(texts: Sequence[str]) -> list[int]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        starts = range(0, len(new), _AT_ONCE)
        quiet = len(starts) < 3
        for start in track(starts, "counting", console=Console(stderr=True), transient=True, disable=quiet):
            chunk = new[start : start + _AT_ONCE]
            body = {"model": model, "messages": [{"role": "user", "content": text} for text in chunk]}
            status, answer = running.ask("/gate/count?detail=1", json.dumps(body).encode(), within=120.0)
            if status != 200:
                raise Unusable(f"{running.url} answers {status}: {message(answer)}")
            each = [
                tokens for share in mappings(answer, "per_message") if (tokens := whole(share, "tokens")) is not None
            ]
            if len(each) != len(chunk):
                raise NoAnswer(f"{running.url} does not know the tokens of {model}: leave --model out for an estimate")
            known.update(zip(chunk, each, strict=True))
        return [known[text] for text in texts]

    return count


def _estimates(texts: Sequence[str]) -> list[int]:
    return [-(-len(text) // 4) for text in texts]


def _windows(config: Config, running: Running) -> list[tuple[str, int, int]]:
    """Model, window and budget: as the running gate has them, else as the configuration says."""
    try:
        chats = [row for row in mappings(running.status(), "models") if not row.get("embed_limit")]
        told = [(str(row.get("name", "")), whole(row, "window"), whole(row, "budget")) for row in chats]
        rows = [(name, window, budget) for name, window, budget in told if window and budget is not None]
    except (NoAnswer, Unusable):
        rows = []
    if not rows:
        policies = Policies(config)
        for name in config.models or [""]:
            window = policies.unknown(name).window
            if window is not None:
                rows.append((display(name) if name else "[defaults]", window.num_ctx, window.budget))
    return rows


def report(parts: list[Section], tokens: list[int], windows: list[tuple[str, int, int]], model: str | None) -> Report:
    """Everything that can be said of a prompt.

    Args:
        parts: its sections.
        tokens: of each section.
        windows: name, window and budget of each model, in tokens.
        model: whose vocabulary counted; None where the tokens are estimated.
    """
    total = sum(tokens)
    twice = repeated(parts)
    words = sum(len(part.text.split()) for part in parts) or 1
    wasted = min(sum(one.words for one in twice), words) * total // words
    shares = [Share(name, window, budget, total / window) for name, window, budget in windows]
    told = Report(total, model, list(zip(parts, tokens, strict=True)), shares, twice, wasted, changing(parts))
    return replace(told, advice=tuple(_advice(told)))


def _advice(told: Report) -> Iterator[str]:
    if told.tokens > CORE:
        yield (
            f"Keep at most {CORE:,} tokens as the core that every session gets (who, the rules that always hold, where "
            f"the rest is), and {told.tokens - CORE:,} as units, read when a task needs them. --split DIR begins."
        )
    for part, tokens in told.sections:
        if tokens > UNIT:
            yield f'"{part.title or "the beginning"}" takes {tokens:,} tokens: units of 2,000 to {UNIT:,} work best.'
    if told.wasted >= _WORTH_SAYING:
        yield (
            f'Say once what is said twice: about {told.wasted:,} tokens, beginning with "{told.repeated[0].excerpt} …".'
        )
    last = len(told.sections) - 1
    early = [(number, seen) for number, seen in told.changing if number < last]
    if early:
        number, seen = early[0]
        title = told.sections[number][0].title or "the beginning"
        behind = sum(tokens for _, tokens in told.sections[number:])
        yield (
            f'Put what changes from session to session last: "{seen}" stands in "{title}", and when it changes, '
            f"{behind:,} tokens from there on are evaluated again."
        )
    large = sorted((one for one in told.shares if one.of_window > _LARGE_SHARE), key=lambda one: -one.of_window)
    if large:
        first = ", ".join(f"{one.model} {one.of_window:.0%} of {one.window:,}" for one in large[:3])
        rest = f", and {len(large) - 3} more" if len(large) > 3 else ""
        yield f"It takes more than a quarter of a window: {first}{rest}. A larger one costs memory (see `plan`)."


def _write(folder: Path, units: list[Unit]) -> list[Unit]:
    """Write units and the hand-over page; a folder that holds something is left alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Unusable(f"{folder} is not empty: name a folder that is, or one that does not exist")
        digits = max(len(str(len(units) - 1)), 2)  # so that their names sort as they follow each other
        for number, unit in enumerate(units):
            name = f"{number:0{digits}}-{slug(unit.title) if number else 'core'}.md"
            (folder / name).write_text(unit.text, encoding="utf-8", newline="")
        (folder / "handover.md").write_text(HANDOVER, encoding="utf-8")
    except OSError as failure:
        raise Unusable(f"{folder} cannot be written: {failure.strerror or failure}") from failure
    return units


def _told(told: Report, units: list[Unit], folder: Path | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "tokens": told.tokens,
        "exact": told.model is not None,
        "model": told.model,
        "sections": [{"level": part.level, "title": part.title, "tokens": tokens} for part, tokens in told.sections],
        "shares": [asdict(share) for share in told.shares],
        "repeated": [asdict(one) for one in told.repeated],
        "repeated_tokens": told.wasted,
        "changing": [{"section": number, "seen": seen} for number, seen in told.changing],
        "advice": told.advice,
    }
    if folder is not None:
        out["units"] = [{"title": unit.title, "tokens": unit.tokens} for unit in units]
    return out


def _with_subsections(sections: Sequence[tuple[Section, int]], number: int) -> int:
    """Tokens of a section with all sections of deeper levels that follow it."""
    level, total = sections[number][0].level, sections[number][1]
    for part, tokens in sections[number + 1 :]:
        if not 0 < level < part.level:
            break
        total += tokens
    return total


def _picture(told: Report, units: list[Unit], folder: Path | None) -> Iterator[Text | Table]:
    how = f"as {told.model} counts" if told.model else "estimated; --model NAME counts exactly"
    yield Text.assemble((f"{told.tokens:,} tokens", "bold"), f"  {how}")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(justify="right")
    table.add_column()
    table.add_column()
    most = max((tokens for _, tokens in told.sections), default=1) or 1
    for number, (part, tokens) in enumerate(told.sections):
        below = _with_subsections(told.sections, number)
        title = f"{'  ' * max(part.level - 1, 0)}{part.title or '(before the first heading)'}"
        table.add_row(
            Text(title),
            f"{tokens:,}",
            Text("█" * max(tokens * 24 // most, 1), style="blue"),
            Text(f"{below:,} in all" if below > tokens else "", style="dim"),
        )
    yield table
    shares = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shares.add_column("model", overflow="fold")
    for title in ("window", "budget", "this prompt"):
        shares.add_column(title, justify="right")
    for share in told.shares[:_SHOWN]:
        style = "red" if share.of_window > _LARGE_SHARE else "default"
        shares.add_row(
            Text(share.model), f"{share.window:,}", f"{share.budget:,}", Text(f"{share.of_window:.0%}", style=style)
        )
    yield shares
    for one, again in list(Counter(told.repeated).items())[:_SHOWN]:
        times = "twice" if again == 1 else f"{again + 1} times"
        where = ", ".join(told.sections[number][0].title or "the beginning" for number in one.sections)
        yield Text(f"{times}: {one.words} words, “{one.excerpt} …” ({where})", style="yellow")
    for line in told.advice:
        yield Text(f"→ {line}")
    if folder is not None:
        sizes = ", ".join(f"{unit.tokens:,}" for unit in units[1:])
        yield Text(f"written to {folder}: a core of {units[0].tokens:,} tokens, units of {sizes or 'nothing'}", "green")
