"""An HTTP transport that compresses what the official clients send: some agents do, and Ollama takes it."""

import gzip
import zlib
from collections.abc import Callable, Mapping

import httpx2
import zstandard

CODINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


class Compressing(httpx2.BaseTransport):
    """Sends each body in one content coding."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._plain = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        body = CODINGS[self._coding](request.read())
        headers = request.headers.copy()
        headers["Content-Encoding"], headers["Content-Length"] = self._coding, str(len(body))
        return self._plain.handle_request(
            httpx2.Request(request.method, request.url, headers=headers, content=body, extensions=request.extensions)
        )

    def close(self) -> None:
        self._plain.close()
