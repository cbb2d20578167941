"""Which models Ollama has, and their cards: fetched once a digest, and never trusted for long by name.

A name can get another model under it at any time (`pull`, `create`, `copy`), so every lookup rests on a listing that is
at most seconds old, and cards are kept by digest.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import orjson

from ollama_gate.catalog.card import Mode, ModelCard, card_from_show
from ollama_gate.catalog.names import InvalidName, canonical, display, is_cloud
from ollama_gate.errors import UpstreamBroken, UpstreamError
from ollama_gate.requests import Json
from ollama_gate.tasks import spawn

FRESH: Final = 5.0
"""Seconds for which a listing is taken as it is."""
STALE: Final = 60.0
"""Seconds up to which an older listing is still used while a new one is fetched and does not come within `MOMENT`."""
MOMENT: Final = 0.1
"""Seconds for which a new listing is waited for where there is an older one; it takes a few milliseconds."""
_CARDS: Final = 512
_ALIKE: Final = 1024**2
"""Bytes by which two models over one file of weights may differ at most: template, license, parameters."""
_MOST_ALIKE: Final = 64


class Ollama(Protocol):
    """What the catalog asks of Ollama."""

    async def get_json(self, path: str, *, within: float = ...) -> Any:
        """Read a JSON document; None when Ollama answers with an error."""
        ...

    async def exchange(self, method: str, path: str, payload: Json | None, *, within: float) -> tuple[int, bytes]:
        """Send a request and read status and body."""
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of /api/tags."""

    name: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All models of one moment, by canonical name."""

    models: dict[str, Listed]
    at: float
    """Seconds of the catalog's clock."""
    raw: bytes | None = None
    """/api/tags as Ollama wrote it; None when it answered with an error."""


_Read = dict[tuple[str, str], ModelCard | UpstreamError | None]
"""What was read, by canonical name and digest; None where Ollama has no such model any more."""


class Catalog:
    """Cards of the models of one Ollama. It runs on one event loop and needs no lock."""

    def __init__(self, ollama: Ollama, *, clock: Callable[[], float]) -> None:
        """Start empty; nothing is asked before the first lookup.

        Args:
            ollama: where to ask.
            clock: steady seconds.
        """
        self._ollama = ollama
        self._clock = clock
        self._listing: Listing | None = None
        self._listing_task: asyncio.Task[Listing] | None = None
        self._cards: dict[tuple[str, str], ModelCard] = {}
        self._card_tasks: dict[tuple[str, str], asyncio.Task[_Read]] = {}
        self._spelled: dict[str, str] = {}
        self._generation = 0
        self.revision = 0
        """Changes with everything that `sharing` may answer."""
        self.version: str | None = None
        """Ollama's version, once it has answered."""
        self.changed: list[Callable[[], None]] = []
        """Called when a listing shows that a model was added, replaced or removed, or Ollama itself."""

    def carry_on(self, before: "Catalog") -> None:
        """Begin with what another catalog of the same Ollama knows, its listing no fresher than it is there."""
        self._listing, self._cards = before._listing, before._cards.copy()  # noqa: SLF001 - one of its own kind
        self.version = before.version
        self.revision += 1

    def key(self, name: str) -> str:
        """The canonical name of a spelling.

        Raises:
            InvalidName: Ollama would not accept it.
        """
        found = self._spelled.get(name)
        if found is None:
            found = canonical(name)
            if len(self._spelled) > 4 * _CARDS:
                self._spelled.clear()
            self._spelled[name] = found
        return found

    def at_hand(self, name: str) -> ModelCard | None:
        """The card of a model if it can be had without asking Ollama; the path of nearly every request."""
        listing = self._listing
        if listing is None or self._clock() - listing.at > FRESH:
            return None
        key = self._spelled.get(name)
        if key is None:
            try:
                key = self.key(name)
            except InvalidName:
                return None
        listed = listing.models.get(key)
        return None if listed is None else self._cards.get((key, listed.digest))

    async def card(self, name: str) -> ModelCard | None:
        """The card of a model, asking Ollama where needed; None when Ollama has no such model.

        Raises:
            InvalidName: Ollama would not accept the name.
            UpstreamError: Ollama does not answer.
        """
        card = self.at_hand(name)
        if card is not None:
            return card
        key = self.key(name)
        listing = await self._current_listing()
        listed = listing.models.get(key)
        if listed is None and (listing.raw is None or self._clock() - listing.at > 1.0):
            listing = await self._fetch_listing()
            listed = listing.models.get(key)
        if listed is None and listing.raw is None:
            raise UpstreamBroken("Ollama answers /api/tags with an error, so that its models are not known")
        if listed is None:
            return _cloud_card(key, name) if is_cloud(name) else None
        found = self._cards.get((key, listed.digest))
        return found if found is not None else await self._fetch_card(key, listed, listing)

    async def fresh_card(self, name: str) -> ModelCard | None:
        """The same by a listing that is fresh, for whoever is told of a model rather than served by it.

        Raises:
            InvalidName: Ollama would not accept the name.
            UpstreamError: Ollama does not answer.
        """
        await self._fresh_listing()
        return await self.card(name)

    async def tags(self) -> bytes | None:
        """The answer of /api/tags, at most `FRESH` seconds old; None when Ollama answers with an error.

        Raises:
            UpstreamError: Ollama does not answer.
        """
        return (await self._fresh_listing()).raw

    def last_known(self, name: str) -> ModelCard | None:
        """The card of a model as of the last listing, however old; None when it was never read."""
        listing = self._listing
        if listing is None:
            return None
        try:
            key = self.key(name)
        except InvalidName:
            return None
        listed = listing.models.get(key)
        return None if listed is None else self._cards.get((key, listed.digest))

    def known(self) -> list[ModelCard]:
        """The cards that are at hand now, without asking; for status pages."""
        listing = self._listing
        if listing is None:
            return []
        pairs = [(key, row.digest) for key, row in listing.models.items()]
        return [self._cards[pair] for pair in pairs if pair in self._cards]

    def sharing(self, card: ModelCard) -> list[ModelCard]:
        """The cards of all names over the same file of weights, this one among them.

        It is complete: with a model's card, those of all models are read that may share its file.
        """
        return [other for other in self.known() if other.runner == card.runner] if card.runner else [card]

    async def residents(self) -> list[Json]:
        """The rows of /api/ps: the models that are loaded now.

        Raises:
            UpstreamError: Ollama does not say; that is not to say that nothing is loaded.
        """
        match await self._ollama.get_json("/api/ps"):
            case {"models": list(rows)} if all(isinstance(row, dict) for row in rows):
                return rows
            case None:
                raise UpstreamBroken("Ollama answers /api/ps with an error")
            case _:
                raise UpstreamBroken("Ollama's answer to /api/ps is no list of models")

    async def verbose(self, card: ModelCard) -> bytes:
        """The whole of /api/show with every array, the vocabulary among them: megabytes of JSON, not decoded.

        Raises:
            UpstreamError: Ollama does not answer, or answers with an error.
        """
        body = {"model": card.name, "verbose": True}
        status, raw = await self._ollama.exchange("POST", "/api/show", body, within=60.0)
        if status != 200:
            raise UpstreamBroken(f"/api/show answered {status}")
        return raw

    def met(self, told: Any) -> None:
        """Take over what /api/version says. Another version may describe and render the same model differently."""
        version = told.get("version") if isinstance(told, dict) else None
        if not isinstance(version, str) or version == self.version:
            return
        known, self.version = self.version is not None, version
        if known:
            self.forget()
            return
        self.revision += 1
        for call in self.changed:
            call()

    def forget(self) -> None:
        """Have every model described anew: Ollama may be another one, or have other settings (OLLAMA_GO_TEMPLATE)."""
        self._cards.clear()
        self._card_tasks.clear()
        self.revision += 1
        for call in self.changed:
            call()

    def doubt(self, card: ModelCard) -> None:
        """Read a card again in the background: what was made of it is not what Ollama makes of it."""
        listed = None if self._listing is None else self._listing.models.get(card.key)
        if listed is not None and listed.digest == card.digest:
            spawn(self._read_cards({(card.key, card.digest): listed}), name=f"card of {card.name} again", quiet=True)

    def invalidate(self) -> None:
        """Forget the listing: something was pulled, created, copied or deleted through the gate."""
        self._generation += 1
        self._listing = None
        self._listing_task = None
        for call in self.changed:
            call()

    async def _fresh_listing(self) -> Listing:
        listing = self._listing
        if listing is None or self._clock() - listing.at > FRESH:
            return await self._fetch_listing()
        return listing

    async def _current_listing(self) -> Listing:
        listing = self._listing
        if listing is None:
            return await self._fetch_listing()
        age = self._clock() - listing.at
        if age > STALE:
            return await self._fetch_listing()
        if age > FRESH:
            with suppress(TimeoutError, UpstreamError):
                async with asyncio.timeout(MOMENT):
                    return await self._fetch_listing()
        return listing

    async def _fetch_listing(self) -> Listing:
        # By no name of its own: a failure would know this frame and the frame the failure, and keep a client's body.
        return await asyncio.shield(self._listing_task or self._start_listing())

    def _start_listing(self) -> "asyncio.Task[Listing]":
        task = spawn(self._read_listing(self._generation), name="catalog listing", quiet=True)
        self._listing_task = task
        task.add_done_callback(self._listing_read)
        return task

    def _listing_read(self, task: "asyncio.Task[Listing]") -> None:
        if self._listing_task is task:
            self._listing_task = None

    async def _read_listing(self, generation: int) -> Listing:
        at = self._clock()
        status, raw = await self._ollama.exchange("GET", "/api/tags", None, within=10.0)
        answer = _decoded(raw, "/api/tags") if status == 200 else None
        self.met(await self._ollama.get_json("/api/version"))
        known = self._listing
        # An error says nothing of the models: they are still there, and what is asked of them is still counted.
        models = dict(known.models) if status != 200 and known is not None else {}
        for row in _rows(answer) if status == 200 else ():
            listed = _listed(row)
            if listed is not None:
                models[canonical(listed.name)] = listed
        listing = Listing(models, at, raw if status == 200 else None)
        if generation == self._generation:
            before = self._listing
            self._listing = listing
            self.revision += before is None or before.models != models
            if before is not None and before.models != models:
                for call in self.changed:
                    call()
        return listing

    async def _fetch_card(self, key: str, listed: Listed, listing: Listing) -> ModelCard | None:
        pair = (key, listed.digest)
        task = self._card_tasks.get(pair)
        if task is None:
            alike = {pair: listed}
            for other, row in listing.models.items():
                if len(alike) < _MOST_ALIKE and self._may_share((other, row.digest), row, listed):
                    alike[other, row.digest] = row
            task = spawn(self._read_cards(alike), name=f"card of {listed.name}", quiet=True)
            for each in alike:
                self._card_tasks[each] = task
            task.add_done_callback(lambda _: [self._card_tasks.pop(each, None) for each in alike])
        found = (await asyncio.shield(task))[pair]
        if isinstance(found, UpstreamError):
            raise found.anew()
        return found

    def _may_share(self, pair: tuple[str, str], row: Listed, listed: Listed) -> bool:
        """Whether a model that is still unknown may lie over the same file as another."""
        near = abs(row.size - listed.size) <= _ALIKE
        return near and pair not in self._cards and pair not in self._card_tasks and not is_cloud(row.name)

    async def _read_cards(self, rows: Mapping[tuple[str, str], Listed]) -> _Read:
        """Read several cards; they become known together, so that nobody sees one name of a file without the others."""
        read = dict(zip(rows, await asyncio.gather(*(self._read_card(*row) for row in rows.items())), strict=True))
        for pair, card in read.items():
            if isinstance(card, ModelCard):
                if len(self._cards) >= _CARDS:
                    self._cards.pop(next(iter(self._cards)))
                self._cards[pair] = card
        self.revision += 1
        return read

    async def _read_card(self, pair: tuple[str, str], listed: Listed) -> ModelCard | UpstreamError | None:
        try:
            status, raw = await self._ollama.exchange("POST", "/api/show", {"model": listed.name}, within=30.0)
            show = _decoded(raw, "/api/show") if status == 200 else None
        except UpstreamError as failure:
            return failure.anew()  # the others may be had all the same
        if status == 404:
            return None  # it was removed after it was listed
        if not isinstance(show, dict):
            said = "" if status == 200 else f": {raw[:200].decode(errors='replace')}"
            return UpstreamBroken(f"Ollama lists {listed.name} but does not describe it (/api/show, {status}{said})")
        card = card_from_show(pair[0], listed.name, listed.digest, show, size=listed.size)
        return replace(card, mode=Mode.REMOTE) if is_cloud(listed.name) else card


def _decoded(raw: bytes, path: str) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as bad:
        raise UpstreamBroken(f"Ollama's answer to {path} is not JSON") from bad


def _rows(answer: Any) -> list[Any]:
    """The list of models in an answer of /api/tags; null is how Go writes an empty one."""
    match answer:
        case {"models": list(rows)}:
            return rows
        case {"models": None}:
            return []
        case _:
            raise UpstreamBroken("Ollama's answer to /api/tags is no list of models")


def _listed(row: Any) -> Listed | None:
    if not isinstance(row, dict):
        return None
    name, digest, size = row.get("model") or row.get("name"), row.get("digest"), row.get("size")
    if not isinstance(name, str) or not isinstance(digest, str):
        return None
    try:
        canonical(name)
    except InvalidName:
        return None
    return Listed(name, digest, size if isinstance(size, int) else 0)


def _cloud_card(key: str, name: str) -> ModelCard:
    return ModelCard(key=key, name=display(name), digest="", mode=Mode.REMOTE)
