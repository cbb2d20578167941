"""Everything that is not inference: streamed both ways, unchanged, of any size and duration."""

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ollama_gate.errors import UpstreamBroken
from ollama_gate.receive import has_left, invalid_body, say_continue
from ollama_gate.turn import Phase, Turn, Verdict
from ollama_gate.upstream.client import Upstream, says_length
from ollama_gate.upstream.headers import for_upstream
from ollama_gate.upstream.relay import Passage, relay
from ollama_gate.wire.ndjson import BLIND


async def pass_through(
    request: web.BaseRequest,
    target: str,
    turn: Turn,
    *,
    upstream: Upstream,
    clock: Callable[[], float],
    body: bytes | None = None,
) -> web.StreamResponse:
    """Hand a request on as it is and its answer back as it comes.

    Args:
        request: the client's request.
        target: raw path and query to ask for.
        turn: the request's record.
        upstream: where to send it.
        clock: steady seconds.
        body: the request's body, where it was read already.

    Raises:
        Refused: what the client sends breaks the rules of HTTP.
        UpstreamError: Ollama gives no answer; nothing has been sent to the client.
    """
    authorization = upstream.settings.forward_authorization
    lines = for_upstream(request.raw_headers, own_body=False, authorization=authorization)
    sent: bytes | AsyncIterator[bytes] | None = body
    if body is not None:
        lines = [line for line in lines if not says_length(line)]
    else:
        await say_continue(request)
        sent = _body(request) if request.can_read_body else None
    turn.phase, turn.sent_at, turn.verdict = Phase.FIRST_BYTE, clock(), Verdict.PASSED
    try:
        answer = await upstream.send(request.method, target, lines, sent)
    except asyncio.CancelledError:
        turn.left = has_left(request)
        raise
    except UpstreamBroken:
        wrong = request.content.exception()
        if isinstance(wrong, HttpProcessingError):  # it broke because the client's body did
            raise invalid_body(wrong) from wrong
        raise
    return await relay(request, answer, turn=turn, observer=BLIND, passage=Passage(), clock=clock)


async def _body(request: web.BaseRequest) -> AsyncIterator[bytes]:
    content = request.content
    while data := await content.readany():
        yield data
