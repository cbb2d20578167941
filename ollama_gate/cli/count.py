"""`ollama-gate count`: what a prompt costs, asked of a running gate."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import quote

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ollama_gate.cli import FINDINGS, NoAnswer, Unusable
from ollama_gate.cli.answers import mapping, mappings, whole
from ollama_gate.cli.options import config_option, configuration, json_option
from ollama_gate.cli.output import write_json
from ollama_gate.cli.running import Named, Running, gate_options, message
from ollama_gate.cli.terminal import Terminal

_BAR: Final = 60
_SHOWN: Final = 10
"""Messages, and tools, that are shown by themselves."""
_PROMPTS: Final = frozenset({"messages", "prompt", "input"})
"""What makes a JSON object a request; another JSON file is text like any other."""
_PARTS: Final = (("messages", "blue"), ("tools", "magenta"), ("template", "cyan"), ("media", "yellow"))


@click.command("count")
@click.argument("files", type=click.File("rb"), nargs=-1)
@click.option("--model", "-m", help="Model to count for. Needed for plain text; wins over the model of a request body.")
@click.option(
    "--route", metavar="PATH", help="Route that a request body is for, as /v1/messages. Default: by its fields."
)
@click.option("--compact", is_flag=True, help="Show what compaction would make of a chat over its budget, too.")
@gate_options
@config_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[BinaryIO, ...],
    *,
    model: str | None,
    route: str | None,
    compact: bool,
    gate: Named,
    path: Path | None,
    as_json: bool,
) -> None:
    """Count FILES (or standard input) as prompts, without running them.

    Each of FILES is a request body as a client would send it, or plain text, which is counted as one user message. With
    several of them, JSON is a list and a total is shown. Exit code 0 when all would be let through, 1 when one would be
    refused, 2 when one cannot be counted as it is, 3 when the gate or Ollama does not answer.
    """
    running = Running.named(gate, configuration(path)[0])
    question = (
        "/gate/count?detail=1"
        + ("&compact=1" if compact else "")
        + (f"&route={quote(route, safe='/')}" if route else "")
    )
    asked = files or (cast("BinaryIO", click.open_file("-", "rb")),)
    answers: list[tuple[str, dict[str, Any]]] = []
    for file in _with_progress(asked):
        status, answer = running.ask(question, request_body(file.read(), model), within=120.0)
        name = getattr(file, "name", "-")
        if status != 200:
            where = f"{name}: " if len(asked) > 1 else ""
            # A body of /v1/messages may look like one of /api/chat, one of /v1/responses like one to embed.
            hint = (
                " (A body of another route needs --route, as --route /v1/messages.)"
                if status == 400 and not route
                else ""
            )
            # 502 to 504: Ollama does not answer, or the gate has something else to do.
            raise (NoAnswer if status > 500 else Unusable)(
                f"{where}{running.url} answers {status}: {message(answer)}{hint}"
            )
        answers.append((name, answer))
    if as_json:
        told: Any = answers[0][1] if len(asked) == 1 else [{"file": name, **answer} for name, answer in answers]
        write_json(told)
    else:
        _print(answers)
    ctx.exit(FINDINGS if any(answer.get("verdict") == "refuse" for _, answer in answers) else 0)


def _with_progress(files: tuple[BinaryIO, ...]) -> Iterable[BinaryIO]:
    """The files one by one, with a bar on the terminal where there are many."""
    console = Console(stderr=True)
    return track(files, "counting", console=console, transient=True, disable=len(files) < 4)


def _print(answers: list[tuple[str, dict[str, Any]]]) -> None:
    console = Terminal()
    for name, answer in answers:
        if len(answers) > 1:
            console.print(Text(name, style="bold underline"))
        console.print(*picture(answer), sep="\n")
        if len(answers) > 1:
            console.print()
    if len(answers) > 1:
        total = sum(_number(answer, "tokens") for _, answer in answers)
        console.print(Text(f"{total:,} tokens in {len(answers)} files", style="bold"))


def request_body(data: bytes, model: str | None) -> bytes:
    """The body to count: a JSON object as it is, anything else as one user message.

    Raises:
        Unusable: plain text without a model to count it for.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict) and not _PROMPTS.isdisjoint(body) and (model or "model" in body):
        return json.dumps({**body, "model": model}).encode() if model else data
    if not model:
        raise Unusable("which model is this for? Say --model NAME")
    text = data.decode("utf-8", errors="replace")
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()


def picture(answer: Mapping[str, Any]) -> list[Text | Table]:
    """The count in words, a bar of the window, and the parts."""
    tokens, at_most, budget, window = (_number(answer, name) for name in ("tokens", "at_most", "budget", "window"))
    parts = mapping(answer, "parts")
    refused = answer.get("verdict") == "refuse"
    head = Text(f"{tokens:,} tokens", style="bold red" if refused else "bold")
    head.append(f"  {answer.get('rung', '')}{f', at most {at_most:,}' if at_most > tokens else ''}", style="default")
    if "verdict" in answer:
        head.append(f"  {answer['verdict']}", style="red" if refused else "green")
    lines: list[Text | Table] = [head]
    if why := answer.get("why"):
        lines.append(Text(f"not exact because {why}", style="dim"))
    if limit := _number(answer, "limit"):
        lines += _inputs(answer, limit)
    if window:
        lines += [bar(parts, tokens, budget, window), Text(f"budget {budget:,} of a window of {window:,} tokens")]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for name, style in _PARTS:
        if number := _number(parts, name):
            table.add_row(Text(f"■ {name}", style=style), f"{number:,}")
    if table.row_count:
        lines.append(table)
    lines += _compaction(answer)
    for title, shares, name in (("messages", "per_message", "role"), ("tools", "per_tool", "name")):
        lines += _shares(title, mappings(answer, shares), name)
    return lines


def _compaction(answer: Mapping[str, Any]) -> list[Text | Table]:
    """What compaction would make of it, where that was asked."""
    told = answer.get("compaction")
    if not isinstance(told, Mapping):
        return []
    outcome = told.get("outcome")
    if outcome == "not_needed":
        return [Text("compaction: not needed, it fits the budget", style="dim")]
    off = [] if told.get("on") else [Text("it is off for this model; `compaction = true` switches it on", style="dim")]
    if "to" not in told:
        return [Text(f"compaction would not help: {told.get('why')}", style="yellow"), *off]
    numbers = [_number(told, name) for name in ("from", "to", "messages", "messages_after", "whole")]
    before, after, messages, left, whole = (f"{number:,}" for number in numbers)
    taken = " by a compaction made before" if outcome == "reused" else ""
    return [
        Text(f"compaction: {before} → {after} tokens{taken}", style="green"),
        Text(f"of {messages} messages {whole} stay whole; {left} would be sent"),
        *off,
    ]


def _shares(title: str, shares: list[Mapping[str, Any]], name: str) -> list[Text | Table]:
    """The messages or tools that take most, by number and name."""
    if len(shares) < 2:
        return []
    most = sorted(enumerate(shares), key=lambda pair: -_number(pair[1], "tokens"))[:_SHOWN]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    for number, share in sorted(most):
        table.add_row(Text(f"{title}[{number}] {share.get(name, '')}"), f"{_number(share, 'tokens'):,}")
    rest = len(shares) - len(most)
    return [Text(f"{title}, the {len(most)} of {len(shares)} that take most" if rest else title, style="dim"), table]


def _inputs(answer: Mapping[str, Any], limit: int) -> list[Text | Table]:
    """For an embedder: each input against its limit, those that are too long by name."""
    inputs = answer.get("inputs")
    sizes = inputs if isinstance(inputs, list) else []
    over = [(index, size) for index, size in enumerate(sizes) if isinstance(size, int) and size > limit]
    return [
        Text(f"{len(sizes)} inputs, each of at most {limit:,} tokens"),
        *(Text(f"input[{index}] has {size:,} tokens", style="red") for index, size in over),
    ]


def bar(parts: Mapping[str, Any], tokens: int, budget: int, window: int) -> Text:
    """The window as a line: what the parts take, the room up to the budget, and the room kept for the answer."""
    scale = max(window, tokens)
    line = Text()
    total = 0
    split = [(_number(parts, name), style) for name, style in _PARTS]
    if not any(number for number, _ in split):
        split = [(tokens, "blue")]
    for number, style in split:
        total += number
        line.append("█" * (min(_BAR, -(-total * _BAR // scale)) - len(line)), style=style)
    line.append("░" * (min(budget, scale) * _BAR // scale - len(line)), style="green")
    line.append("·" * (window * _BAR // scale - len(line)), style="dim")
    return line


def _number(holder: Mapping[str, Any], name: str) -> int:
    return whole(holder, name) or 0
