"""One question to a gate or an Ollama over HTTP, for commands that ask a few and end."""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Final

from ollama_gate.cli import NoAnswer

_LARGEST: Final = 64 * 1024**2
_PIECE: Final = 64 * 1024


class Untrusted(NoAnswer):
    """A server whose certificate nobody vouches for that is trusted here."""


def ask(
    url: str,
    body: bytes | None = None,
    *,
    within: float = 10.0,
    key: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, Any]:
    """Status and decoded JSON of a GET, or of a POST where there is a body.

    Proxies named in the environment are not used: the gate and Ollama are neighbours. Without `tls` those certificates
    are trusted that the system trusts, or the file that SSL_CERT_FILE names.

    Raises:
        Untrusted: it shows a certificate that is not trusted.
        NoAnswer: nobody listens there, nothing came for `within` seconds, the whole took twice as long, what came is no
            HTTP or breaks off, or it is not JSON.
    """
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310  http(s), from the configuration
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    end = time.monotonic() + 2 * within
    try:
        with _answer(opener, request, within) as answer:
            status, data = answer.getcode() or 0, _read(answer, end)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Untrusted(f"the certificate of {url} is not trusted: {reason.verify_message}") from error
        raise NoAnswer(f"{url} does not answer: {reason}") from error
    except http.client.HTTPException as error:
        raise NoAnswer(f"{url} answers with something that is not HTTP, or breaks off: {error!r}") from error
    try:
        return status, json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"{url} answers {status} with something that is not JSON") from error


def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, within: float
) -> http.client.HTTPResponse | urllib.error.HTTPError:
    """The head of an answer, of an error like of any other."""
    try:
        answer: http.client.HTTPResponse = opener.open(request, timeout=within)
    except urllib.error.HTTPError as error:
        return error
    return answer


def _read(answer: http.client.HTTPResponse | urllib.error.HTTPError, end: float) -> bytes:
    """The body, as far as it is read; each piece in its time would not do for one that comes byte by byte."""
    data = bytearray()
    while len(data) < _LARGEST and (piece := answer.read1(_PIECE)):
        data += piece
        if time.monotonic() > end:
            raise TimeoutError("the answer takes too long")
    return bytes(data)
