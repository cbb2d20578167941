"""The gate's entrance: the address it listens on, who gets in, HTTPS, and the limits on connections."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from ollama_gate.access.bookings import Bookings
from ollama_gate.access.connections import ClientServer, ConnectionLimits
from ollama_gate.access.door import Door
from ollama_gate.access.hosts import Hosts
from ollama_gate.access.keyfile import KeyFile
from ollama_gate.access.keys import KeyRing, SharedKeys
from ollama_gate.access.origins import Origins
from ollama_gate.access.quotas import Quotas
from ollama_gate.access.tls import Certificate
from ollama_gate.config import Config
from ollama_gate.config.address import Address
from ollama_gate.errors import ConfigError
from ollama_gate.tasks import spawn
from ollama_gate.upstream.outlet import NOTHING_LEFT

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the files of keys and certificate."""
_HANDSHAKE: Final = 10.0
"""Seconds that a TLS handshake may take."""
_SILENT: Final = logging.getLogger("ollama_gate.http")
_SILENT.disabled = True
"""aiohttp logs what the gate has answered already; the gate writes its own log."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Entrance:
    """Where requests come in. What it lets through is the handler's."""

    def __init__(
        self,
        config: Config,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
        bookings: Bookings | None = None,
    ) -> None:
        """Read keys and certificate; nothing is listened on yet.

        Args:
            config: what the operator decided.
            log: where an operator is told what happens.
            clock: steady seconds.
            bookings: what other gates are told and heard of, where keys are shared.

        Raises:
            ConfigError: they cannot be used, or the address would be open to others without keys.
        """
        self._config = config
        self._log = log
        self._clock = clock if bookings is None else time.time
        self.quotas = Quotas(bookings)
        self._keys: KeyFile | SharedKeys = (
            KeyFile(config.access.keys) if bookings is None else SharedKeys("the database of archive.url")
        )
        _guarded(config, self._keys)
        self._certificate = _certificate(config)
        self._server: ClientServer | None = None
        self._listener: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.origins = Origins(config.server.origins)
        self.door = self._door()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened on."""
        if self._listener is None or not self._listener.sockets:
            raise RuntimeError("the gate is not listening")
        host, port = self._listener.sockets[0].getsockname()[:2]
        return host, port

    @property
    def secure(self) -> bool:
        """Whether it speaks HTTPS."""
        return self._certificate is not None

    @property
    def keys_problem(self) -> str | None:
        """Why the keys in force are not those of their file."""
        return self._keys.problem if isinstance(self._keys, KeyFile) else None

    async def open(self, handler: Handler) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be listened on, or would be open to others without keys.
        """
        _guarded(self._config, self._keys)  # once more: shared keys are known by now
        server = self._config.server
        self._server = ClientServer(
            handler,
            _limits(self._config),
            NOTHING_LEFT,
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            logger=_SILENT,
            tcp_keepalive=True,
            lingering_time=5.0,
            **_how(self._config),
        )
        tls = None if self._certificate is None else self._certificate.context
        address: Address = server.address
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._server,
                address.host or None,
                address.port,
                backlog=1024,
                ssl=tls,
                ssl_handshake_timeout=_HANDSHAKE if tls is not None else None,
            )
        except OSError as busy:
            raise ConfigError(
                f"cannot listen on {server.listen}: {busy.strerror or busy}. "
                "Is another gate running? Choose another address with server.listen or --listen."
            ) from busy
        self._tasks = [
            spawn(self._server.watch(), name="watch connections"),
            spawn(self._watch(), name="watch keys and certificate"),
        ]
        if not self.door.shut and not self.door.ring and not address.loopback and server.open:
            self._log.warning("open to everybody who can reach it", listen=server.listen, keys=str(self._keys.path))

    def stop_listening(self) -> None:
        """Take no further connection, and no further request on those that are idle."""
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            self._server.pre_shutdown()

    async def close(self) -> None:
        """Cut what is left."""
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            await self._server.shutdown(0.1)
        if self._listener is not None:
            await self._listener.wait_closed()

    def configure(self, config: Config) -> None:
        """Take a new configuration over, but for the address.

        Raises:
            ConfigError: its keys or its certificate cannot be used, or the address would be open to others without
                keys; then nothing has changed.
        """
        listening = config.model_copy(
            update={"server": config.server.model_copy(update={"listen": self._config.server.listen})}
        )
        keys = self._keys
        if isinstance(keys, SharedKeys) or config.access.keys == keys.path:
            keys.refresh()
        else:
            keys = KeyFile(config.access.keys)
        _guarded(listening, keys)
        certificate = self._certificate
        fresh = _certificate(config)
        if (fresh is None) != (certificate is None):
            self._log.warning("HTTPS is switched on or off by a restart only")
        elif fresh is not None and certificate is not None:
            certificate.become(fresh)
        self._config, self._keys = listening, keys
        self.origins = Origins(config.server.origins)
        self.door = self._door()
        if self._server is not None:
            self._server.configure(_limits(config), _how(config))
        if config.server.listen != listening.server.listen:
            self._log.warning("server.listen is changed by a restart only", listen=config.server.listen)

    def _door(self) -> Door:
        server = self._config.server
        return Door(
            self._keys,
            Hosts(server.hosts),
            rebindable=server.address.loopback,
            keyless=server.address.loopback or server.open,
            clock=self._clock,
            wall=time.time,
            quotas=self.quotas,
            reread=self._reread_keys,
        )

    async def _watch(self) -> None:
        """Take changed files up for ever; what cannot be used is said once, and what was there stays."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Take changed files up once."""
        self._reread_keys()
        try:
            if self._certificate is not None and self._certificate.refresh():
                self._log.info("certificate read again", certificate=str(self._certificate.chain))
        except ConfigError as bad:
            self._log.error("certificate not read again: the old one stays in use", problem=str(bad))

    def take_keys(self, ring: KeyRing) -> None:
        """Take over the keys that are shared with other gates."""
        keys = self._keys
        if isinstance(keys, SharedKeys):
            keys.ring = ring.after(keys.ring, time.time())
            self._log.info("keys read again", keys=len(keys.ring.keys), shut=self.door.shut)

    def _reread_keys(self) -> bool:
        """Read the file of the keys again if it has changed; one that cannot be used is logged, and changes nothing.

        Returns:
            Whether the keys in force are others now.
        """
        try:
            changed = self._keys.refresh()
        except ConfigError as bad:
            self._log.error("keys not read again: the old ones stay in force", problem=str(bad))
            return False
        if changed:
            self._log.info("keys read again", keys=len(self.door.ring.keys))
        return changed


def _limits(config: Config) -> ConnectionLimits:
    server = config.server
    return ConnectionLimits(
        header_timeout=server.header_timeout,
        body_rate=server.body_rate,
        send_timeout=server.send_timeout,
        per_client=server.connections_per_client,
    )


def _how(config: Config) -> dict[str, Any]:
    """The limits that aiohttp keeps, for each connection from its beginning."""
    server = config.server
    return {
        "max_line_size": server.max_header,
        "max_field_size": server.max_header,
        "max_headers": server.max_headers,
        "keepalive_timeout": server.keep_alive,
    }


def _certificate(config: Config) -> Certificate | None:
    server = config.server
    return None if server.tls_cert is None else Certificate(server.tls_cert, server.tls_key)


def _guarded(config: Config, keys: KeyFile | SharedKeys) -> None:
    """Refuse to be open to others by accident.

    Raises:
        ConfigError: others can reach the address and nobody is asked for a key.
    """
    server = config.server
    if keys.ring is None or keys.ring or server.open or server.address.loopback:
        return
    raise ConfigError(
        f"server.listen: others can reach {server.listen}, and there are no keys in {keys.path}, so whoever does could "
        "use and change your models. Make a key (ollama-gate keys add NAME), listen on 127.0.0.1, or say --open "
        "(server.open = true) if a firewall or a proxy decides who gets in."
    )
