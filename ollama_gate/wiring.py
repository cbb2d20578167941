"""One configuration's parts, put together: upstream, catalog, tokenizers, counter, pipeline.

A reload makes a new wiring beside the old one. Requests under way keep theirs, and it is taken down when the last of
them is done.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from structlog.typing import FilteringBoundLogger

from ollama_gate import refusals
from ollama_gate.admitting import GUARD_EVERY, Admission
from ollama_gate.asking import Asker, NothingLoaded
from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.catalog import Catalog
from ollama_gate.catalog.versions import Features
from ollama_gate.compaction.compactor import Compactor
from ollama_gate.compaction.meanings import Meanings
from ollama_gate.compaction.remembered import RememberedCheckpoints
from ollama_gate.config import Config
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.learned import LearnedBook, place
from ollama_gate.counting.policy import CountingPolicy
from ollama_gate.counting.store import TokenizerStore
from ollama_gate.counting.trust import DriftKind, Trust
from ollama_gate.embedding import Embedder
from ollama_gate.errors import Refused, RenderError, TemplateRefused, UpstreamError
from ollama_gate.observe.logwatch import LogWatch
from ollama_gate.observe.metrics import Metrics
from ollama_gate.pipeline import Pipeline
from ollama_gate.policies import Applied
from ollama_gate.refused_before import RefusedBefore
from ollama_gate.requests import Control, InferenceRequest, Rung
from ollama_gate.settle import Settler
from ollama_gate.shortening import Shortener
from ollama_gate.tasks import spawn
from ollama_gate.tokenizers import CardTokenizers
from ollama_gate.upstream.client import Upstream, UpstreamSettings
from ollama_gate.window import Window

if TYPE_CHECKING:
    from ollama_gate.archive.keeper import Keeper

LOOK_EVERY: Final = 10.0
"""Seconds between two looks whether Ollama is there."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """What is a fact of the one Ollama and its clients, whatever the configuration, and outlives a reload."""

    admission: Admission
    """Who holds slots and memory, and who waits for them."""
    book: LearnedBook
    store: TokenizerStore
    """Tokenizers that are loaded."""
    refused: RefusedBefore
    archive: "Keeper | None"
    checkpoints: RememberedCheckpoints
    """Those of a gate without an archive."""
    settler: Settler


class Wiring:
    """Everything that depends on the configuration."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
        lasting: Lasting | None = None,
    ) -> None:
        """Put the parts together; `open` connects them. `lasting` is what goes on from the configuration before."""
        self.config = config
        self.users = 0
        """Requests that use this wiring."""
        self._retired: asyncio.Event | None = None
        """Set when its last request is done, once it has been replaced."""
        self._before: asyncio.Task[None] | None = None
        """Takes down the one before, whose requests may use what this one has of it."""
        self.up = False
        self.problem: str | None = None
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self.upstream = Upstream(
            UpstreamSettings(
                url=config.upstream.url,
                connect_timeout=config.upstream.connect_timeout,
                idle_timeout=config.upstream.idle_timeout,
                max_connections=config.upstream.max_connections,
                forward_authorization=config.upstream.forward_authorization,
            )
        )
        self.catalog = Catalog(self.upstream, clock=clock)
        self._asker = asker = Asker(self.upstream, self.catalog)
        self._store = _store(config, clock, lasting)
        path = place(config.counting.cache_dir, config.upstream.url)
        self._book = lasting.book if lasting is not None and lasting.book.path == path else LearnedBook(path)
        self.counter = Counter(
            CardTokenizers(self._store, self.catalog, lambda card: config.model_policy(card.key).tokenizer),
            ask=self._ask,
            probe=self._probe,
            loaded=asker.loaded,
            version=lambda: self.catalog.version,
            report=self._drifted,
            demoted=self._demoted,
            policy=CountingPolicy(
                ask_upstream=config.counting.ask_upstream,
                timeout=config.counting.count_timeout,
                refuse_unknown=config.counting.unknown_vocabulary == "refuse",
                margin=config.counting.estimate_margin,
            ),
            book=self._book,
            clock=clock,
            threads=config.counting.threads,
        )
        if lasting is None:
            admission = Admission(
                config, upstream=self.upstream, catalog=self.catalog, metrics=metrics, log=log, clock=clock
            )
        else:
            admission = lasting.admission
            admission.configure(config, upstream=self.upstream, catalog=self.catalog)
        self.admission = admission
        archive = lasting.archive if lasting is not None else None
        goes_on = archive is not None and config.archive.enabled and archive.section == config.archive
        self.archive = archive if goes_on else _archive(config, metrics, log)
        self._archive_goes_on = False
        self._store_goes_on = False
        self._guard: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.logwatch = _logwatch(config, metrics, log)
        self._following: asyncio.Task[None] | None = None
        self._remembered = lasting.checkpoints if lasting is not None else RememberedCheckpoints()
        self.compactor = Compactor(
            config.compaction,
            counter=self.counter,
            # In the archive another gate finds them.
            checkpoints=self.archive if self.archive is not None else self._remembered,
            archive=self.archive,
            meanings=self._meanings(config),
        )
        self.settler = lasting.settler if lasting is not None else Settler(metrics, log, clock)
        self.pipeline = Pipeline(
            config,
            upstream=self.upstream,
            catalog=self.catalog,
            counter=self.counter,
            admission=admission,
            settler=self.settler,
            shortener=Shortener(self.compactor, metrics, clock),
            clock=clock,
            refused_before=lasting.refused if lasting is not None else RefusedBefore(),
        )
        self.catalog.changed.append(self.pipeline.judge.models_changed)
        self.catalog.changed.append(self._warn_of_version)
        self._warned = ""

    def _meanings(self, config: Config) -> Meanings | None:
        """What compares texts by meaning, where an embedding model is configured."""
        model = config.compaction.embed_model
        if model is None:
            return None
        embed = Embedder(
            model,
            card=self.local,
            applied=self._applied,
            counter=self.counter,
            admission=self.admission,
            upstream=self.upstream,
        )
        return Meanings(embed, patience=config.compaction.deadline / 3)

    def _applied(self, card: ModelCard) -> Applied:
        return self.pipeline.policies.for_card(card)

    async def open(self) -> None:
        """Open the connection pool."""
        await self.upstream.__aenter__()
        await self._book.load()
        if self.archive is not None:
            self.archive.start()
        self._guard = spawn(self.admission.gatekeeper.guard(GUARD_EVERY), name="guard")
        self._looking = spawn(self._look_again(), name="watch ollama")
        self._keeping = spawn(self._book.keep(), name="keep what was learned")
        if self.logwatch is not None:
            self._following = spawn(self.logwatch.follow(), name="ollama's log")

    async def close(self) -> None:
        """Take everything down."""
        for task in (self._guard, self._looking, self._keeping, self._following):
            if task is not None:
                task.cancel()
        self.settler.catch_up()
        await self.compactor.close()
        if self._following is not None:
            await asyncio.wait({self._following})
        if self.archive is not None and not self._archive_goes_on:
            await self.archive.close()
        self.counter.close()
        await self._book.save()
        if not self._store_goes_on:
            await self._store.close()
        await self.upstream.__aexit__(None, None, None)

    async def replaced(self, config: Config) -> "Wiring":
        """A wiring for another configuration, open; this one goes when its last request is done."""
        if config.archive.enabled:
            # Its libraries take a third of a second to load, and streams go on meanwhile.
            await asyncio.to_thread(import_module, "ollama_gate.archive.keeper")
        refused = self.pipeline.judge.refused_before
        lasting = Lasting(
            self.admission, self._book, self._store, refused, self.archive, self._remembered, self.settler
        )
        fresh = Wiring(config, self._metrics, self._log, self._clock, lasting)
        if config.upstream.url == self.config.upstream.url:
            fresh.catalog.carry_on(self.catalog)
        self._store_goes_on = fresh._store is self._store
        self._archive_goes_on = fresh.archive is self.archive
        for task in (self._guard, self._looking, self._following):
            if task is not None:
                task.cancel()
        await fresh.open()
        fresh.up = self.up
        fresh._before = spawn(self._retire(), name="old configuration")
        return fresh

    async def _retire(self) -> None:
        if self.users:
            self._retired = asyncio.Event()
            await self._retired.wait()
        if self._before is not None:
            await asyncio.wait({self._before})
        if self._store_goes_on:
            await self._store.built()  # a description that is awaited comes over this upstream
        await self.close()

    def enter(self) -> None:
        """A request begins to use this wiring."""
        self.users += 1

    def leave(self) -> None:
        """A request is done with it."""
        self.users -= 1
        if self._retired is not None and not self.users:
            self._retired.set()

    @property
    def features(self) -> Features:
        """What is true of the Ollama that was met last."""
        return Features.of(self.catalog.version)

    async def look_at_upstream(self) -> bool:
        """Ask Ollama for its version, note whether it answers, and say so when that has changed."""
        before = self.up
        try:
            told = await self.upstream.get_json("/api/version", within=5.0)
            self.up, self.problem = True, None
            if before is False:
                self.catalog.forget()
            self.catalog.met(told)
        except UpstreamError as failure:
            self.up, self.problem = False, str(failure)
        self._metrics.upstream_up.set(self.up)
        if before != self.up:
            if self.up:
                self._log.info("ollama answers", url=self.config.upstream.url, version=self.catalog.version)
            else:
                self._log.warning("ollama does not answer", url=self.config.upstream.url, problem=self.problem)
        return self.up

    async def _look_again(self) -> None:
        """Know, and tell, that Ollama has gone or come back, whether or not anybody asks."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self.look_at_upstream()

    async def local(self, model: str) -> ModelCard:
        """The card of a model that runs on the Ollama behind this gate.

        Raises:
            Refused: 400 for what is no name or runs in the cloud, 404 where there is no such model.
            UpstreamError: Ollama does not answer.
        """
        card = await self.catalog.card(model)
        if card is None or card.mode is Mode.REMOTE:
            raise Refused(refusals.not_counted(model, remote=card is not None))
        return card

    def _warn_of_version(self) -> None:
        """Say it once when this Ollama cannot be told not to cut."""
        warning = self.features.warning
        if warning and warning != self._warned:
            self._log.warning("ollama cuts silently", version=self.catalog.version, why=warning)
        self._warned = warning

    async def _ask(self, request: InferenceRequest, card: ModelCard, room: Window) -> str:
        """Ask Ollama for the text of a prompt; a model that has to be loaded for it is let in as for a preload."""
        applied = self.pipeline.policies.for_card(card)
        async with self.admission.lease(card, applied, "", Control.LOAD) as lease:
            try:
                text = await self._asker.ask(request, room)
            except TemplateRefused:
                lease.answered()
                raise
            except NothingLoaded:
                lease.failed()
                raise
            lease.answered()
            return text

    async def _probe(self, request: InferenceRequest, card: ModelCard, room: Window) -> str:
        """The same as long as the model is loaded: for a comparison that can wait no other model is unloaded."""
        if not self.admission.holds(card, self.pipeline.policies.for_card(card)):
            raise RenderError(f"{card.name} is not loaded any more")
        return await self._ask(request, card, room)

    def _drifted(self, card: ModelCard, rung: Rung, kind: DriftKind, drift: float | None) -> None:
        metrics = self._metrics
        model = metrics.model(card.key)
        metrics.drift.by[model, str(kind)].value += 1
        if drift is not None:
            metrics.drift_ratio.by[model, str(rung)].observe(drift)

    def _demoted(self, card: ModelCard, trust: Trust) -> None:
        self.catalog.doubt(card)
        self._metrics.demotions.labels(self._metrics.model(card.key)).inc()
        self._log.warning(
            "counts of this model are not exact",
            model=card.key,
            why=trust.why,
            rendering=trust.rendering,
            vocabulary=trust.vocabulary,
            bound=trust.bound,
        )


def _archive(config: Config, metrics: Metrics, log: FilteringBoundLogger) -> "Keeper | None":
    """The archive, where it is switched on; its libraries are loaded then only."""
    if not config.archive.enabled:
        return None
    from ollama_gate.archive.keeper import Keeper  # noqa: PLC0415

    return Keeper(config.archive, metrics=metrics, log=log)


def _store(config: Config, clock: Callable[[], float], lasting: Lasting | None) -> TokenizerStore:
    """The tokenizers that are loaded already, where they are kept in the same place, else none."""
    counting = config.counting
    if lasting is None or lasting.store.cache != counting.cache_dir:
        return TokenizerStore(counting.cache_dir, counting.tokenizer_memory, clock)
    lasting.store.memory_limit = counting.tokenizer_memory
    return lasting.store


def _logwatch(config: Config, metrics: Metrics, log: FilteringBoundLogger) -> LogWatch | None:
    """Who reads Ollama's log, where it is named."""
    source = config.upstream.log
    if source is None:
        return None
    passes = config.dialects.server_tools == "pass"
    return LogWatch(source, upstream=config.upstream.url, metrics=metrics, log=log, passes_v1=passes)
