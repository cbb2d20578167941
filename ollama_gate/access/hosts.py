"""The Host header: by which names this gate may be called, so that no web page calls it by a name of its own.

In DNS rebinding a page's own name is made to point at this machine, and the page then talks to the gate as to its own
origin. Nothing gives it away but the name in Host. Ollama checks it (`server/routes.go:allowedHostsMiddleware`, v0.33),
but the gate sends Ollama's own name on, so it is checked here. An IP address cannot be rebound, and neither can names
that never leave the machine.
"""

import ipaddress
import socket
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

_LOCAL_ENDINGS: Final = (".localhost", ".local", ".internal")
"""Names that no public name server answers for; Ollama trusts them too."""


@lru_cache(maxsize=1024)
def name_in(host: str) -> str:
    """The name in a Host header or an origin's authority, without its port, in lower case; empty if there is none."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, _, port = host.rpartition(":") if host.count(":") == 1 else (host, "", "")
    return name.rstrip(".").lower() if not port or port.isdigit() else ""


@lru_cache(maxsize=1024)
def is_loopback(address: str | None) -> bool:
    """Whether a peer's address is this machine's own."""
    try:
        ip = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


@lru_cache(maxsize=1024)
def known_anyway(name: str) -> bool:
    """Whether no foreign page can have this name: an IP address, this machine's name, or one that is never public."""
    if name in {"localhost", socket.gethostname().lower()} or name.endswith(_LOCAL_ENDINGS):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


class Hosts:
    """The names by which this gate may be called."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        """Trust these names beside the local ones; `.example.org` stands for all names below it."""
        self.names = names
        self._exact = frozenset(name.lower() for name in names)
        self._endings = tuple(name.lower() for name in names if name.startswith("."))
        self.trusts = lru_cache(maxsize=1024)(self._trusts)
        """Whether a request with this Host header was meant for this gate; most say what the one before said."""

    def _trusts(self, host: str | None) -> bool:
        if not host:
            return True
        name = name_in(host)
        return bool(name) and (name in self._exact or name.endswith(self._endings) or known_anyway(name))


def same_host(origin: str, host: str | None) -> bool:
    """Whether a page's origin (`scheme://host:port`) and the Host header name the same host and port."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == (host or "").lower()
    except ValueError:  # no URL at all
        return False
