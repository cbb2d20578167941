"""The gate as a running thing: parts put together, requests dispatched, started, reloaded and stopped."""

import asyncio
import gc
import itertools
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from aiohttp import hdrs, web

from ollama_gate import __version__, pauses, refusals
from ollama_gate.access.bookings import Bookings
from ollama_gate.access.keys import Right
from ollama_gate.access.origins import opened, preflight
from ollama_gate.catalog.names import canonical
from ollama_gate.config import Config, load
from ollama_gate.endpoints import own, shown, v1
from ollama_gate.entrance import Entrance
from ollama_gate.errors import ConfigError, Refusal, Refused, UpstreamError
from ollama_gate.machine import allow_open_files
from ollama_gate.notify import Notifier
from ollama_gate.observe import log as gate_log
from ollama_gate.observe.metrics import Metrics
from ollama_gate.passthrough import pass_through
from ollama_gate.receive import at_work, has_left
from ollama_gate.routes import CHANGES_MODELS, LANES, decoded, refused, right_for
from ollama_gate.tasks import spawn
from ollama_gate.turn import Phase, Turn
from ollama_gate.wiring import Wiring

if TYPE_CHECKING:
    from ollama_gate.shared.exchange import Exchange

_DENIED = frozenset({401, 403, 429})
"""Statuses of the door's refusals, of which the metrics keep a count by code."""

LoadConfig = Callable[[], Config]
_USE = Right.USE  # an enum's members are slow to get (Python 3.11)


class Gate:
    """One gate: a server in front of one Ollama. Made by `run`, or by a test on a port of its own."""

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Keep the configuration; `start` does the rest."""
        self.metrics = Metrics()
        self.log = gate_log.logger()
        self.clock = clock
        self.started_at = clock()
        self.wiring = Wiring(config, self.metrics, self.log, clock)
        self.turns: dict[str, Turn] = {}
        """Requests under way, by id."""
        self._run = secrets.token_hex(4)
        self._serial = itertools.count(1)
        bookings = Bookings(secrets.token_hex(12)) if config.shared.enabled else None
        self.entrance = Entrance(config, self.log, clock, bookings)
        self.exchange = None if bookings is None else self._exchange(bookings)
        """Who shares with other gates; None where nothing is shared."""
        self._draining = False
        self._reloading = asyncio.Lock()
        self._idle = asyncio.Event()
        """Set when the last request is done, while draining."""

    def _exchange(self, bookings: Bookings) -> "Exchange":
        """Who shares with other gates; the libraries for it are loaded then only."""
        from ollama_gate.shared.exchange import Exchange  # noqa: PLC0415

        return Exchange(
            self.config.archive,
            ring=self.entrance,
            quotas=self.entrance.quotas,
            bookings=bookings,
            counter=lambda: self.wiring.counter,
            metrics=self.metrics,
            log=self.log,
        )

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.wiring.config

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the gate listens on."""
        return self.entrance.address

    async def start(self) -> None:
        """Open the connection pool, hear of other gates, and listen.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        config = self.config
        await self.wiring.open()
        try:
            if self.exchange is not None:
                await self.exchange.start()
            await self.entrance.open(self._handle)
        except ConfigError:
            if self.exchange is not None:
                await self.exchange.close()
            await self.wiring.close()
            raise
        host, port = self.address
        self.log.info(
            "listening",
            address=f"{host}:{port}",
            upstream=config.upstream.url,
            version=__version__,
            tls=self.entrance.secure,
            keys=len(self.entrance.door.ring.keys),
        )
        spawn(self.wiring.look_at_upstream(), name="first look at Ollama")

    async def stop(self, drain: float | None = None) -> None:
        """Stop listening, let running requests finish for `drain` seconds, then cut what is left."""
        self.entrance.stop_listening()
        if self.turns:
            self.log.info("draining", requests=len(self.turns))
        self._draining = True
        try:
            async with asyncio.timeout(self.config.server.drain if drain is None else drain):
                if self.turns:
                    await self._idle.wait()
        except TimeoutError:
            self.log.warning("cut off at the end of the drain time", requests=len(self.turns))
        await self.entrance.close()
        if self.exchange is not None:
            await self.exchange.close()
        await self.wiring.close()
        self.log.info("stopped")

    async def reload(self, load_again: LoadConfig) -> bool:
        """Take a new configuration over; a bad one is refused and the old one stays.

        Requests under way finish as they began. The listening address changes only with a restart. Reloads that come at
        the same time take turns, for each begins from the configuration that the one before left.
        """
        async with self._reloading:
            return await self._reload(load_again)

    async def _reload(self, load_again: LoadConfig) -> bool:
        try:
            config = load_again()
            self.entrance.configure(config)
        except ConfigError as bad:
            self.log.error("configuration not reloaded: the old one stays in force", problem=str(bad))
            return False
        if config.shared.enabled != (self.exchange is not None):
            self.log.warning("shared.enabled is changed by a restart only", enabled=self.exchange is not None)
        elif self.exchange is not None and not self.exchange.goes_by(config.archive):
            self.log.warning("archive.url is changed by a restart only for what is shared: it stays where it was")
        gate_log.configure(config.log.level, config.log.format)
        self.wiring = await self.wiring.replaced(config)
        self.log.info("configuration reloaded")
        return True

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is."""
        raw_path = request.rel_url.raw_path
        path = decoded(raw_path)
        turn = Turn(f"{self._run}-{next(self._serial):x}", path, self.clock())
        self.turns[turn.id] = turn
        try:
            return await self._dispatch(request, path, turn)
        except Refused as no:
            return self.refuse(no.refusal, turn)
        except UpstreamError as failure:  # nothing was sent yet: whatever is written as it comes ends otherwise
            return self.refuse(refusals.upstream_failed(failure, self.config.upstream.url), turn)
        except asyncio.CancelledError:
            raise
        except Exception as bug:  # the last boundary: whatever it is, the client gets an answer
            if isinstance(bug, ConnectionError) and has_left(request):
                raise  # seen by a write before the cancellation that tells of it: the server lets go of the connection
            self.log.error("internal error", id=turn.id, route=turn.route, exc_info=bug)
            if request.writer.output_size or turn.phase in (Phase.STREAMING, Phase.DONE):
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError from bug
            return self.refuse(_internal(turn), turn)
        finally:
            if turn.caller is not None:
                turn.caller.leave()
            del self.turns[turn.id]
            if self._draining and not self.turns:
                self._idle.set()

    async def _dispatch(self, request: web.BaseRequest, path: str, turn: Turn) -> web.StreamResponse:
        entrance = self.entrance
        if hdrs.ORIGIN in request.headers:
            early = preflight(entrance.origins, request, path)
            if early is not None:
                return early
            turn.cors = opened(entrance.origins, request)
        lane = LANES.get(path) if request.method == "POST" else None
        right = _USE if lane is not None else right_for(request.method, path)
        caller = turn.caller = entrance.door.admit(request, right, path, inference=lane is not None)
        if lane is not None:
            if caller is not None:
                caller.enter()
            turn.dialect = lane.dialect
            self.metrics.in_flight.inc()
            wiring = self.wiring
            wiring.enter()
            try:
                return await wiring.pipeline.handle(request, lane, turn)
            finally:
                wiring.leave()
                self.metrics.in_flight.dec()
        if path.startswith("/gate/"):
            return _named(await own.answer(self, request, path, caller), turn)
        if path.startswith("/v1/"):
            told = await v1.answer(self, request, path, caller)
            if told is not None:
                return _named(told, turn)
        if shown.tells(request.method, path, caller):
            return await shown.answer(self, request, path, turn)
        return await self.pass_on(request, path, turn)

    async def pass_on(
        self, request: web.BaseRequest, path: str, turn: Turn, body: bytes | None = None
    ) -> web.StreamResponse:
        """Let Ollama answer; `body` is the request's, where it was read already."""
        wiring = self.wiring
        wiring.enter()
        target = request.rel_url.raw_path_qs
        try:
            return await pass_through(request, target, turn, upstream=wiring.upstream, clock=self.clock, body=body)
        finally:
            wiring.leave()
            if path in CHANGES_MODELS:
                wiring.catalog.invalidate()
            self.metrics.passed.labels(str(turn.status)).inc()

    def refuse(self, refusal: Refusal, turn: Turn) -> web.Response:
        """Answer what is not, or not yet, in the pipeline with a refusal."""
        if refusal.status in _DENIED:
            self.metrics.denied.labels(refusal.code).inc()
        return refused(refusal, turn)


def _named(answer: web.StreamResponse, turn: Turn) -> web.StreamResponse:
    """An answer of the gate's own with the headers that every answer has."""
    answer.headers.update(turn.cors)
    answer.headers["x-ollama-gate-request-id"] = turn.id
    return answer


def _internal(turn: Turn) -> Refusal:
    return Refusal(
        500,
        "internal_error",
        f"the gate failed on this request; its log says why under id {turn.id}. Nothing was cut.",
        type="api_error",
    )


async def _serve(config: Config, load_again: LoadConfig) -> int:
    gate = Gate(config)
    notifier = Notifier.from_environment()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    async def reload() -> None:
        if stopping.is_set():
            return
        notifier.reloading()
        try:
            await gate.reload(load_again)
        finally:
            notifier.ready("serving")

    loop.add_signal_handler(signal.SIGHUP, lambda: spawn(reload(), name="reload"))
    await gate.start()
    host, port = gate.address
    notifier.ready(f"serving on {host}:{port}")
    pauses.shorten()
    beside = (spawn(notifier.watch(), name="watchdog"), spawn(pauses.tidy(at_work), name="look for cycles"))
    await stopping.wait()
    notifier.stopping()
    for task in beside:
        task.cancel()
    await gate.stop()
    return 0


def run(config: Config, config_path: Path | None = None) -> int:
    """Run the gate until SIGTERM or SIGINT; returns the exit code.

    Args:
        config: what to run with.
        config_path: the file it came from; SIGHUP reads it again, and the environment with it.

    Raises:
        ConfigError: the gate cannot start with this configuration.
    """
    allow_open_files()
    gate_log.configure(config.log.level, config.log.format)
    structlog.get_logger("ollama_gate").debug("configuration", file=str(config_path) if config_path else None)
    try:
        import uvloop  # noqa: PLC0415 - not on every platform

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    gc.freeze()  # what is loaded by now stays: no collection, while streams wait for it, need look at that again
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_serve(config, lambda: load(config_path, os.environ, canonical)))
