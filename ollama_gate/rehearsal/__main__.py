"""`python -m ollama_gate.rehearsal`."""

import asyncio
import signal
from pathlib import Path
from typing import Final

import click

from ollama_gate.rehearsal.catalogue import MODELS, from_json
from ollama_gate.rehearsal.faults import KINDS, Fault, parse
from ollama_gate.rehearsal.models import Model
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings

_LAST_PORT: Final = 65535


def _faults(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[Fault, ...]:
    try:
        return tuple(parse(text) for text in texts)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None


def _address(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port[:6]) <= _LAST_PORT):
        raise click.BadParameter(f"want HOST:PORT, with a port of at most {_LAST_PORT}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _models(_context: click.Context, _option: click.Parameter, file: Path | None) -> tuple[Model, ...]:
    if file is None:
        return MODELS
    try:
        return from_json(file.read_bytes())
    except (ValueError, OSError) as wrong:
        raise click.BadParameter(f"{file}: {wrong}") from None


class CannotListen(click.ClickException):
    """The address is taken or is none of this machine's; as of what the gate itself cannot use, the exit code is 2."""

    exit_code = 2


_COUNT = click.IntRange(min=1)
_MEASURE = click.FloatRange(min=0, max=1e9)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="An Ollama for rehearsals: no model, but Ollama's API, limits, truncation, reloads and errors.",
)
@click.option(
    "--listen",
    default="127.0.0.1:11499",
    show_default=True,
    callback=_address,
    help="HOST:PORT; port 0 takes a free one.",
)
@click.option(
    "--num-ctx", default=4096, type=_COUNT, show_default=True, help="Default window in tokens (OLLAMA_CONTEXT_LENGTH)."
)
@click.option(
    "--num-parallel", default=1, type=_COUNT, show_default=True, help="Slots of each model (OLLAMA_NUM_PARALLEL)."
)
@click.option(
    "--max-queue",
    default=512,
    type=click.IntRange(min=0),
    show_default=True,
    help="Requests that may wait for a load (OLLAMA_MAX_QUEUE).",
)
@click.option(
    "--max-loaded", default=3, type=_COUNT, show_default=True, help="Models loaded at once (OLLAMA_MAX_LOADED_MODELS)."
)
@click.option(
    "--keep-alive",
    default=300.0,
    show_default=True,
    type=_MEASURE,
    help="Seconds a model stays after its last request.",
)
@click.option("--load-seconds", default=0.5, type=_MEASURE, show_default=True, help="How long loading a model takes.")
@click.option(
    "--rate", default=50.0, type=_MEASURE, show_default=True, help="Tokens a second; 0 as fast as they can be sent."
)
@click.option(
    "--prompt-rate", default=5000.0, type=_MEASURE, show_default=True, help="Prompt tokens a second; 0 takes no time."
)
@click.option(
    "--models",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_models,
    help="JSON list of models to have instead.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    callback=_faults,
    metavar="KIND:KEY=VALUE,...",
    help=f"A standing fault: {', '.join(KINDS)}.",
)
def main(  # noqa: PLR0917  (click names them all)
    listen: tuple[str, int],
    num_ctx: int,
    num_parallel: int,
    max_queue: int,
    max_loaded: int,
    keep_alive: float,
    load_seconds: float,
    rate: float,
    prompt_rate: float,
    models: tuple[Model, ...],
    faults: tuple[Fault, ...],
) -> None:
    """Serve until a signal comes."""
    host, port = listen
    settings = Settings(
        host=host,
        port=port,
        models=models,
        context_length=num_ctx,
        num_parallel=num_parallel,
        max_queue=max_queue,
        max_loaded_models=max_loaded,
        keep_alive=keep_alive,
        load_seconds=load_seconds,
        rate=rate,
        prompt_rate=prompt_rate,
        faults=faults,
    )
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(settings))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:  # not on every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopped.set)
    try:
        async with Rehearsal(settings) as rehearsal:
            click.echo(f"This is a rehearsal, not Ollama: it runs no model. It listens on {rehearsal.url}")
            await stopped.wait()
    except OSError as wrong:
        raise CannotListen(f"cannot listen on {settings.host}:{settings.port}: {wrong.strerror or wrong}") from None


if __name__ == "__main__":
    main(prog_name="ollama-gate rehearse")
