"""`ollama-gate doctor`: everything that a careful person would look at, each finding with its fix."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console

from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.versions import Features
from ollama_gate.cli import FINDINGS, NO_ANSWER, NoAnswer, Unusable
from ollama_gate.cli.ask import ask
from ollama_gate.cli.check import archived, report, show
from ollama_gate.cli.diagnosis import diagnose, heard
from ollama_gate.cli.findings import Finding, Level, Seen, examine, in_order, must_be_put_right
from ollama_gate.cli.ollama import try_to_look
from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.cli.output import visible, write_json
from ollama_gate.cli.running import Front, Named, Running, front, gate_options
from ollama_gate.cli.surroundings import look_around
from ollama_gate.config import Config
from ollama_gate.policies import Policies
from ollama_gate.window import Window

_WITHIN = 300.0


@click.command("doctor")
@click.option("--yes", is_flag=True, help="Try an overlong prompt without asking.")
@click.option("--no-probe", is_flag=True, help="Do not try one.")
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@gate_options
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    yes: bool,
    no_probe: bool,
    strict: bool,
    gate: Named,
    path: Path | None,
    as_json: bool,
) -> None:
    """Examine the configuration, Ollama, its environment and what goes past the gate.

    More than `check`: it reads the environment of the Ollama on this machine (its process, its systemd unit, its log),
    looks for connections that pass the gate and for models that spill into host memory, and tries whether an overlong
    prompt really ends in 400, which it asks about first. Run it as root to see everything. Exit code 0 when there is
    no error (with --strict no warning either), 1 when there is one, 2 when the configuration cannot be used, 3 when
    Ollama does not answer.
    """
    good: list[str] = []
    findings: list[Finding] = []
    try:
        before = front(gate, path)
    except NoAnswer as silent_gate:
        before = Front(*configuration(path))
        if no_probe:  # else the probe says so
            findings.append(_unheard(silent_gate, "what is said here is of the Ollama that the configuration names"))
    config = before.config
    with Console(stderr=True).status("looking", spinner="dots") if sys.stderr.isatty() else nullcontext():
        seen, silent = try_to_look(before)
        around = look_around(config.upstream.address, config.server.address, log=config.upstream.log)
    findings += [*silent, *examine(config, seen), *archived(config)]
    if seen is not None:
        findings += diagnose(config, seen, around)
        running = Running.named(gate, config)
        known = Features.of(seen.version).warning  # said above
        try:
            findings += [one for one in heard(running.status()) if one.what != known]
        except Unusable as closed:
            what = f"{closed.message}. What it knows of itself was not looked at"
            findings.append(Finding(Level.WARNING, "the gate", what, "give an admin's key: --key KEY"))
        except NoAnswer:
            pass  # whether it runs is told by the probe
        if not no_probe:
            findings += _tried(config, seen, running, good, yes=yes)
    findings = in_order(findings)
    code = NO_ANSWER if seen is None else FINDINGS if must_be_put_right(findings, strict=strict) else 0
    if as_json:
        more = {"environment_from": around.source or None, "environment": around.environment, "good": good}
        write_json(report(findings, before, seen, code) | more)
    else:
        show(findings, before, seen)
        for line in ([f"Ollama's environment was read from {around.source}"] if around.source else []) + good:
            click.echo(visible(line))
    ctx.exit(code)


def _may_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


def _tried(config: Config, seen: Seen, running: Running, good: list[str], *, yes: bool) -> list[Finding]:
    """What an overlong prompt comes to, through the gate and past it; what is as it should be is added to `good`."""
    chosen = _smallest(config, seen)
    if chosen is None:
        return []
    card, room = chosen
    loaded = any(one.name == card.name and one.context_length == room.num_ctx for one in seen.resident)
    if not yes:
        if not _may_ask():
            what = "whether an overlong prompt ends in 400 was not tried"
            return [Finding(Level.NOTE, "the gate", what, "--yes tries it, --no-probe says that you do not want to")]
        twice = ", and once past it" if loaded else ""
        question = (
            f"Send a prompt of {room.num_ctx + 64} words to {card.name} through the gate{twice}? Nothing is generated"
        )
        if not click.confirm(question, default=True, err=True):
            return []
    findings = _through_gate(running, card, room)
    if not findings:
        good.append(f"an overlong prompt to {card.name} is refused with 400 by the gate")
    if loaded:
        past = _past_gate(config.upstream.url, card, room)
        if not past:
            good.append("Ollama itself refuses it with 400 when it is told not to cut")
        findings += past
    return findings


def _smallest(config: Config, seen: Seen) -> tuple[ModelCard, Window] | None:
    """The model to try: one that is loaded as the gate loads it, else the smallest."""
    policies = Policies(config, lambda: Features.of(seen.version), seen)
    loaded = {one.name for one in seen.resident}
    chats = [(card, room) for card in seen.cards if not card.embeds and (room := policies.for_card(card).window)]
    return min(chats, key=lambda one: (one[0].name not in loaded, one[0].size), default=None)


def _body(card: ModelCard, room: Window, *, direct: bool) -> bytes:
    prompt = "word " * (room.num_ctx + 64)
    body: dict[str, object] = {"model": card.name, "stream": False, "messages": [{"role": "user", "content": prompt}]}
    body["options"] = {"num_predict": 1, "num_ctx": room.num_ctx}
    if direct:
        body |= {"truncate": False, "shift": room.shift}
    return json.dumps(body).encode()


def _unheard(silent: NoAnswer, therefore: str) -> Finding:
    what, _, fix = silent.message.partition(". ")
    return Finding(Level.NOTE, "the gate", f"{what}: {therefore}", fix or "say where it is: --gate URL")


def _through_gate(running: Running, card: ModelCard, room: Window) -> list[Finding]:
    try:
        status, answer = running.ask("/api/chat", _body(card, room, direct=False), within=_WITHIN)
    except NoAnswer as silent:
        return [_unheard(silent, "it was not tried")]
    except Unusable as closed:
        return [Finding(Level.NOTE, "the gate", f"an overlong prompt was not tried: {closed.message}", "--key KEY")]
    if status == 400 and "code" in answer:
        return []
    if status == 400:
        what = f"{running.url} answers 400, but not as the gate does: is that Ollama itself?"
        return [Finding(Level.ERROR, "the gate", what, "correct server.listen, or say --gate URL")]
    counted = answer.get("prompt_eval_count")
    what = f"an overlong prompt to {card.name} was answered {status}, of it {counted} tokens reached the model"
    return [Finding(Level.ERROR, "the gate", what, "is that address the gate's? Then report it with its log line")]


def _past_gate(url: str, card: ModelCard, room: Window) -> list[Finding]:
    """Whether Ollama itself refuses what does not fit when it is told not to cut."""
    try:
        status, answer = ask(f"{url}/api/chat", _body(card, room, direct=True), within=_WITHIN)
    except NoAnswer as silent:
        return [Finding(Level.WARNING, "Ollama", f"{silent.message}", "look at its log")]
    if status == 400:
        return []
    counted = answer.get("prompt_eval_count") if isinstance(answer, dict) else None
    what = f"was told not to cut, and answered {status} to an overlong prompt ({counted} tokens reached the model)"
    return [Finding(Level.ERROR, "Ollama", what, "update Ollama: only the gate's own count stands before a cut prompt")]
