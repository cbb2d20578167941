"""The rehearsal server: what every request meets before and after its route."""

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ollama_gate.rehearsal import anthropic, hosts, openai, routes
from ollama_gate.rehearsal.connection import Connection, Headers, Reply, Request
from ollama_gate.rehearsal.control import PREFIX, control
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.faults import Fault, FaultyReply
from ollama_gate.rehearsal.journal import Journal
from ollama_gate.rehearsal.models import full_name
from ollama_gate.rehearsal.routes import Out, Route
from ollama_gate.rehearsal.service import Call, Service, Settings, faults_of

_MODEL = "/v1/models/"


class Rehearsal:
    """An Ollama that is none, on a real socket.

    Use it as `async with Rehearsal(Settings(...)) as upstream`, then `upstream.url`, `upstream.journal`,
    `upstream.loads("rehearsal")`.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        """Nothing is bound before `start`."""
        self.settings = settings or Settings()
        self.service = Service(self.settings)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self.port = self.settings.port

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{self.port}"

    @property
    def journal(self) -> Journal:
        """What it received."""
        return self.service.journal

    def loads(self, model: str) -> int:
        """How often a model was loaded, reloads included."""
        return self.service.scheduler.loads[full_name(model)]

    def fault(self, kind: str, **settings: object) -> None:
        """Add a fault, e.g. `fault("cut", after=3, times=1)`."""
        self.service.faults.active.append(Fault(kind, **settings))  # type: ignore[arg-type]

    def reset(self) -> None:
        """Back to the start: nothing loaded, nothing recorded."""
        self.service.reset()

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._handle, self._connections), self.settings.host, self.settings.port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the socket and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            await connection.close()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        self.service.scheduler.clear()

    def drop_connections(self) -> None:
        """Reset every open connection, as a server does that is killed."""
        for connection in tuple(self._connections):
            connection.break_off(reset=True)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    async def _handle(self, request: Request, reply: Reply) -> None:
        if request.path.startswith(PREFIX):
            await control(self.service, request, reply)
            return
        entry = self.journal.open(request.method, request.target, request.headers)
        out: Out = reply
        try:
            call = Call(self.service, entry, self.service.faults.strike(request.path))
            try:
                call.faults += faults_of(None, request.header("X-Rehearsal-Fault"))
                if call.faults:
                    out = FaultyReply(reply, call.faults)
                await self._answer(call, request, out)
            except StatusError as wrong:
                await routes.send_error(out, wrong)
        except asyncio.CancelledError:
            entry.client_left = True
            raise
        finally:
            entry.status = reply.status
            entry.ended = time.monotonic()
            self.journal.changed()

    async def _answer(self, call: Call, request: Request, out: Out) -> None:
        origin, host = request.header("Origin"), request.header("Host")
        if origin and not hosts.origin_allowed(origin, host):
            await out.send(403, [])
            return
        if origin and request.method != "OPTIONS":
            out.extra = [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
        methods = _methods(request.path)
        allow = [("Allow", ", ".join(methods))] if methods and request.method not in methods else []
        if origin and request.method == "OPTIONS":
            vary = [
                ("Vary", "Origin"),
                ("Vary", "Access-Control-Request-Method"),
                ("Vary", "Access-Control-Request-Headers"),
            ]
            await out.send(204, [*hosts.preflight(origin), *allow, *vary])
            return
        if not hosts.host_allowed(host):
            await out.send(403, [])
            return
        if request.method == "OPTIONS" and hosts.host_is_name(host):
            await out.send(204, allow)
            return
        if status := call.fault("status"):
            raise StatusError(status.status, status.text)
        await self._route(call, request, out, methods, allow)

    async def _route(
        self, call: Call, request: Request, out: Out, methods: Mapping[str, Route] | None, allow: Headers
    ) -> None:
        if methods is None:
            bare = request.path.rstrip("/") or "/"
            if bare != request.path and (there := _methods(bare)) and request.method in there:
                await _redirect(request, out, bare)
                return
            await out.send(404, routes.PLAIN_TEXT, b"404 page not found")
        elif allow:
            await out.send(405, [*allow, *routes.PLAIN_TEXT], b"405 method not allowed")
        else:
            await methods[request.method](call, request, out)


def _methods(path: str) -> Mapping[str, Route] | None:
    """The handlers of a path by method."""
    if path.startswith(_MODEL) and "/" not in path.removeprefix(_MODEL) and path != _MODEL:
        return openai.ONE_MODEL
    return routes.find(path) or openai.ROUTES.get(path) or anthropic.ROUTES.get(path)


async def _redirect(request: Request, out: Out, path: str) -> None:
    _, mark, query = request.target.partition("?")
    location = path + mark + query
    if request.method in {"GET", "HEAD"}:
        page = f'<a href="{location}">Moved Permanently</a>.\n\n'.encode()
        await out.send(301, [("Content-Type", "text/html; charset=utf-8"), ("Location", location)], page)
    else:
        await out.send(307, [("Location", location)])
