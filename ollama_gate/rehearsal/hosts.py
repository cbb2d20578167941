"""Which Host and Origin Ollama answers on a loopback address (`server/routes.go:allowedHostsMiddleware`, v0.33)."""

import ipaddress
import re
import socket

_ORIGIN_HOSTS = ("localhost", "127.0.0.1", "0.0.0.0")  # noqa: S104  (compared, never bound)
_ORIGINS = re.compile(
    r"https?://(?:" + "|".join(map(re.escape, _ORIGIN_HOSTS)) + r")(?::.*)?"
    r"|(?:app|file|tauri|vscode-webview|vscode-file|chrome-extension|moz-extension|safari-web-extension)://.*"
)
_NAMES = (".localhost", ".local", ".internal")

_REQUEST_HEADERS = (
    "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,X-Stainless-Arch,X-Stainless-Async,"
    "X-Stainless-Custom-Poll-Interval,X-Stainless-Helper-Method,X-Stainless-Lang,X-Stainless-Os,"
    "X-Stainless-Package-Version,X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime,"
    "X-Stainless-Runtime-Version,X-Stainless-Timeout"
)


def host_is_name(host: str) -> bool:
    """Whether a Host header names an allowed host by name."""
    name = _without_port(host).lower()
    return name in {"", "localhost", socket.gethostname().lower()} or name.endswith(_NAMES)


def host_allowed(host: str) -> bool:
    """Whether a Host header is one that Ollama answers."""
    try:
        address = ipaddress.ip_address(_without_port(host).strip("[]"))
    except ValueError:
        return host_is_name(host)
    return address.is_loopback or address.is_private or address.is_unspecified


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rpartition(":")[0] or host if ":" in host else host


def origin_allowed(origin: str, host: str) -> bool:
    """Whether a page of that origin may call."""
    return origin in {f"http://{host}", f"https://{host}"} or bool(_ORIGINS.fullmatch(origin))


def preflight(origin: str) -> list[tuple[str, str]]:
    """Headers of the answer to a CORS preflight."""
    return [
        ("Access-Control-Allow-Headers", _REQUEST_HEADERS),
        ("Access-Control-Allow-Methods", "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"),
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Max-Age", "43200"),
    ]
