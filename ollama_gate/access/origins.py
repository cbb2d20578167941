"""Browsers: which web origins may call the gate (CORS).

Ollama refuses a request with a foreign Origin by itself (403, `server/routes.go:GenerateRoutes`), but the gate sends no
Origin on, so what Ollama protected is protected here: a page of another origin may not change models. It may ask for
inference, as any program may, yet cannot read the answer unless its origin is allowed. Those that Ollama allows without
being told, pages of this machine, desktop programs and extensions of browsers, are allowed here too: they work with the
gate as they did with Ollama.
"""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from ollama_gate.access.hosts import same_host
from ollama_gate.errors import Refusal, Refused

LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104 - names, not a bind
LOCAL_SCHEMES: Final = frozenset(
    {
        *("app", "file", "tauri", "vscode-webview", "vscode-file"),
        *("chrome-extension", "moz-extension", "safari-extension", "safari-web-extension", "ms-browser-extension"),
    }
)
"""Schemes of desktop programs (`envconfig/config.go:AllowedOrigins`) and browser extensions, which Ollama allows."""
_MANAGEMENT: Final = ("/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs/")
_NAMES: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+(?:[ \t]*,[ \t]*[\w!#$%&'*+.^`|~-]+)*", re.ASCII)
"""Names of headers, as a browser lists those that a page wants to send."""
_MOST_NAMES: Final = 2048
"""Bytes of them."""


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins that the operator added to those of this machine."""

    allowed: tuple[str, ...] = ()
    _all: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Work out whether every origin is allowed."""
        object.__setattr__(self, "_all", "*" in self.allowed)

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may read answers."""
        return self._all or self.names(origin)

    def names(self, origin: str) -> bool:
        """Whether this very origin is allowed, and not only because all are.

        Chrome asks for that before a page of the internet may reach into a private network (Private Network Access).
        """
        return origin in self.allowed or is_local(origin)


def is_local(origin: str) -> bool:
    """Whether an origin is this machine's or a desktop program's."""
    try:
        parts = urlsplit(origin)
    except ValueError:  # no URL at all
        return False
    host = parts.hostname or ""
    # Names below localhost are this machine too (RFC 6761); Tauri's programs on Windows are http://tauri.localhost.
    return parts.scheme in LOCAL_SCHEMES or host in LOCAL_HOSTS or host.endswith(".localhost")


def preflight(origins: Origins, request: web.BaseRequest, path: str) -> web.StreamResponse | None:
    """Answer a preflight of an allowed origin, and keep foreign pages away from what changes models.

    Returns:
        The answer to a preflight, or None when the request goes on.

    Raises:
        Refused: 403, a page of a foreign origin asks to change models.
    """
    origin = request.headers["Origin"]
    allowed = origins.allows(origin)
    if allowed and request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
        asked = request.headers.get("Access-Control-Request-Headers", "")
        headers = {**cors_headers(origin, asked), "Server": "ollama-gate"}
        if request.headers.get("Access-Control-Request-Private-Network") == "true" and origins.names(origin):
            headers["Access-Control-Allow-Private-Network"] = "true"
        return web.Response(status=204, headers=headers)
    if not allowed and path.startswith(_MANAGEMENT) and not same_host(origin, request.headers.get("Host")):
        raise Refused(
            Refusal(
                403,
                "origin_not_allowed",
                "web pages of this origin may not manage models here; the operator can add it to server.origins",
                type="permission_error",
            )
        )
    return None


def opened(origins: Origins, request: web.BaseRequest) -> dict[str, str]:
    """What lets a page of an allowed origin read an answer, the gate's own headers included; empty for others."""
    origin = request.headers["Origin"]
    if not origins.allows(origin):
        return {}
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "*", "Vary": "Origin"}


def cors_headers(origin: str, asked: str) -> dict[str, str]:
    """What a browser needs to see in the answer to a preflight of an allowed origin.

    Args:
        origin: the page's.
        asked: the names of the headers that the page wants to send. All may be sent: clients name their own ones
            (`x-stainless-…`, `anthropic-beta`, …), and what the gate does not know has no effect.
    """
    named = {"Access-Control-Allow-Headers": asked} if len(asked) <= _MOST_NAMES and _NAMES.fullmatch(asked) else {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS",
        **named,
        "Access-Control-Max-Age": "43200",
        "Vary": "Origin, Access-Control-Request-Headers",
    }
