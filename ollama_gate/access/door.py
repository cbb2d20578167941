"""Who gets in: the host that was called, the key that was shown, and what a caller may do inside.

Without keys the door costs a look at the Host header, and stands open for inference; what changes models or shows what
others do is then for this machine only. As soon as a key was ever made, nobody gets in without one.
"""

from collections.abc import Callable
from typing import Final, TypeGuard

from aiohttp import hdrs, web

from ollama_gate.access.hosts import Hosts, is_loopback, same_host
from ollama_gate.access.keyfile import KeyFile
from ollama_gate.access.keys import Key, KeyRing, Right, SharedKeys, bearer, credentials
from ollama_gate.access.quotas import Quotas, Usage
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import PromptCount, Rung

_FORWARDED: Final = ("X-Forwarded-For", "Forwarded", "X-Real-IP")
"""Headers by which a proxy on this machine says that a request came from elsewhere."""

_USE: Final = Right.USE  # an enum's members are slow to get (Python 3.11)
_TUNNELS: Final = frozenset({"CONNECT", "TRACE"})
"""Methods after which a connection, or an answer, is no longer the gate's."""


class Caller:
    """The holder of the key that a request showed: what it may do, and what the request uses up."""

    __slots__ = ("_booked", "_clock", "_quotas", "_rough", "_then", "_usage", "key")

    def __init__(self, key: Key, quotas: Quotas, clock: Callable[[], float]) -> None:
        """Begin with nothing used."""
        self.key = key
        self._quotas = quotas
        self._clock = clock
        self._usage: Usage | None = None
        self._booked = 0
        """Prompt tokens that are booked for this request."""
        self._rough = True
        """Whether that number is a bound or an estimate, to be put right by Ollama's count."""
        self._then: float | None = None
        """When it was booked, by the clock; None before."""

    @property
    def restricted(self) -> bool:
        """Whether it may use some models only."""
        return bool(self.key.models)

    def require_model(self, name: str) -> None:
        """Refuse a model that the key does not allow.

        Raises:
            Refused: 403 `model_not_allowed`.
        """
        if not self.key.allows(name):
            raise Refused(
                Refusal(
                    403,
                    "model_not_allowed",
                    f"the key {self.key.name!r} may not use the model {name[:200]!r}; it may use: "
                    f"{', '.join(self.key.models)}",
                    type="permission_error",
                    param="model",
                )
            )

    def enter(self) -> None:
        """Begin an inference request; `leave` ends it.

        Raises:
            Refused: 429, a quota of requests is used up.
        """
        self._usage = self._quotas.begin(self.key, self._clock())

    def short_of(self, count: PromptCount) -> bool:
        """Whether a quota has no room for this count because it is a bound, so that the prompt itself may still fit."""
        return count.rung is Rung.BOUND and not self._quotas.fits(self.key, count.tokens, self._clock())

    def book(self, count: PromptCount | None) -> None:
        """Book the tokens of the prompt that is about to be sent; one that was not counted is booked by `settle`.

        Raises:
            Refused: 429, a quota of prompt tokens is used up.
        """
        self._booked = count.tokens if count is not None else 0
        self._rough = count is None or count.rung is not Rung.EXACT
        now = self._clock()
        self._quotas.book(self.key, self._booked, now)
        self._then = now

    def settle(self, reported: int | None, *, evaluated: bool) -> None:
        """Put Ollama's own count in the place of what was booked by a bound or an estimate.

        Args:
            reported: that count; None where Ollama told none.
            evaluated: whether Ollama may have evaluated the prompt; one that it has not costs nothing.
        """
        if self._then is None:
            return
        true = self._booked if reported is None or not self._rough else reported
        if not evaluated:
            true = 0
        if true != self._booked:
            self._quotas.correct(self.key, true - self._booked, self._then)
            self._booked = true

    def leave(self) -> None:
        """The request is over."""
        if self._usage is not None:
            self._usage.running -= 1
            self._usage = None


class Door:
    """Lets requests in, or says why not."""

    def __init__(
        self,
        keys: KeyFile | SharedKeys,
        hosts: Hosts,
        *,
        rebindable: bool,
        keyless: bool,
        clock: Callable[[], float],
        wall: Callable[[], float],
        quotas: Quotas,
        reread: Callable[[], bool],
    ) -> None:
        """Stand before a gate.

        Args:
            keys: where keys come from.
            hosts: names by which the gate may be called.
            rebindable: whether being on this machine is what lets a caller in, so that foreign names are refused.
            keyless: whether it may stand open where there are no keys.
            clock: seconds, for quotas.
            wall: seconds since 1970, for the end of keys.
            quotas: what was used so far.
            reread: reads the file of the keys again if it has changed; true when there are new keys to look among.
        """
        self._keys = keys
        self._hosts = hosts
        self._rebindable = rebindable
        self._keyless = keyless
        self._clock = clock
        self._wall = wall
        self._reread = reread
        self.quotas = quotas

    @property
    def ring(self) -> KeyRing:
        """The keys in force."""
        return self._keys.ring or KeyRing()

    @property
    def shut(self) -> bool:
        """Whether nobody gets in, because the keys are not known, or there are none where there have to be."""
        return not _lets_in(self._keys.ring, keyless=self._keyless)

    def admit(self, request: web.BaseRequest, right: Right, path: str, *, inference: bool) -> Caller | None:
        """Let a request in.

        Args:
            request: its head.
            right: what its route asks for.
            path: its path, decoded.
            inference: whether it runs a model.

        Returns:
            The caller, or None where no key is asked for.

        Raises:
            Refused: 405 for what would be a tunnel, 401 without a good key, 403 for what a caller may not do and for a
                foreign name in Host, 503 while it is shut.
        """
        if request.method in _TUNNELS:
            what = f"{request.method} is not for this gate"
            raise Refused(Refusal(405, "method_not_allowed", what, headers={"Connection": "close"}))
        host = request.headers.get(hdrs.HOST)
        if self._hosts.names and not self._hosts.trusts(host):
            raise Refused(_foreign(host))
        ring = self._keys.ring
        if not _lets_in(ring, keyless=self._keyless):
            if right is Right.NOTHING:
                return None
            raise Refused(_shut())
        if ring.keys:
            return self._known(request, right, path, ring)
        trusted = self._hosts.trusts(host)
        if not trusted and self._rebindable and _rebound(request, host, inference=inference):
            raise Refused(_foreign(host))
        if right > _USE and not (trusted and is_here(request)):
            raise Refused(_local_only(path))
        return None

    def _known(self, request: web.BaseRequest, right: Right, path: str, ring: KeyRing) -> Caller | None:
        if right is Right.NOTHING:
            return None
        key = ring.find(bearer(request.headers)) or self._other(request, path)
        if why := key.over(self._wall()):
            raise Refused(_unauthorised(path, f"the key {key.name!r} is {why}; ask the operator for another one"))
        if not key.has(right):
            what = "an admin key" if right is Right.ADMIN else "an admin key, or one made with --count"
            raise Refused(
                Refusal(
                    403,
                    "admin_key_needed",
                    f"{path[:200]} takes {what}, which {key.name!r} is not",
                    type="permission_error",
                )
            )
        return Caller(key, self.quotas, self._clock)

    def _other(self, request: web.BaseRequest, path: str) -> Key:
        """The key that was shown in another way, or that was made a moment ago."""
        shown = [token for token in credentials(request.headers) if token]
        key = _first(self.ring, shown)
        if key is None and shown and self._reread():
            key = _first(self.ring, shown)
        if key is None:
            raise Refused(_unknown(path, shown=bool(shown)))
        return key


def is_here(request: web.BaseRequest) -> bool:
    """Whether a request comes from this machine itself, not through a proxy on it."""
    return is_loopback(request.remote) and not any(name in request.headers for name in _FORWARDED)


def _first(ring: KeyRing, shown: list[str]) -> Key | None:
    for text in shown:
        key = ring.find(text)
        if key is not None:
            return key
    return None


def _rebound(request: web.BaseRequest, host: str | None, *, inference: bool) -> bool:
    """Whether a request under a foreign name may come from a page that was rebound to this machine.

    Such a page can read what it is answered. Its requests for inference are POSTs, and a browser names the page in
    their Origin; where the Origin is another one, or none, a program or a reverse proxy has sent it. What tells about
    models is a GET, and says nothing of the page.
    """
    if not inference:
        return True
    origin = request.headers.get("Origin")
    return origin is not None and same_host(origin, host)


def _foreign(host: str | None) -> Refusal:
    return Refusal(
        403,
        "unknown_host",
        f"this gate is not called {(host or '')[:100]!r}; the operator can add the name to server.hosts",
        type="permission_error",
    )


def _lets_in(ring: KeyRing | None, *, keyless: bool) -> TypeGuard[KeyRing]:
    return ring is not None and bool(ring.keys or keyless)


def _shut() -> Refusal:
    return Refusal(
        503,
        "keys_unknown",
        "nobody gets in, because this gate has not read its keys yet, or there are none; its log says why",
        type="api_error",
        headers={"Retry-After": "2"},
    )


def _local_only(path: str) -> Refusal:
    return Refusal(
        403,
        "local_only",
        f"{path[:200]} is open on the gate's own machine only as long as there are no keys; the operator can make an "
        "admin key: ollama-gate keys add NAME --admin",
        type="permission_error",
    )


def _unknown(path: str, *, shown: bool) -> Refusal:
    if shown:
        return _unauthorised(path, "the key that was sent is not one of this gate's")
    return _unauthorised(
        path, "a key is needed: send it as Authorization: Bearer, as x-api-key, or as the password in the URL"
    )


def _unauthorised(path: str, why: str) -> Refusal:
    # Browsers ask a person for a password where Basic is offered: good for the gate's own pages, a nuisance elsewhere.
    challenge = 'Bearer realm="ollama-gate"'
    if path.startswith("/gate/"):
        challenge += ', Basic realm="ollama-gate", charset="UTF-8"'
    return Refusal(401, "invalid_api_key", why, type="authentication_error", headers={"WWW-Authenticate": challenge})
