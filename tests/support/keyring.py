"""Keys for tests: a file of keys in a directory, and the texts that clients show."""

from pathlib import Path
from typing import Any

from ollama_gate.access.keyfile import read, write
from ollama_gate.access.keys import Key, Limits, minted


def a_key(name: str = "somebody", number: int = 0, **rights: Any) -> tuple[str, Key]:
    """A key that is the same in every run, and its text."""
    seed = f"{name}-{number}".encode()
    limits = Limits(**rights.pop("limits", {}))
    like = Key(id="", name=name, digest=b"", created=0.0, limits=limits, **rights)
    return minted(like, seed.ljust(8, b".")[-8:], seed.ljust(32, b"s")[:32])


def add_key(path: Path, name: str = "somebody", number: int = 0, **rights: Any) -> str:
    """Put one more key into a file, and return its text."""
    text, key = a_key(name, number, **rights)
    write(path, read(path)[0].with_key(key))
    return text


def bearer(text: str) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {text}"}
