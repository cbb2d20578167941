"""Which headers cross the gate, in both directions."""

from collections.abc import Iterable, Mapping
from typing import Final

from multidict import CIMultiDict

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Meant for one connection only (RFC 9110, 7.6.1)."""

_NOT_UPSTREAM: Final = HOP_BY_HOP | {"host", "origin", "referer", "expect", "cookie", "x-api-key"}
"""Ollama checks Host and Origin against its own address (`server/routes.go:allowedHostsMiddleware`), so the gate sends
its upstream's Host and no Origin; keys and cookies are for the gate, not for Ollama."""

_OF_A_BODY: Final = _NOT_UPSTREAM | {"content-length", "content-type", "content-encoding", "accept-encoding"}
"""Those, and what a client says of the body that it sent: the gate sends its own."""

_DROPPED: Final = {
    (own_body, authorization): dropped | (frozenset() if authorization else {"authorization"})
    for own_body, dropped in ((False, _NOT_UPSTREAM), (True, _OF_A_BODY))
    for authorization in (False, True)
}


def connection_named(values: Iterable[str]) -> frozenset[str]:
    """Header names that a Connection header declares to be hop-by-hop too."""
    return frozenset(name.strip().lower() for value in values for name in value.split(","))


def for_upstream(headers: "Mapping[str, str]", *, own_body: bool, authorization: bool) -> CIMultiDict[str]:
    """The client's headers as they go to Ollama.

    Args:
        headers: a multidict of the client's headers.
        own_body: the gate sends its own serialised body, so the client's length, type and coding do not apply.
        authorization: whether the operator lets Authorization through.
    """
    out = _without(_DROPPED[own_body, authorization], headers)
    if own_body:
        out["Content-Type"] = "application/json"
    return out


def for_client(headers: "Mapping[str, str]") -> CIMultiDict[str]:
    """Ollama's headers as they go to the client: all but the hop-by-hop ones."""
    if HOP_BY_HOP.isdisjoint(map(str.lower, headers)):
        return CIMultiDict(headers)
    return _without(HOP_BY_HOP, headers)


def _without(dropped: frozenset[str], headers: "Mapping[str, str]") -> CIMultiDict[str]:
    """All headers but these, and those that the Connection header declares to be of its kind."""
    if "Connection" in headers:
        dropped |= connection_named(_all(headers, "Connection"))
    return CIMultiDict([pair for pair in headers.items() if pair[0].lower() not in dropped])


def _all(headers: "Mapping[str, str]", name: str) -> list[str]:
    """Every value of one header, whether the mapping is a multidict or not."""
    getall = getattr(headers, "getall", None)
    if getall is not None:
        return list(getall(name, []))
    return [value for key, value in headers.items() if key.lower() == name.lower()]
