"""`ollama-gate archive`: look into the archive, take out of it, and take from it."""

import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

from ollama_gate.archive.query import LIMIT, BadQuery, Query
from ollama_gate.archive.records import (
    LONGEST_PREFIX,
    SHORTEST_PREFIX,
    Filter,
    Found,
    Message,
    Purged,
    prefix_of,
    stamp,
)
from ollama_gate.cli import FINDINGS, NoAnswer, Unusable
from ollama_gate.cli.options import as_size, as_time, config_option, configuration, json_option
from ollama_gate.cli.output import visible, write_json
from ollama_gate.cli.terminal import Terminal
from ollama_gate.compaction.originals import ArchiveFailed
from ollama_gate.config import Config
from ollama_gate.config.archive import archive_url
from ollama_gate.files import appearing

if TYPE_CHECKING:
    from ollama_gate.archive.store import Store

T = TypeVar("T")

url_option = click.option(
    "--url", metavar="URL", help="Path of a SQLite file, or postgresql://…  Default: archive.url of the configuration."
)


@click.group("archive")
def command() -> None:
    """Look into the archive of compacted conversations, take out of it, and purge it.

    These work on the database itself, whether or not a gate runs. Exit codes: 0 done; 1 nothing was found; 2 the
    command line, the configuration or the archive cannot be used (no such file, tables of another version, damage);
    3 the database does not answer.
    """


@command.command()
@click.argument("hash_", metavar="HASH")
@config_option
@url_option
@json_option
def show(hash_: str, path: Path | None, url: str | None, *, as_json: bool) -> None:
    """Show one message by its HASH, or the first 12 digits or more of it."""
    prefix = prefix_of(hash_)
    if prefix is None:
        raise Unusable(f"a hash has {SHORTEST_PREFIX} to {LONGEST_PREFIX} hex digits")
    found = _run(path, url, lambda store: store.find(prefix))
    if not found:
        raise NothingFound(f"no message with the hash {prefix} is kept")
    if len(found) > 1:
        raise Unusable(f"more than one message has a hash that begins with {prefix}: name more digits")
    if as_json:
        click.echo(orjson.dumps(found[0].told()))
    else:
        Terminal().print(*_picture(found[0]), sep="\n", soft_wrap=True)


@command.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option("--conversation", metavar="NAME", help="Only messages of this conversation.")
@click.option("--role", help="Only messages of this role: user, assistant, tool, system.")
@click.option("--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="Most matches.")
@config_option
@url_option
@json_option
def search_command(
    words: tuple[str, ...],
    conversation: str | None,
    role: str | None,
    limit: int,
    path: Path | None,
    url: str | None,
    *,
    as_json: bool,
) -> None:
    """Search for messages in which all WORDs are; an argument with spaces is a phrase. The newest come first."""
    try:
        query = Query.parse(" ".join(f'"{word}"' if " " in word else word for word in words))
    except BadQuery as bad:
        raise Unusable(str(bad)) from bad

    from ollama_gate.archive import offline  # noqa: PLC0415 - not for the help

    async def look(store: "Store") -> Found:
        with _progress("messages searched", (await store.stats()).messages) as advance:
            return await offline.search_on(store, query, Filter(conversation, role), limit, advance)

    found = _run(path, url, look)
    if as_json:
        click.echo(orjson.dumps(found.told()))
    else:
        console = Terminal()
        for match in found.matches:
            head = Text.assemble((match.hash[:16], "bold"), f"  {match.role}  {stamp(match.stored_at)}")
            console.print(head, Text(f"  {visible(match.excerpt)}"), sep="\n", soft_wrap=True)
        if found.next is not None:
            console.print(
                Text(f"searched {_many(found.searched, 'message')}; there are more, see --limit", style="dim")
            )
    if not found.matches:
        raise NothingFound(f"nothing was found in {_many(found.searched, 'message')}")


@command.command()
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="File; standard output without.")
@click.option("--conversation", metavar="NAME", help="Only this conversation, in its order.")
@click.option("--since", callback=as_time, metavar="TIME", help='Only messages first kept within this time, as "7d".')
@config_option
@url_option
def export(
    output: Path | None, conversation: str | None, since: float | None, path: Path | None, url: str | None
) -> None:
    """Write messages as one JSON object a line. A file appears whole or not at all, readable by its owner only."""
    start = None if since is None else time.time() - since

    from ollama_gate.archive import offline  # noqa: PLC0415 - not for the help

    async def write(store: "Store", file: BinaryIO) -> int:
        with _progress("messages written", (await store.stats()).messages if conversation is None else None) as advance:
            return await offline.export(store, file, conversation=conversation, since=start, advance=advance)

    with _whole(output) as file:
        count = _run(path, url, lambda store: write(store, file))
        if not count:
            raise NothingFound("there is nothing to export")


@command.command()
@click.option(
    "--older-than",
    "age",
    callback=as_time,
    metavar="TIME",
    help='Conversations that were not compacted for this time, as "7d".',
)
@click.option(
    "--larger-than",
    "size",
    callback=as_size,
    metavar="SIZE",
    help='The oldest, until what is left takes so much, as "1GiB".',
)
@click.option("--conversation", metavar="NAME", help="This conversation.")
@click.option("--all", "everything", is_flag=True, help="Everything.")
@click.option("--yes", is_flag=True, help="Do not ask before everything is taken away.")
@config_option
@url_option
@json_option
def purge(
    age: float | None,
    size: int | None,
    conversation: str | None,
    path: Path | None,
    url: str | None,
    *,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take messages away for good: what the configuration says is too old or too much, or what the options say."""
    section = configuration(path)[0].archive
    if everything and (age, size, conversation) != (None, None, None):
        raise click.UsageError("--all takes everything away: leave it out, or the other options.")
    if everything and not yes:
        click.confirm("Take every message away for good?", abort=True, err=True)
    if age is None and size is None and conversation is None and not everything:
        age, size = section.keep_for or None, section.max_size or None

    from ollama_gate.archive import offline  # noqa: PLC0415 - not for the help

    async def take(store: "Store") -> Purged:
        with _progress("conversations taken away", None) as advance:
            return await offline.purge(
                store, advance, conversation=conversation, age=age, size=size, everything=everything
            )

    gone = _run(path, url, take)
    if as_json:
        write_json(asdict(gone))
    else:
        conversations, messages = _many(gone.conversations, "conversation"), _many(gone.messages, "message")
        click.echo(f"{conversations} and {messages} taken away, {_mib(gone.bytes)}")


@command.command()
@config_option
@url_option
@json_option
def stats(path: Path | None, url: str | None, *, as_json: bool) -> None:
    """Say how much there is, and from when."""

    async def ask(store: "Store") -> dict[str, Any]:
        numbers, file = await store.stats(), store.database.file
        return {
            "archive": store.database.shown,
            **asdict(numbers),
            "oldest": None if numbers.oldest is None else stamp(numbers.oldest),
            "newest": None if numbers.newest is None else stamp(numbers.newest),
            "file_bytes": None if file is None else sum(each.stat().st_size for each in _files(file)),
        }

    told = _run(path, url, ask)
    if as_json:
        write_json(told)
        return
    console = Terminal()
    console.print(Text(told["archive"], style="bold"), soft_wrap=True)
    table = Table.grid(padding=(0, 2, 0, 0))
    for name in ("messages", "conversations", "checkpoints"):
        table.add_row(name, f"{told[name]:,}")
    table.add_row("text", f"{_mib(told['bytes'])}, {_mib(told['stored_bytes'])} compressed")
    if told["file_bytes"] is not None:
        table.add_row("file", _mib(told["file_bytes"]))
    if told["oldest"]:
        table.add_row("kept", f"{told['oldest']} to {told['newest']}")
    console.print(table)


@command.command()
@config_option
@url_option
def migrate(path: Path | None, url: str | None) -> None:
    """Make the tables, or bring them to this version, where the gate itself may not (archive.migrate = false)."""
    from ollama_gate.archive import offline  # noqa: PLC0415 - not for the help

    address, _ = _address(path, url)
    shown, done = asked(lambda: offline.migrate(address))
    click.echo(f"{shown}: {'the tables were made' if done else 'nothing to do'}")


class NothingFound(click.ClickException):
    """There is nothing of what was asked for."""

    exit_code = FINDINGS
    word = "not_found"

    def show(self, file: object = None) -> None:  # noqa: ARG002  click's signature
        """Say so, without calling it an error."""
        click.echo(self.message, err=True)


def _run(path: Path | None, url: str | None, work: "Callable[[Store], Awaitable[T]]") -> T:
    """Do something with an archive that is there and of this version."""
    from ollama_gate.archive import offline  # noqa: PLC0415 - not for the help

    address, config = _address(path, url)
    off = "" if config.archive.enabled else " (archive.enabled is false)"
    try:
        return asked(lambda: offline.visit(address, work))
    except offline.NoArchive as missing:
        raise Unusable(f"there is no archive at {missing}{off}: name the gate's with --url or --config") from missing


def asked(work: Callable[[], T]) -> T:
    """What an archive answers; what it fails with becomes an exit code."""
    from ollama_gate.archive.migrating import NotMigrated  # noqa: PLC0415 - not for the help
    from ollama_gate.archive.packing import Damaged  # noqa: PLC0415 - likewise

    try:
        return work()
    except (NotMigrated, Damaged) as failure:
        raise Unusable(str(failure)) from failure
    except ArchiveFailed as failure:
        raise NoAnswer(str(failure)) from failure


def _address(path: Path | None, url: str | None) -> tuple[str, Config]:
    config, _ = configuration(path)
    if url is None:
        return config.archive.place(), config
    try:
        return archive_url(url), config
    except ValueError as bad:
        raise Unusable(f"--url: {bad}") from bad


@contextmanager
def _whole(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that takes its name when all of it is written."""
    if output is None:
        yield sys.stdout.buffer
        return
    try:
        with appearing(output, synced=True) as file:
            yield file
    except OSError as failure:
        raise Unusable(f"{output}: {failure.strerror}") from failure


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error where a person looks at it; it leaves nothing behind."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.completed:,.0f} {task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def _picture(message: Message) -> Iterator[Text]:
    told: Mapping[str, Any] = orjson.loads(message.body)
    yield Text.assemble((message.hash, "bold"))
    held = f", in {', '.join(map(visible, message.conversations[:3]))}" if message.conversations else ""
    more = f" and {len(message.conversations) - 3} more" if len(message.conversations) > 3 else ""
    yield Text(f"{message.role}, first kept {stamp(message.stored_at)}{held}{more}", style="dim")
    yield Text()
    for name in sorted(told, key=lambda name: _ORDER.get(name, len(_ORDER))):
        value = told[name]
        if name == "role" or value in (None, "", []):
            continue
        text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        if name != "content":
            yield Text(f"{name}:", style="cyan")
        yield Text(visible(text))


_ORDER: Final = {"thinking": 0, "content": 1}


def _mib(size: int) -> str:
    return f"{size / 1024**2:,.1f} MiB" if size >= 1024**2 / 10 else f"{size / 1024:,.1f} KiB"


def _files(file: Path) -> list[Path]:
    """A SQLite file and the log of changes beside it."""
    return [each for each in (file, file.with_name(f"{file.name}-wal")) if each.exists()]


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
