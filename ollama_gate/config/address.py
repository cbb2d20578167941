"""Where Ollama is and where the gate listens, read from text as Ollama reads OLLAMA_HOST."""

import ipaddress
import re
from dataclasses import dataclass

OLLAMA_PORT = 11434
GATE_PORT = 11435

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port."""

    host: str
    """A name or an IP address without brackets; empty means every interface."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def here(self) -> bool:
        """Whether a connection to it ends on this machine: loopback, every interface, or localhost."""
        if self.host in {"", "localhost"} or self.host.endswith(".localhost"):
            return True
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return ip.is_loopback or ip.is_unspecified

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.here and self.host not in {"", "0.0.0.0", "::"}  # noqa: S104  compared, not bound


def parse_listen(text: str) -> Address:
    """The address to bind from "host:port", ":port" (every interface) or "host" (port 11435).

    Raises:
        ValueError: with a sentence that says how to write it.
    """
    text = text.strip()
    if "://" in text or "/" in text:
        raise ValueError(f'{text!r}: write "host:port" without a scheme or path')
    if text.isdigit():
        raise ValueError(f'{text!r} is only a port: write "127.0.0.1:{text}", or ":{text}" for every interface')
    if not text:
        raise ValueError('write "host:port", for example "127.0.0.1:11435"')
    return _split(text, GATE_PORT)


def parse_upstream(text: str) -> str:
    """Ollama's base URL, without a slash at its end, from what OLLAMA_HOST may hold.

    The rules are those of `envconfig/config.go:Host`, Ollama v0.33: no scheme means http and port 11434, `http://`
    without a port is 80, `https://` 443, `ollama.com` alone is https; a path is kept. Unlike there, a port that is no
    port, a foreign scheme, credentials, a query and the beginning of an API are refused instead of being passed over.

    Raises:
        ValueError: with a sentence that says how to write it.
    """
    text = text.strip().strip("\"'").strip()
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = ("https", "ollama.com:443") if text == "ollama.com" else ("http", text)
        default = OLLAMA_PORT
    else:
        scheme = scheme.lower()
        if scheme not in {"http", "https"}:
            raise ValueError(f"{scheme!r} is not a scheme for Ollama: use http or https")
        default = 443 if scheme == "https" else 80
    hostport, _, path = rest.partition("/")
    if "@" in hostport:
        raise ValueError("credentials do not belong in the address of Ollama, which checks none")
    if any(char in rest for char in "?#\\") or not text.isprintable() or " " in text:
        raise ValueError(f'{text!r}: write "host:port" or "http://host:port/path", without query or spaces')
    address = _split(hostport, default)
    base = f"{scheme}://{Address(address.host or '127.0.0.1', address.port)}"
    path = path.strip("/")
    if (last := path.rpartition("/")[2]) in {"v1", "api"}:
        raise ValueError(f"{text!r}: leave /{last} out, every path of Ollama's begins with it")
    return f"{base}/{path}" if path else base


def upstream_address(url: str) -> Address:
    """Host and port of a URL that `parse_upstream` returned."""
    return _split(url.partition("://")[2].partition("/")[0], OLLAMA_PORT)


def _split(text: str, default_port: int) -> Address:
    if text.startswith("["):
        host, closed, tail = text[1:].partition("]")
        if not closed or (tail and not tail.startswith(":")):
            raise ValueError(f'{text!r}: write an IPv6 address as "[::1]:{default_port}"')
        port = tail[1:]
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if ":" in host:
        try:
            host = str(ipaddress.IPv6Address(host))
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
    elif host and not _NAME.fullmatch(host):
        raise ValueError(f"{host!r} is not a host name or IP address")
    if not port:
        return Address(host, default_port)
    if not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise ValueError(f"{port!r} is not a port: use a number from 0 to 65535")
    return Address(host, int(port))
