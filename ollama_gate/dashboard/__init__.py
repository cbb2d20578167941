"""The status page: one HTML file without anything from elsewhere, which reads /gate/status every two seconds."""

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Final

PATH: Final = "/gate/"
_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@cache
def page() -> bytes:
    """The page."""
    return resources.files(__package__).joinpath("page.html").read_bytes()


@cache
def headers() -> dict[str, str]:
    """What is sent with it: nothing but its own script and style runs there, and it asks nobody but this gate."""
    hashes: dict[str, str] = {}
    for kind, text in _INLINE.findall(page().decode()):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind] = f"{kind}-src 'sha256-{digest}'"
    policy = (
        f"default-src 'none'; {hashes['script']}; {hashes['style']}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "Server": "ollama-gate",
    }
