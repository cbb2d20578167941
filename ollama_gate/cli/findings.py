"""What `ollama-gate check` finds: pure rules over a configuration and what Ollama says of itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ollama_gate.admission.demand import Demand
from ollama_gate.admission.holdings import MemoryPolicy
from ollama_gate.admission.launching import launch_plan, memory_policy
from ollama_gate.admission.ledger import Ledger
from ollama_gate.admission.memory import LaunchPlan, launch_faults
from ollama_gate.admission.memory_rules import CELL_PADDING
from ollama_gate.admission.metadata import UnknownShape
from ollama_gate.admission.shapes import ModelShape, shape_from_show
from ollama_gate.catalog.card import ModelCard
from ollama_gate.catalog.names import canonical, display
from ollama_gate.catalog.versions import Features
from ollama_gate.config import Config, ModelPolicy
from ollama_gate.config.units import format_size, in_gib
from ollama_gate.policies import Policies

_LEAST_LIMIT: Final = 64 * 1024**2
"""Bytes; a limit below is a slip of the pen."""
_AGENTS_GIVE_UP: Final = 300.0
"""Seconds after which coding agents send a request that was not answered again."""


class Level(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The gate cannot keep a promise."""
    WARNING = "warning"
    """It can, but not as the operator may think; `--strict` fails on it."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth saying, with what to do about it."""

    level: Level
    about: str
    """A model, a key or "Ollama"."""
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model, as /api/ps tells of it."""

    name: str
    context_length: int | None
    """Its window in tokens; None from an Ollama that does not tell."""
    size_vram: int = 0
    """Bytes of it that lie in video memory."""
    size: int = 0
    """Bytes of it altogether."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What Ollama says of itself."""

    version: str
    cards: tuple[ModelCard, ...]
    resident: tuple[Resident, ...] = ()
    unheard: str = ""
    """Why it is not known, or not of all, what is loaded."""
    machine: int = 0
    """Bytes of memory that this machine has."""

    def gpus(self, config: Config) -> int:
        """Over how many GPUs models are spread, as configured or as far as is seen."""
        seen = any(resident.size_vram for resident in self.resident)
        return int(seen) if config.memory.gpus == "auto" else config.memory.gpus

    @property
    def revision(self) -> int:
        """0 always, because what was seen does not change (`policies.Cards`)."""
        return 0

    def sharing(self, card: ModelCard) -> list[ModelCard]:
        """The names over the same file of weights, this one among them."""
        return [other for other in self.cards if other.runner == card.runner]


def examine(config: Config, seen: Seen | None) -> list[Finding]:
    """Everything worth saying, the worst first and what is put right alike together.

    Without `seen`, the configuration alone is examined.
    """
    findings = list(_configuration(config))
    if seen is None:
        findings += _declared_in_file(config)
    else:
        features = Features.of(seen.version)
        findings += _version(features)
        findings += _unheard(seen)
        policies = Policies(config, lambda: features, seen)
        findings += _models(config, policies, seen)
        findings += _shared(policies, seen)
        findings += _windows(policies, seen)
        findings += _memory(config, policies, seen)
    return in_order(findings)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The worst first, and what is put right alike together."""
    order = list(Level)
    return sorted(findings, key=lambda finding: (order.index(finding.level), finding.fix, finding.about))


def _configuration(config: Config) -> Iterator[Finding]:
    limit = config.memory.limit
    if isinstance(limit, int) and limit < _LEAST_LIMIT:
        fix = f'limit = "{limit}GiB", if that was meant' if 0 < limit <= 4096 else 'write it with its unit, "24GiB"'
        what = f"{format_size(limit)} is less than any model takes: every request would be refused"
        yield Finding(Level.ERROR, "memory.limit", what, fix)
    for name in ["", *config.models]:
        policy, about = config.model_policy(name), display(name) if name else "[defaults]"
        own = config.models.get(name, config.defaults)
        if policy.num_ctx % CELL_PADDING and "num_ctx" in own.model_fields_set:
            rounded = -(-policy.num_ctx // CELL_PADDING) * CELL_PADDING
            what = (
                f"num_ctx {policy.num_ctx} is not a multiple of {CELL_PADDING}: llama-server keeps memory for {rounded}"
            )
            yield Finding(Level.NOTE, about, what, f"num_ctx = {rounded} costs nothing more")
        if policy.shift and "shift" in own.model_fields_set:
            what = "shift = true: Ollama drops the start of the conversation when an answer reaches the window's end"
            yield Finding(Level.WARNING, about, what, "shift = false ends the answer there instead")
        if policy.tokenizer is not None and "tokenizer" in own.model_fields_set and not policy.tokenizer.exists():
            yield Finding(Level.ERROR, about, f"the tokenizer {policy.tokenizer} does not exist", "correct its path")
    if config.queue.deadline >= _AGENTS_GIVE_UP:
        what = f"agents give up after {_AGENTS_GIVE_UP:g} s and send everything again, which makes the queue longer"
        yield Finding(Level.WARNING, "queue.deadline", what, 'stay below that: deadline = "240s"')
    compacts = any(config.model_policy(name).compaction for name in ["", *config.models])
    if compacts and not config.archive.enabled:
        what = "compaction leaves messages out, and they are kept nowhere"
        yield Finding(Level.NOTE, "archive.enabled", what, "archive.enabled = true, if they are to be looked up")
    if config.archive.enabled and not compacts:
        what = "the archive stays empty: no model has compaction = true"
        yield Finding(Level.NOTE, "archive.enabled", what, "compaction = true for a model, or archive.enabled = false")
    if not config.server.address.loopback:
        yield from _reachable(config)


def _reachable(config: Config) -> Iterator[Finding]:
    """What follows from an address that other machines can reach."""
    listen = config.server.listen
    if config.server.open:
        what = f"{listen} can be reached from other machines; without keys the gate asks nobody who they are"
        yield Finding(Level.WARNING, "server.open", what, "ollama-gate keys add NAME; then open = false")
    else:
        what = f"{listen} can be reached from other machines: the gate starts with keys only"
        yield Finding(Level.NOTE, "server.listen", what, "ollama-gate keys add NAME, once for each client")
    if config.server.tls_cert is None:
        what = f"what goes to {listen}, keys included, can be read on the way"
        yield Finding(Level.NOTE, "server.tls_cert", what, "name a certificate, or let a proxy speak HTTPS")


def _missing(policy: ModelPolicy, *, embeds: bool = False) -> str:
    missing = [] if policy.num_ctx_declared else ["num_ctx"]
    if not policy.budget_declared and not embeds:  # the limit of an embedder is its window
        missing.append("budget")
    return " and ".join(missing)


def _declared_in_file(config: Config) -> Iterator[Finding]:
    for name in config.models:
        if missing := _missing(config.model_policy(name)):
            yield _undeclared(display(name), missing, "")
    if missing := _missing(config.model_policy("")):
        what = f"declares no {missing}: a model without a section of its own is guarded by the defaults"
        yield Finding(Level.NOTE, "[defaults]", what, f"declare {missing} there or for each model")


def _undeclared(name: str, missing: str, now: str) -> Finding:
    fix = f'declare {missing} under [models."<name>"] or [defaults]'
    return Finding(Level.WARNING, name, f"{missing} not declared{now}", fix)


def _version(features: Features) -> Iterator[Finding]:
    version = features.version
    if not features.released:
        yield Finding(Level.NOTE, "Ollama", f"version {version!r} is no release", "expect what a current release does")
    elif not features.obeys:
        what = f"version {version} ignores truncate and shift: only the gate's own count stands before a cut prompt"
        yield Finding(Level.ERROR, "Ollama", what, "update Ollama to 0.12.6 or later; 0.30 or later is best")
    elif not features.one_embed_error:
        what = f"version {version} words its embedding errors differently"
        yield Finding(Level.NOTE, "Ollama", what, "update Ollama to 0.13.3 or later; 0.30 or later is best")


def _unheard(seen: Seen) -> Iterator[Finding]:
    if seen.unheard:
        what = f"does not say what is loaded ({seen.unheard}): with a memory.limit the gate loads no model then"
        yield Finding(Level.ERROR, "Ollama", what, "look at its log; is something between it and here?")


def _models(config: Config, policies: Policies, seen: Seen) -> Iterator[Finding]:
    installed = set()
    for card in seen.cards:
        installed.add(card.key)
        applied = policies.for_card(card)
        policy, window = applied.policy, applied.window
        if window is None:
            continue
        if missing := _missing(policy, embeds=card.embeds):
            budget = "" if card.embeds else f", budget {window.budget}"
            yield _undeclared(card.name, missing, f": window {window.num_ctx}{budget}")
        if card.trained is not None and policy.own_num_ctx is not None and policy.own_num_ctx > card.trained:
            what = f"num_ctx {policy.own_num_ctx} is more than the {card.trained} that the model was trained for"
            yield Finding(Level.WARNING, card.name, what, f"num_ctx = {card.trained} is what it gets anyway")
        if isinstance(policy.budget, int) and policy.budget > window.budget:
            what = f"the budget of {policy.budget} does not fit its window of {window.num_ctx}: {window.budget} is used"
            yield Finding(Level.WARNING, card.name, what, 'budget = "80%" leaves room for the answer')
    for key in config.models:
        if key not in installed:
            yield Finding(Level.NOTE, display(key), "is configured and not installed", f"ollama pull {display(key)}")


def _shared(policies: Policies, seen: Seen) -> Iterator[Finding]:
    disputes = {dispute: None for card in seen.cards if (dispute := policies.dispute(card)) is not None}
    for dispute in disputes:
        declared = ", ".join(f"{name} {num_ctx}" for name, num_ctx, _ in dispute.wishes if num_ctx is not None)
        shift = ", ".join(f"{name} shift = {shift}".lower() for name, _, shift in dispute.wishes if shift is not None)
        what = f"share one file of weights, and so one window: {declared or shift} cannot all be had"
        fix = f"all get num_ctx {dispute.num_ctx}, shift {str(dispute.shift).lower()}: declare the same for each"
        yield Finding(Level.WARNING, ", ".join(name for name, *_ in dispute.wishes), what, fix)


def _windows(policies: Policies, seen: Seen) -> Iterator[Finding]:
    cards = {card.key: card for card in seen.cards}
    for resident in seen.resident:
        card = cards.get(canonical(resident.name))
        window = policies.for_card(card).window if card is not None else None
        if window is not None and resident.context_length not in {None, window.num_ctx}:
            what = f"is loaded with a window of {resident.context_length}, and the gate gives it {window.num_ctx}"
            fix = "something else talks to Ollama, or the configuration changed: the next request here reloads it"
            yield Finding(Level.WARNING, resident.name, what, fix)


def _memory(config: Config, policies: Policies, seen: Seen) -> Iterator[Finding]:
    gpus = seen.gpus(config)
    policy = memory_policy(config, machine=seen.machine, gpus=gpus)
    if config.memory.limit == "auto":
        if not policy.limit:
            what = "auto leaves nothing for models: the machine, or the gate's control group, has less than the reserve"
            yield Finding(Level.ERROR, "memory.limit", what, "name the limit, or lower memory.reserve")
        elif gpus and not policy.counts_host:
            what = "auto is the memory of the machine, and the models lie in that of the GPU"
            yield Finding(Level.WARNING, "memory.limit", what, "name what the GPUs have, less some for their drivers")
    for card in seen.cards:
        applied = policies.for_card(card)
        window = applied.window
        if window is None or not card.show:
            continue
        try:
            shape = shape_from_show(card.show, card.size or None)
        except UnknownShape as odd:
            fix = "it is booked at one and a half times its file"
            yield Finding(Level.NOTE, card.name, f"its memory cannot be worked out: {odd}", fix)
            continue
        plan = launch_plan(config, window.num_ctx, applied.num_batch, applied.draft_tokens, gpus=gpus)
        for fault in launch_faults(shape, plan):
            fix = (
                "Ollama cannot load it like that: change OLLAMA_KV_CACHE_TYPE or OLLAMA_FLASH_ATTENTION there, and here"
            )
            yield Finding(Level.ERROR, card.name, fault, fix)
        yield from _takes(card.name, shape, plan, policy)


def _takes(name: str, shape: ModelShape, plan: LaunchPlan, policy: MemoryPolicy) -> Iterator[Finding]:
    demand = Demand.of(shape, plan)
    for note in demand.footprint.notes:
        yield Finding(Level.NOTE, name, note, "its memory is booked by what is assumed here")
    ledger = Ledger(policy)
    if policy.limit is None or not ledger.impossible(demand):
        return
    size, limit = in_gib(ledger.cost(demand.footprint)), in_gib(policy.limit)
    slots = "1 slot" if demand.slots == 1 else f"{demand.slots} slots"
    what = f"never fits: with a window of {demand.num_ctx} and {slots} it takes {size}, and memory.limit is {limit}"
    why = ledger.alone(demand, policy.limit)
    if why.for_host_cache:
        fix = (
            f"{in_gib(why.host_cache)} of it are old prompts that llama-server may keep: set LLAMA_ARG_CACHE_RAM for "
            "Ollama and memory.host_cache_per_model to less, or raise"
        )
    elif why.largest_ever:
        fix = f"num_ctx = {why.largest_ever} or less, or raise"
    else:
        fix = "no window makes it fit: raise"
    yield Finding(Level.ERROR, name, what, f"{fix} memory.limit; `ollama-gate plan` shows what fits")


def must_be_put_right(findings: Sequence[Finding], *, strict: bool) -> bool:
    """Whether the command fails: for an error, and where it is strict for a warning too."""
    bad = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    return any(finding.level in bad for finding in findings)
