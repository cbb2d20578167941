"""HTTPS: a certificate with its key, checked before it is used and taken up again when its files change."""

import ssl
from pathlib import Path
from typing import Final

from ollama_gate.errors import ConfigError

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, what gives forward secrecy and is authenticated; TLS 1.3 has nothing else."""

Stamp = tuple[tuple[int, int, int], ...]
"""What changes when the files of a certificate do: inode, size and time of the last change (nanoseconds) of each."""


class Certificate:
    """What the gate serves HTTPS with. New connections get the newest; those that are open keep theirs."""

    def __init__(self, chain: Path, private: Path | None) -> None:
        """Load it.

        Raises:
            ConfigError: it cannot be used.
        """
        self.chain = chain
        self.private = private
        self._stamp = self._stamped()
        self.context = _context(chain, private)

    def refresh(self) -> bool:
        """Load the files again if they have changed.

        Returns:
            Whether they had.

        Raises:
            ConfigError: they cannot be used. What was loaded before stays in use, and they are not tried again before
                they change once more.
        """
        stamp = self._stamped()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        _context(self.chain, self.private)  # a pair that does not fit must not touch the context in use
        self.context.load_cert_chain(self.chain, self.private)
        return True

    def become(self, other: "Certificate") -> None:
        """Serve with another one's files from here on; they have been loaded already."""
        self.chain, self.private = other.chain, other.private
        self._stamp = self._stamped()
        self.context.load_cert_chain(self.chain, self.private)

    def _stamped(self) -> Stamp:
        found = []
        for path in (self.chain, self.private or self.chain):
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)


def _context(chain: Path, private: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(chain, private, password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as bad:
        what = f"{chain}" if private is None else f"{chain} with the key {private}"
        raise ConfigError(f"server.tls_cert: {what} cannot be used: {bad}") from bad
    return context


def _no_password() -> str:
    raise ValueError("the key is protected by a password; the gate takes keys without one only")
