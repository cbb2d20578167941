"""One question to a gate or an Ollama over HTTP, for commands that ask a few and end."""

import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Final

from ollama_gate.cli import NoAnswer

_LARGEST: Final = 64 * 1024**2


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
        NoAnswer: nobody listens there, the answer took longer than `within` seconds, or it is not JSON.
    """
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310  http(s), from the configuration
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        with opener.open(request, timeout=within) as answer:
            status, data = answer.status, answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        with error:
            status, data = error.code, error.read(_LARGEST)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Untrusted(f"the certificate of {url} is not trusted: {reason.verify_message}") from error
        raise NoAnswer(f"{url} does not answer: {reason}") from error
    try:
        return status, json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"{url} answers {status} with something that is not JSON") from error
