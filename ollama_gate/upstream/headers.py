"""Which headers cross the gate, in both directions."""

from collections.abc import Iterable
from typing import Final

from ollama_gate.wire.http1 import Field

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Meant for one connection only (RFC 9110, 7.6.1)."""

_NOT_TO_CLIENT: Final = HOP_BY_HOP | {b"server"}
_NOT_UPSTREAM: Final = HOP_BY_HOP | {b"host", b"origin", b"referer", b"expect", b"cookie", b"x-api-key"}
"""Ollama checks Host and Origin against its own address (`server/routes.go:allowedHostsMiddleware`), so the gate sends
its upstream's Host and no Origin; keys and cookies are for the gate, not for Ollama."""

_OF_A_BODY: Final = _NOT_UPSTREAM | {b"content-length", b"content-type", b"content-encoding", b"accept-encoding"}
"""Those, and what a client says of the body that it sent: the gate sends its own."""

_DROPPED: Final = {
    (own_body, authorization): dropped | (frozenset() if authorization else {b"authorization"})
    for own_body, dropped in ((False, _NOT_UPSTREAM), (True, _OF_A_BODY))
    for authorization in (False, True)
}


def connection_named(values: Iterable[bytes]) -> frozenset[bytes]:
    """Header names that a Connection header declares to be hop-by-hop too."""
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))


def _without(lines: Iterable[bytes], names: frozenset[bytes]) -> list[bytes]:
    return [line for line in lines if line.partition(b":")[0].lower() not in names]


def for_upstream(headers: Iterable[tuple[bytes, bytes]], *, own_body: bool, authorization: bool) -> list[bytes]:
    """The client's headers as they go to Ollama, as lines.

    Args:
        headers: names and values as they came from the client.
        own_body: the gate sends its own serialised body, so the client's length, type and coding do not apply.
        authorization: whether the operator lets Authorization through.
    """
    dropped = _DROPPED[own_body, authorization]
    lines: list[bytes] = []
    named: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower not in dropped:
            lines.append(name + b": " + value)
        elif lower == b"connection":
            named.append(value)
    if named:
        lines = _without(lines, connection_named(named))
    if own_body:
        lines.append(b"Content-Type: application/json")
    return lines


def for_client(fields: Iterable[Field], replaced: Iterable[str] = ()) -> list[bytes]:
    """Ollama's headers as they go to the client, as lines: all but the hop-by-hop ones and those the gate replaces.

    Args:
        fields: Ollama's headers as they came.
        replaced: names that the gate puts in anew, besides Server and its own.
    """
    dropped = _NOT_TO_CLIENT
    if replaced:
        dropped = dropped.union([name.lower().encode() for name in replaced])
    lines: list[bytes] = []
    named: list[bytes] = []
    for name, line in fields:
        if name not in dropped:
            if not name.startswith(b"x-ollama-gate-"):
                lines.append(line)
        elif name == b"connection":
            named.append(line.partition(b":")[2])
    if named:
        lines = _without(lines, connection_named(named))
    return lines
