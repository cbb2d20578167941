"""`ollama-gate models`: what each installed model gets from this configuration, and whether it is loaded."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from ollama_gate.admission.demand import Demand
from ollama_gate.admission.launching import launch_plan
from ollama_gate.admission.metadata import UnknownShape
from ollama_gate.admission.shapes import shape_from_show
from ollama_gate.catalog.card import Mode
from ollama_gate.catalog.names import canonical
from ollama_gate.catalog.versions import Features
from ollama_gate.cli.findings import Seen
from ollama_gate.cli.ollama import must_look
from ollama_gate.cli.options import config_option, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.cli.running import Named, front, gate_options
from ollama_gate.cli.terminal import wide
from ollama_gate.config import Config
from ollama_gate.config.units import format_size, in_gib
from ollama_gate.policies import Policies


@dataclass(frozen=True, slots=True)
class Row:
    """One installed model. Tokens and bytes; None where it is not known or does not apply."""

    name: str
    does: str
    """chat, embed or cloud."""
    prompt: str
    """Who turns messages into its prompt."""
    trained: int | None
    window: int | None
    budget: int | None
    declared: bool
    """Whether window and budget were declared."""
    slots: int | None
    memory: int | None
    """Bytes that it takes when it is loaded with this window and these slots."""
    loaded: int | None
    """The window that it is loaded with now."""


@click.command("models")
@gate_options
@config_option
@json_option
def command(*, gate: Named, path: Path | None, as_json: bool) -> None:
    """Show what each installed model gets: window, budget, slots and memory.

    Exit code 0, 2 when the configuration cannot be used, 3 when Ollama does not answer.
    """
    before = front(gate, path)
    rows = list(rows_of(before.config, must_look(before)))
    if as_json:
        write_json([asdict(row) for row in rows])
        return
    console = wide()
    console.print(Text(f"Ollama at {before.url}, {before.source}", style="dim"))
    if not rows:
        console.print(Text("no model is installed: `ollama pull llama3.2` gets one"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("model", "does", "prompt by"):
        table.add_column(title, no_wrap=title != "prompt by")
    for title in ("trained", "window", "budget", "slots", "memory", "loaded"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            Text(row.name, style="bold"),
            row.does,
            Text(row.prompt),
            _told(row.trained),
            _told(row.window),
            Text(_told(row.budget), style="default" if row.declared else "yellow"),
            _told(row.slots),
            _size(row.memory),
            Text(_told(row.loaded), style="red" if row.loaded not in {None, row.window} else "green"),
        )
    console.print(table)
    if cache := before.config.memory.host_cache_per_model:
        about = f"memory: without old prompts, up to {format_size(cache)} of host memory for each model that chats"
        console.print(Text(f"{about}; `ollama-gate plan` reckons with them", "dim"))
    if any(not row.declared for row in rows):
        console.print(Text("yellow: not declared, but worked out; `ollama-gate check` says what is missing", "dim"))


def rows_of(config: Config, seen: Seen) -> Iterator[Row]:
    """A row for each model, the configuration applied."""
    policies = Policies(config, lambda: Features.of(seen.version), seen)
    loaded = {canonical(resident.name): resident.context_length for resident in seen.resident}
    for card in seen.cards:
        applied = policies.for_card(card)
        room, slots, memory = applied.window, None, None
        if room is not None and card.show:
            gpus = seen.gpus(config)
            try:
                shape = shape_from_show(card.show, card.size or None)
                plan = launch_plan(config, room.num_ctx, applied.num_batch, applied.draft_tokens, gpus=gpus)
                demand = Demand.of(shape, plan)
                slots, memory = demand.slots, demand.footprint.loaded
            except UnknownShape:
                pass
        embeds = applied.embeds
        yield Row(
            name=card.name,
            does="cloud" if card.mode is Mode.REMOTE else "embed" if card.embeds else "chat",
            prompt=card.renderer or card.mode.value,
            trained=card.trained,
            window=room.num_ctx if room is not None else None,
            budget=embeds.tokens if embeds is not None else room.budget if room is not None else None,
            declared=applied.policy.num_ctx_declared and (card.embeds or applied.policy.budget_declared),
            slots=slots,
            memory=memory,
            loaded=loaded.get(card.key),
        )


def _size(size: int | None) -> str:
    if size is None:
        return ""
    return in_gib(size) if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _told(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
