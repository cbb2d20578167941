"""The recorded exchanges with a real Ollama in `tests/data/wire/`."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIRE = Path(__file__).parent.parent / "data" / "wire"


@dataclass(frozen=True)
class Recording:
    """One exchange: what was sent, and what Ollama answered."""

    id: str
    about: str
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    status: int
    reason: str
    answer_headers: list[tuple[str, str]]
    chunks: list[str]
    """One string an HTTP chunk, or the whole body as one; empty when there was none."""
    edited: bool
    """Something was cut out of the answer, so its length is not that of the original."""

    def answer_header(self, name: str) -> str | None:
        """The first header of the answer with that name."""
        return next((value for key, value in self.answer_headers if key.lower() == name.lower()), None)

    def json(self) -> Any:
        """The request's body, decoded."""
        return json.loads(self.body)


def recording(name: str) -> Recording:
    """Read one recording by its id."""
    data = json.loads((WIRE / f"{name}.json").read_text("utf-8"))
    request, response = data["request"], data["response"]
    encoded = request.get("body_base64")
    body = base64.b64decode(encoded) if encoded else (request["body"] or "").encode()
    return Recording(
        id=data["id"],
        about=data["about"],
        method=request["method"],
        path=request["path"],
        headers=[(name, value) for name, value in request["headers"]],
        body=body,
        status=response["status"],
        reason=response["reason"],
        answer_headers=[(name, value) for name, value in response["headers"]],
        chunks=response["chunks"],
        edited="edited" in data,
    )


def recordings(*patterns: str) -> list[str]:
    """Ids of the recordings that match any of the patterns, in order."""
    return sorted({path.stem for pattern in patterns for path in WIRE.glob(f"{pattern}.json")})
