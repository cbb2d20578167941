"""The archive over HTTP: one message by its hash, and a search. Both show what people wrote, so both take an admin."""

import time
from typing import Any, Final

import orjson
from aiohttp import web

from ollama_gate.archive.keeper import Keeper
from ollama_gate.archive.search import LIMIT, MOST_LIMIT, Filter
from ollama_gate.archive.searching import BadQuery, Query
from ollama_gate.archive.store import SHORTEST_PREFIX, Message
from ollama_gate.compaction.originals import ArchiveFailed
from ollama_gate.errors import Refusal, Refused

_HEX: Final = frozenset("0123456789abcdef")
_HASH: Final = 64
_PARAMETERS: Final = frozenset({"q", "conversation", "role", "limit", "after"})


async def answer(keeper: Keeper, request: web.BaseRequest, asked: str) -> dict[str, Any]:
    """What `/gate/archive/<asked>` answers.

    Raises:
        Refused: 400 for what cannot be asked, 404 for what is not there, 503 where the archive cannot tell.
    """
    try:
        if asked == "search":
            return await _search(keeper, request)
        return await _one(keeper, asked)
    except ArchiveFailed as failure:
        raise Refused(
            Refusal(503, "archive_failed", str(failure), type="api_error", headers={"Retry-After": "5"})
        ) from failure


async def _one(keeper: Keeper, asked: str) -> dict[str, Any]:
    prefix = asked.lower()
    if not prefix or not _HEX.issuperset(prefix) or not SHORTEST_PREFIX <= len(prefix) <= _HASH:
        what = f"ask for a message by its hash: {SHORTEST_PREFIX} to {_HASH} hex digits, or for /gate/archive/search?q="
        raise Refused(Refusal(400, "invalid_request", what, param="hash"))
    found = await keeper.find(prefix)
    if not found:
        what = f"no message with the hash {prefix} is kept; it may have been purged"
        raise Refused(Refusal(404, "not_found", what, type="not_found_error", param="hash"))
    if len(found) > 1:
        what = f"more than one message has a hash that begins with {prefix}: name more digits"
        raise Refused(Refusal(400, "invalid_request", what, param="hash"))
    return told(found[0])


def told(message: Message) -> dict[str, Any]:
    """A message as programs get it."""
    return {
        "hash": message.hash,
        "role": message.role,
        "kept_at": stamp(message.stored_at),
        "conversations": message.conversations,
        "message": orjson.Fragment(message.body),
    }


async def _search(keeper: Keeper, request: web.BaseRequest) -> dict[str, Any]:
    asked = request.query
    if unknown := sorted(set(asked) - _PARAMETERS):
        known = ", ".join(sorted(_PARAMETERS))
        what = f"{unknown[0][:100]!r} is not a parameter of a search: {known}"
        raise Refused(Refusal(400, "invalid_request", what, param=unknown[0][:100]))
    limit = asked.get("limit", str(LIMIT))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MOST_LIMIT):
        raise Refused(Refusal(400, "invalid_request", f"limit is 1 to {MOST_LIMIT}", param="limit"))
    only = Filter(asked.get("conversation"), asked.get("role"))
    try:
        query = Query.parse(asked.get("q", ""))
        found = await keeper.search(query, only, limit=int(limit), after=asked.get("after"))
    except BadQuery as bad:
        param = "after" if "after" in asked and "`after`" in str(bad) else "q"
        raise Refused(Refusal(400, "invalid_request", str(bad), param=param)) from bad
    return {
        "matches": [
            {
                "hash": match.hash,
                "role": match.role,
                "kept_at": stamp(match.stored_at),
                "bytes": match.size,
                "excerpt": match.excerpt,
            }
            for match in found.matches
        ],
        "searched": found.searched,
        "complete": found.next is None,
        "next": found.next,
    }


def stamp(seconds: float) -> str:
    """A time in RFC 3339, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
