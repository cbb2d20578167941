"""A real HTTP server on loopback with ready answers, for code that asks a few questions and ends."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


@dataclass
class Canned:
    """What it answers, and what it was asked."""

    url: str
    answers: dict[str, tuple[int, Any]]
    """(status, JSON value or raw bytes) by path; for /api/show by "/api/show NAME"."""
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    """The Authorization header of each question."""


@contextmanager
def canned(answers: Mapping[str, tuple[int, Any]]) -> Iterator[Canned]:
    """Serve these answers until the block ends; any other path is answered 404."""

    class Handler(BaseHTTPRequestHandler):
        state: ClassVar[Canned]

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.state.asked.append((self.path, body))
            self.state.authorizations.append(self.headers.get("Authorization"))
            path = f"{self.path} {json.loads(body)['model']}" if self.path == "/api/show" else self.path
            status, value = self.state.answers.get(path, (404, {"error": "not found"}))
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815  the base class looks for these names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's signature
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.state = Canned(f"http://127.0.0.1:{server.server_port}", dict(answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Handler.state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
