"""`ollama-gate plan`: which windows, slots and cache types of the installed models fit into so much memory."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from ollama_gate.admission.launching import launch_plan, memory_policy
from ollama_gate.admission.metadata import UnknownShape
from ollama_gate.admission.planning import SMALL_WINDOW, ModelPlan, Planner, in_order
from ollama_gate.admission.shapes import shape_from_show
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.names import canonical, is_valid
from ollama_gate.cli import FINDINGS, Unusable
from ollama_gate.cli.findings import Seen
from ollama_gate.cli.ollama import must_look
from ollama_gate.cli.options import as_size, config_option, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.cli.running import Front, Named, front, gate_options
from ollama_gate.cli.terminal import Terminal
from ollama_gate.config.model import MIB
from ollama_gate.config.units import format_size, in_gib


@click.command("plan")
@config_option
@click.option(
    "--memory",
    "size",
    callback=as_size,
    metavar="SIZE",
    help='What models may take, as "24GiB". Default: memory.limit, else what this machine has.',
)
@click.option("--model", "models", multiple=True, metavar="NAME", help="Only this model; may be given again.")
@click.option("--gpus", type=click.IntRange(0, 64), help="GPUs to spread a model over. Default: memory.gpus.")
@gate_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    size: int | None,
    models: tuple[str, ...],
    gpus: int | None,
    gate: Named,
    path: Path | None,
    as_json: bool,
) -> None:
    """Show which num_ctx, num_parallel and kv_cache_type fit into a memory size, for installed models.

    The biggest model comes first. Follow the order of the columns: see that it fits with a small window, give it flash
    attention and a q8_0 cache, then raise the window until it would not fit any more. Exit code 0 when some model
    fits, 1 when none does, 2 when the arguments cannot be used, 3 when Ollama does not answer.
    """
    before = front(gate, path)
    config, seen = before.config, must_look(before)
    cards = _chosen(seen, models)
    devices = gpus if gpus is not None else seen.gpus(config)
    policy = memory_policy(config, machine=seen.machine, gpus=devices)
    limit, limit_from = (policy.limit, "memory.limit") if size is None else (size, "--memory")
    if limit is None:
        limit, limit_from = _of_machine(before, seen, devices), "machine"
    planner = Planner(limit, policy.counts_host)
    plans, unknown = [], {}
    for card in cards:
        try:
            shape = shape_from_show(card.show, card.size or None)
        except UnknownShape as odd:
            unknown[card.name] = str(odd)
            continue
        said = card.load_options
        draft = max(said.get("draft_num_predict", 0), 0)
        launch = launch_plan(config, SMALL_WINDOW, said.get("num_batch"), draft, gpus=devices)
        plans.append(planner.plan(card.name, shape, launch))
    plans = in_order(plans)
    if as_json:
        head = {"upstream": before.url, "upstream_from": before.gate or "configuration", "memory_from": limit_from}
        write_json({**head, **_told(planner, devices, plans, unknown)})
    else:
        console = Terminal()
        console.print(Text(f"Ollama at {before.url}, {before.source}", style="dim"))
        if limit_from == "machine":
            told = f"memory.limit is not set: {in_gib(limit)} is this machine's memory less memory.reserve"
            console.print(Text(f"{told}; --memory SIZE plans for another", style="dim"))
        _print(console, planner, config.memory.host_cache_per_model, plans, unknown)
    ctx.exit(0 if any(plan.fits for plan in plans) else FINDINGS)


def _chosen(seen: Seen, names: tuple[str, ...]) -> list[ModelCard]:
    local = {card.key: card for card in seen.cards if card.mode is not Mode.REMOTE}
    if not names:
        return list(local.values())
    keys = {name: canonical(name) if is_valid(name) else "" for name in names}
    if missing := [name for name, key in keys.items() if key not in local]:
        raise Unusable(f"not installed: {', '.join(missing)}. Installed: {', '.join(c.name for c in local.values())}")
    return [local[key] for key in keys.values()]


def _of_machine(before: Front, seen: Seen, gpus: int) -> int:
    """What "auto" would be, where nobody named a limit and the models lie in this machine's memory.

    Raises:
        Unusable: they lie elsewhere.
    """
    memory = before.config.memory.model_copy(update={"limit": "auto"})
    policy = memory_policy(before.config.model_copy(update={"memory": memory}), machine=seen.machine, gpus=gpus)
    if not policy.limit or not policy.counts_host or not before.config.upstream.address.here:
        raise Unusable('say how much memory there is: --memory 24GiB, or limit = "24GiB" under [memory]')
    return policy.limit


def _told(planner: Planner, gpus: int, plans: list[ModelPlan], unknown: dict[str, str]) -> dict[str, Any]:
    told = [{**asdict(plan), "fits": plan.fits} for plan in plans]
    memory = {"memory_bytes": planner.limit, "counts_host": planner.counts_host, "gpus": gpus}
    return {**memory, "models": told, "unknown": unknown}


def _print(
    console: Terminal, planner: Planner, host_cache: int, plans: list[ModelPlan], unknown: dict[str, str]
) -> None:
    what = "host memory included" if planner.counts_host else "on the GPU"
    size = format_size(planner.limit) if planner.limit % MIB == 0 else in_gib(planner.limit)
    console.print(Text(f"largest num_ctx within {size}, {what}; the biggest model first"))
    if planner.counts_host and host_cache:
        cache = f"{format_size(host_cache)} of it may fill up with old prompts of each model that chats"
        console.print(Text(f"{cache} (LLAMA_ARG_CACHE_RAM for Ollama, memory.host_cache_per_model here)", style="dim"))
    for plan in plans:
        console.print()
        trained = f", trained for {plan.trained}" if plan.trained else ""
        about = f"  weights {in_gib(plan.weights)}{trained}, at least {in_gib(plan.least)}"
        console.print(Text.assemble((plan.model, "bold"), about))
        if not plan.fits:
            console.print(Text("  does not fit with any window", style="red"))
        else:
            console.print(_table(plan))
            if (best := plan.best) is not None:
                cache = f'kv_cache_type = "{best.kv_cache_type}", ' if best.kv_cache_type != "f16" else ""
                console.print(Text(f"  → {cache}num_ctx = {best.largest_num_ctx}: {in_gib(best.bytes)}", style="green"))
        for note in plan.notes:
            console.print(Text(f"  {note}", style="yellow"))
    for model, why in unknown.items():
        console.print(Text(f"\n{model}: nothing can be said: {why}", style="yellow"))


def _table(plan: ModelPlan) -> Table:
    """Cache types down, slots across."""
    slots = sorted({each.num_parallel for each in plan.combinations})
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("  cache")
    for count in slots:
        table.add_column("1 slot" if count == 1 else f"{count} slots", justify="right")
    for kind in dict.fromkeys(each.kv_cache_type for each in plan.combinations):
        row = {each.num_parallel: each for each in plan.combinations if each.kv_cache_type == kind}
        table.add_row(f"  {kind}", *(str(row[count].largest_num_ctx or "–") for count in slots))
    return table
