"""`python -m ollama_gate.rehearsal`."""

import asyncio
import signal
from pathlib import Path

import click
import orjson

from ollama_gate.rehearsal.catalogue import MODELS, from_json
from ollama_gate.rehearsal.faults import KINDS, Fault, parse
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings


def _faults(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[Fault, ...]:
    try:
        return tuple(parse(text) for text in texts)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None


def _address(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise click.BadParameter("want HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


@click.command(help="An Ollama for rehearsals: no model, but Ollama's API, limits, truncation, reloads and errors.")
@click.option(
    "--listen",
    default="127.0.0.1:11499",
    show_default=True,
    callback=_address,
    help="HOST:PORT; port 0 takes a free one.",
)
@click.option("--num-ctx", default=4096, show_default=True, help="Default window in tokens (OLLAMA_CONTEXT_LENGTH).")
@click.option("--num-parallel", default=1, show_default=True, help="Slots of each model (OLLAMA_NUM_PARALLEL).")
@click.option(
    "--max-queue", default=512, show_default=True, help="Requests that may wait for a load (OLLAMA_MAX_QUEUE)."
)
@click.option("--max-loaded", default=3, show_default=True, help="Models loaded at once (OLLAMA_MAX_LOADED_MODELS).")
@click.option("--keep-alive", default=300.0, show_default=True, help="Seconds a model stays after its last request.")
@click.option("--load-seconds", default=0.5, show_default=True, help="How long loading a model takes.")
@click.option("--rate", default=50.0, show_default=True, help="Tokens a second; 0 as fast as they can be sent.")
@click.option("--prompt-rate", default=5000.0, show_default=True, help="Prompt tokens a second; 0 takes no time.")
@click.option(
    "--models",
    "described",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
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
    described: Path | None,
    faults: tuple[Fault, ...],
) -> None:
    """Serve until a signal comes."""
    host, port = listen
    settings = Settings(
        host=host,
        port=port,
        models=from_json(orjson.loads(described.read_bytes())) if described else MODELS,
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
        raise click.ClickException(f"cannot listen on {settings.host}:{settings.port}: {wrong.strerror}") from None


if __name__ == "__main__":
    main(prog_name="ollama-gate rehearse")
