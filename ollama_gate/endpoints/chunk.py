"""POST /gate/chunk: a text cut into chunks that an embedding model takes whole, or that any number of tokens allows."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final

from aiohttp import web

from ollama_gate.access.door import Caller
from ollama_gate.catalog.card import ModelCard
from ollama_gate.counting.chunking import Chunk, TooTight, chunks
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.measuring import Meter
from ollama_gate.errors import CountingError, Refusal, Refused
from ollama_gate.policies import Applied
from ollama_gate.receive import body_limit, elsewhere, receive
from ollama_gate.requests import Json
from ollama_gate.window import EMBED_SPECIALS
from ollama_gate.wiring import Wiring

_FIELDS: Final = frozenset({"model", "text", "max_tokens", "overlap"})
_TURN: Final = 0.05
"""Seconds of making chunks in one go; then other counts have their turn, and a client that has left is noticed."""
_LONGEST: Final = 60.0
"""Seconds that one text may take."""
_MOST: Final = 50_000
"""Chunks of one text."""


async def answer(wiring: Wiring, request: web.BaseRequest, caller: Caller | None = None) -> dict[str, Any]:
    """The chunks of a text, each with its place in the text and its tokens.

    Raises:
        Refused: 400 for a body that is none, a length that the model cannot take or a vocabulary that is not known,
            404 for a model that Ollama does not have.
        UpstreamError: Ollama does not answer.
    """
    body = await (await receive(request, body_limit(wiring.config))).everything()
    unknown = sorted(body.keys() - _FIELDS)
    if unknown:
        raise _bad(f"there is no field {unknown[0]!r} here", unknown[0])
    text = body.get("text")
    if not isinstance(text, str):
        raise _bad("say what is to be cut", "text")
    name = body.get("model")
    if not isinstance(name, str):
        raise _bad("say whose tokens they are", "model")
    if caller is not None:
        caller.require_model(name)
    card = await wiring.local(name)
    applied = wiring.pipeline.policies.for_card(card)
    most, specials = _most(body, card, applied)
    overlap = _number(body, "overlap", 0, least=0)
    if 2 * overlap > most:
        raise _bad(f"an overlap is at most half of what a chunk can hold, here {most // 2} tokens", "overlap")
    try:
        found = await _cut(wiring.counter, card, text, most, overlap)
    except CountingError as failure:
        raise Refused(Refusal(400, "not_countable", str(failure), param="model")) from failure
    except TooTight as tight:
        raise _bad(str(tight), "max_tokens") from tight
    return {
        "model": card.name,
        "max_tokens": most + specials,
        "specials": specials,
        "overlap": overlap,
        "rung": wiring.counter.rung(card).value,
        "count": len(found),
        "chunks": await elsewhere(lambda: [_told(chunk, text, specials) for chunk in found]),
    }


def _told(chunk: Chunk, text: str, specials: int) -> dict[str, Any]:
    return {
        "text": text[chunk.start : chunk.end],
        "tokens": chunk.tokens + specials,
        "start": chunk.start,
        "fresh": chunk.fresh,
        "end": chunk.end,
    }


def _most(body: Json, card: ModelCard, applied: Applied) -> tuple[int, int]:
    """Tokens of text that a chunk may have, and what Ollama counts on top: two specials for an embedding model."""
    if not card.embeds or applied.embeds is None:
        return _number(body, "max_tokens", None, least=1), 0
    limit = applied.embeds
    asked = _number(body, "max_tokens", limit.tokens, least=EMBED_SPECIALS + 1)
    if asked > limit.tokens:
        raise _bad(f"{card.name} takes at most {limit.tokens} tokens of one input ({limit.by})", "max_tokens")
    return asked - EMBED_SPECIALS, EMBED_SPECIALS


def _number(body: Json, field: str, default: int | None, *, least: int) -> int:
    value = body.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _bad(f"{field} is a whole number of tokens, at least {least}", field)
    return value


def _bad(what: str, field: str) -> Refused:
    shape = '{"model": "name", "text": "what to cut", "max_tokens": 512, "overlap": 0}'
    return Refused(Refusal(400, "invalid_request", f"{what}; send {shape}", param=field))


async def _cut(counter: Counter, card: ModelCard, text: str, most: int, overlap: int) -> list[Chunk]:
    def begin(meter: Meter) -> Iterator[Chunk]:
        return chunks(text, meter.inputs, most=most, overlap=overlap)

    def some(_: Meter) -> list[Chunk]:
        made: list[Chunk] = []
        until = perf_counter() + _TURN
        for chunk in making:
            made.append(chunk)
            if perf_counter() >= until:
                break
        return made

    making = await counter.work(card, begin)
    found: list[Chunk] = []
    spent = 0.0
    while True:
        began = perf_counter()
        made = await counter.work(card, some)
        if not made:
            return found
        found += made
        spent += perf_counter() - began
        if spent > _LONGEST or len(found) > _MOST:
            raise Refused(_too_much(len(found), found[-1].end, len(text)))


def _too_much(made: int, end: int, characters: int) -> Refusal:
    return Refusal(
        413,
        "too_many_chunks",
        f"{made} chunks took the first {end} of this text's {characters} characters: one request makes at most {_MOST} "
        f"chunks, within {_LONGEST:.0f} s. Ask for larger chunks, or send the text in parts.",
        param="text",
        details={"limit_chunks": _MOST, "limit_seconds": _LONGEST},
        headers={"x-should-retry": "false"},
    )
