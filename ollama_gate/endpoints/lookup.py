"""The archive over HTTP: one message by its hash, and a search. Both show what people wrote, so both take an admin."""

from typing import Any, Final

from aiohttp import web

from ollama_gate.archive.keeper import Keeper
from ollama_gate.archive.query import LIMIT, MOST_LIMIT, BadQuery, Query
from ollama_gate.archive.records import LONGEST_PREFIX, SHORTEST_PREFIX, Filter, prefix_of
from ollama_gate.compaction.originals import ArchiveFailed
from ollama_gate.errors import Refusal, Refused

PARAMETERS: Final = frozenset({"q", "conversation", "role", "limit", "after"})
"""What a search may be asked with."""


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
    prefix = prefix_of(asked)
    if prefix is None:
        digits = f"{SHORTEST_PREFIX} to {LONGEST_PREFIX} hex digits"
        what = f"ask for a message by its hash, {digits}, or for /gate/archive/search?q="
        raise Refused(Refusal(400, "invalid_request", what, param="hash"))
    found = await keeper.find(prefix)
    if not found:
        what = f"no message with the hash {prefix} is kept; it may have been purged"
        raise Refused(Refusal(404, "not_found", what, type="not_found_error", param="hash"))
    if len(found) > 1:
        what = f"more than one message has a hash that begins with {prefix}: name more digits"
        raise Refused(Refusal(400, "invalid_request", what, param="hash"))
    return found[0].told()


async def _search(keeper: Keeper, request: web.BaseRequest) -> dict[str, Any]:
    asked = request.query
    if unknown := sorted(set(asked) - PARAMETERS):
        known = ", ".join(sorted(PARAMETERS))
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
        raise Refused(Refusal(400, "invalid_request", str(bad), param=bad.param)) from bad
    return found.told()
