"""Keys: what a client shows to be let in, what is kept of it, and what it allows.

A key is 256 random bits behind a readable id. Only a hash of the bits is kept. The hash is a fast one on purpose: slow
hashes (scrypt, argon2) make guessing a *password* dear, and nobody guesses 256 random bits, while every request would
pay for it. The id finds the record, and the hashes are compared in constant time, so that the time of an answer says
nothing of the bits; ids are no secret.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fnmatch import translate
from functools import lru_cache
from hmac import compare_digest
from typing import Final, Self

from ollama_gate.catalog.names import InvalidName, canonical, display

MARK: Final = "og"
"""What every key begins with, so that it is recognised where it should not be: in logs, mails and repositories."""
ID_LENGTH: Final = 10
SECRET_LENGTH: Final = 43
"""256 bits in base64url without padding."""
_HASH: Final = hashlib.blake2b(digest_size=32, person=b"ollama-gate key")
_HEAD: Final = f"{MARK}_"
_ID: Final = slice(len(_HEAD), len(_HEAD) + ID_LENGTH)
_LENGTH: Final = _ID.stop + 1 + SECRET_LENGTH
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}", re.ASCII)
_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:/*?-]{1,300}", re.ASCII)
LONGEST_CREDENTIAL: Final = 1024
"""Characters; a longer one is no key and is not decoded."""
MOST_PRIORITY: Final = 100


class Right(IntEnum):
    """What a route asks of its caller."""

    NOTHING = 0
    """Open to everybody: whether the gate lives."""
    USE = 1
    """Inference, and what clients ask about models."""
    COUNT = 2
    """The gate's own counting of a caller's texts: keys made with `counts`, and admins."""
    ADMIN = 3
    """Whatever changes models, shows what others do, or is not known here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may use up; None is no limit."""

    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_minute: int | None = None
    """Prompt tokens."""
    tokens_per_day: int | None = None
    parallel: int | None = None
    """Inference requests at one time, those that wait included."""


UNLIMITED: Final = Limits()
_BEARER: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class Key:
    """One key as it is kept. Times are seconds since 1970."""

    id: str
    name: str
    """What people call it; it stands in the log."""
    digest: bytes
    """Hash of the secret part."""
    created: float
    expires: float | None = None
    revoked: float | None = None
    models: tuple[str, ...] = ()
    """Names or patterns (`qwen3*`); empty allows all."""
    limits: Limits = UNLIMITED
    priority: int = 0
    """Higher goes first in the queue of a model."""
    admin: bool = False
    counts: bool = False
    """May use /gate/count, /gate/tokenize and /gate/chunk."""

    def over(self, now: float) -> str | None:
        """Why it opens nothing any more ("revoked" or "expired"); None while it is in force."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and now >= self.expires else None

    def has(self, right: Right) -> bool:
        """Whether it gives this right."""
        return self.admin or right <= Right.USE or (right is Right.COUNT and self.counts)

    def allows(self, model: str) -> bool:
        """Whether it may use a model, by any spelling of its name."""
        return not self.models or _allowed(self.models, model)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All keys of a gate, revoked ones included: where one was ever made, nobody gets in without one."""

    keys: tuple[Key, ...] = ()
    _by_id: Mapping[str, Key] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Index by id."""
        object.__setattr__(self, "_by_id", {key.id: key for key in self.keys})

    def __bool__(self) -> bool:
        """Whether a key is asked for at all."""
        return bool(self.keys)

    def find(self, token: str) -> Key | None:
        """The key whose text a client showed, whether or not it is still in force; None where there is no such key."""
        key = self._by_id.get(token[_ID])
        if key is None or len(token) != _LENGTH or not token.startswith(_HEAD) or token[_ID.stop] != "_":
            return None
        return key if compare_digest(key.digest, _digest_of(token[_ID.stop + 1 :])) else None

    def with_key(self, key: Key) -> Self:
        """The same ring with one more key, or with this one in the place of the key of its id."""
        rest = tuple(one for one in self.keys if one.id != key.id)
        return type(self)((*rest, key))

    def after(self, before: Self | None, now: float) -> Self:
        """The same ring where another one was in force before: what is not in it any more is revoked.

        So nobody gets in because all keys are gone.
        """
        if before is None:
            return self
        gone = [key for key in before.keys if key.id not in self._by_id]
        return type(self)((*self.keys, *(key if key.over(now) else replace(key, revoked=now) for key in gone)))

    def named(self, name: str, now: float) -> list[Key]:
        """The keys of this name or id that are in force."""
        return [key for key in self.keys if name in {key.id, key.name} and key.over(now) is None]


class SharedKeys:
    """The keys of a gate that shares them with others: none are known until the database has told them."""

    def __init__(self, path: str) -> None:
        """Know nothing yet.

        Args:
            path: how the place they come from is called.
        """
        self.path = path
        self.ring: KeyRing | None = None

    def refresh(self) -> bool:
        """They come by themselves."""
        return False


def minted(like: Key, id_bytes: bytes, secret_bytes: bytes) -> tuple[str, Key]:
    """A new key that allows what another one allows.

    Args:
        like: what it allows; its id and digest are replaced.
        id_bytes: 7 random bytes or more, for the id.
        secret_bytes: 32 random bytes, for the secret part.

    Returns:
        The text that a client shows (`og_<id>_<secret>`), which is kept nowhere, and the key as it is kept.
    """
    key_id = base64.b32encode(id_bytes).decode().lower()[:ID_LENGTH]
    secret = base64.urlsafe_b64encode(secret_bytes).rstrip(b"=").decode()
    return f"{MARK}_{key_id}_{secret}", replace(like, id=key_id, digest=_digest_of(secret))


def _digest_of(secret: str) -> bytes:
    mark = _HASH.copy()
    mark.update(secret.encode("ascii", "replace"))
    return mark.digest()


def prefix(key: Key) -> str:
    """How a key begins: enough to tell which one it is, and nothing of its secret."""
    return f"{MARK}_{key.id}_"


def name_fault(name: str) -> str | None:
    """Why a text is no name for a key; None when it is one."""
    if _NAME.fullmatch(name):
        return None
    return "write a name of up to 64 letters, digits, spaces and . _ @ -, beginning with a letter or digit"


def pattern_fault(pattern: str) -> str | None:
    """Why a text is no pattern for models; None when it is one."""
    if not _PATTERN.fullmatch(pattern):
        return f"{pattern[:60]!r} is no model: write a name (qwen3:8b) or a pattern (qwen3*, mylab/*)"
    if "*" not in pattern and "?" not in pattern:
        try:
            canonical(pattern)
        except InvalidName as bad:
            return str(bad)
    return None


def bearer(headers: Mapping[str, str]) -> str:
    """The token of `Authorization: Bearer` as nearly everybody writes it; empty for everything else."""
    authorization = headers.get("Authorization")
    return authorization[len(_BEARER) :] if authorization is not None and authorization.startswith(_BEARER) else ""


def credentials(headers: Mapping[str, str]) -> Iterable[str]:
    """Everything in a request's headers that may be a key, in the order in which it is tried.

    `Authorization: Bearer`, the password of `Authorization: Basic` (for tools that only know URLs with user:password;
    a user name without password will do), and `x-api-key`. More than one may be there: some clients send a dummy in one
    of them.
    """
    authorization = headers.get("Authorization")
    if authorization is not None and len(authorization) <= LONGEST_CREDENTIAL:
        scheme, _, value = authorization.partition(" ")
        match scheme.lower():
            case "bearer":
                yield value.strip()
            case "basic":
                user, _, password = _basic(value.strip()).partition(":")
                yield password or user
            case _:
                pass
    plain = headers.get("x-api-key")
    if plain is not None:
        yield plain.strip()


def _basic(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):  # not ASCII, or not base64
        return ""


@lru_cache(maxsize=1024)
def _allowed(patterns: tuple[str, ...], model: str) -> bool:
    """Whether one of the patterns means this model.

    A pattern without `*` and `?` is a name in any spelling (`qwen3` is `qwen3:latest`). One with them is compared with
    the shortest name (`qwen3:8b`) and with the whole one (`registry.ollama.ai/library/qwen3:8b`), without regard to
    letter case, as Ollama compares names.
    """
    try:
        whole = canonical(model)
        short = display(model).lower()
    except InvalidName:
        return False
    for pattern in patterns:
        if "*" in pattern or "?" in pattern:
            expression = _expression(pattern.lower())
            if expression.fullmatch(short) or expression.fullmatch(whole):
                return True
        elif canonical(pattern) == whole:
            return True
    return False


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
