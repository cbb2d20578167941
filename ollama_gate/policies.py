"""Windows and wishes by model: the configuration applied to what Ollama says of each model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.versions import Features
from ollama_gate.config import Config, ModelPolicy
from ollama_gate.requests import LOAD_OPTIONS
from ollama_gate.window import SMALLEST_DEFAULT_NUM_CTX, EmbedLimit, Window, Wish, embed_limit, resolve


@dataclass(frozen=True, slots=True)
class Applied:
    """What one model gets."""

    policy: ModelPolicy
    window: Window | None
    """None for cloud models, whose window is not the gate's to set."""
    embeds: EmbedLimit | None
    """The limit of each input, for embedding models."""
    num_batch: int | None = None
    """Tokens that are evaluated at a time, where the operator or a Modelfile says so."""
    draft_tokens: int = 0
    """Tokens that the model drafts ahead by itself; only where its Modelfile says so (`draft_num_predict`)."""

    shifts: bool = field(init=False)
    """Whether the operator allows Ollama to drop the oldest half when the window is full."""

    def __post_init__(self) -> None:
        """Have at hand what every request asks for."""
        object.__setattr__(self, "shifts", self.window is not None and self.window.shift)


@dataclass(frozen=True, slots=True)
class Dispute:
    """Names over one file of weights for which different things are declared; they can only get one."""

    wishes: tuple[tuple[str, int | None, bool | None], ...]
    """(name, declared num_ctx, declared shift), None where nothing is."""
    num_ctx: int
    """What all of them get."""
    shift: bool


class Cards(Protocol):
    """Who shares a file of weights, and so a runner, with whom."""

    @property
    def revision(self) -> int:
        """Another number when `sharing` may answer differently."""
        ...

    def sharing(self, card: ModelCard) -> Sequence[ModelCard]:
        """All names over the same file, this one among them."""
        ...


class Alone:
    """Every name has a file of its own."""

    revision = 0

    def sharing(self, card: ModelCard) -> Sequence[ModelCard]:
        """Only itself."""
        return [card]


class Policies:
    """The wishes of one configuration, applied to cards; each (name, digest) is worked out once for one Ollama."""

    def __init__(
        self,
        config: Config,
        features: Callable[[], Features] = lambda: Features.of(None),
        cards: Cards | None = None,
        disputed: Callable[[Dispute], object] = lambda _: None,
    ) -> None:
        """Apply this configuration; a changed one gets a new instance.

        Args:
            config: What the operator declared.
            features: What is true of the Ollama there now.
            cards: Who shares a runner: one runner has one window. Nobody, when it is not given.
            disputed: Told once of each runner for which different windows are declared.
        """
        self._config = config
        self._features = features
        self._cards = cards or Alone()
        self._disputed = disputed
        self._told: set[Dispute] = set()
        self._revision = -1
        self._applied: dict[tuple[str, str, str], Applied] = {}
        """By canonical name, digest and Ollama's version."""

    def for_card(self, card: ModelCard) -> Applied:
        """What this model gets."""
        if self._revision != self._cards.revision or len(self._applied) > 1024:
            self._applied.clear()
            self._revision = self._cards.revision
        key = (card.key, card.digest, self._features().version)
        found = self._applied.get(key)
        if found is None:
            found = self._applied[key] = self._apply(card)
            if (dispute := self.dispute(card)) is not None and dispute not in self._told:
                self._told.add(dispute)
                self._disputed(dispute)
        return found

    def unknown(self, key: str) -> Applied:
        """What a model gets that Ollama does not list: the request goes on with it and Ollama says no."""
        policy = self._config.model_policy(key)
        wish = Wish(policy.own_num_ctx, policy.budget, policy.shift)
        window = resolve(wish, modelfile_num_ctx=None, default_num_ctx=policy.num_ctx, trained=None, vision=False)
        return Applied(policy, window, None)

    def dispute(self, card: ModelCard) -> Dispute | None:
        """What is declared differently for the names over this model's file; None when nothing is."""
        sharing = sorted(self._sharing(card), key=lambda other: other.name)
        policies = [self._config.model_policy(other.key) for other in sharing]
        windows, shifts = _own(policies)
        if len(set(windows) - {None}) < 2 and len(set(shifts) - {None}) < 2:
            return None
        declared, otherwise, shift = self._wish(card)
        wishes = zip((other.name for other in sharing), windows, shifts, strict=True)
        return Dispute(tuple(wishes), declared or otherwise, shift)

    def _sharing(self, card: ModelCard) -> Sequence[ModelCard]:
        sharing = [other for other in self._cards.sharing(card) if other.mode is not Mode.REMOTE]
        return sharing if any(other.key == card.key for other in sharing) else [card, *sharing]

    def _wish(self, card: ModelCard) -> tuple[int | None, int, bool]:
        """num_ctx as declared, as the Modelfiles or defaults say where nothing is, and shift, for a whole runner.

        Every name that shares the runner gets the same, or each change of name would load the model again. What is
        declared for one of them beats what is not; of two windows the larger holds both prompts, and what is not to be
        cut under one name is not cut under any.
        """
        sharing = self._sharing(card)
        policies = [self._config.model_policy(other.key) for other in sharing]
        windows, shifts = _own(policies)
        declared = max((own for own in windows if own is not None), default=None)
        otherwise = max(other.num_ctx or policy.num_ctx for other, policy in zip(sharing, policies, strict=True))
        own_shifts = [own for own in shifts if own is not None]
        return declared, otherwise, all(own_shifts) if own_shifts else policies[0].shift

    def _apply(self, card: ModelCard) -> Applied:
        policy, features = self._config.model_policy(card.key), self._features()
        if card.mode is Mode.REMOTE:
            return Applied(policy, None, None)
        declared, otherwise, shift = self._wish(card)
        window = resolve(
            Wish(declared, policy.budget, shift),
            modelfile_num_ctx=otherwise,
            default_num_ctx=policy.num_ctx,
            trained=card.trained,
            vision=any(other.vision for other in self._sharing(card)),
            old=features.takes_full_window,
            guarded=features.obeys,
        )
        loading = self._load_options(card)
        window = replace(window, load_options=tuple(sorted(loading.items())))
        said = {**card.load_options, **loading}
        num_batch = said.get("num_batch")
        embeds = embed_limit(window.num_ctx, card.trained, num_batch) if card.embeds else None
        return Applied(policy, window, embeds, num_batch, max(said.get("draft_num_predict", 0), 0))

    def _load_options(self, card: ModelCard) -> dict[str, int | bool]:
        """What has to be sent so that every request for this runner loads it in the same way.

        What the operator declares for any of its names, and what stands in one Modelfile and not, or otherwise, in
        another; of two values that of the first name. A model with a file of its own brings its Modelfile's itself.
        """
        sharing = sorted(self._sharing(card), key=lambda other: other.name)
        forced: dict[str, int | bool] = {}
        for name in LOAD_OPTIONS:
            said = [other.load_options.get(name) for other in sharing]
            if any(value != said[0] for value in said):
                forced[name] = next(value for value in said if value is not None)
        for other in reversed(sharing):
            forced.update(self._config.model_policy(other.key).load_options)
        return forced


def first_leg(applied: Applied, card: ModelCard) -> Applied:
    """What holds for a request that has to go to Ollama's own layer for /v1, which takes no num_ctx and no shift.

    The window there is the Modelfile's, else Ollama's own default, which is never below 4096 tokens
    (`envconfig/config.go:ContextLength`, `server/routes.go:Serve`, v0.33); the prompt has to fit that too.
    """
    window = applied.window
    if window is None:
        return applied
    num_ctx = min(card.num_ctx or SMALLEST_DEFAULT_NUM_CTX, window.num_ctx, card.trained or window.num_ctx)
    largest = num_ctx if window.old_boundary else num_ctx - 1
    return replace(applied, window=replace(window, num_ctx=num_ctx, budget=min(window.budget, largest), shift=True))


def _own(policies: Sequence[ModelPolicy]) -> tuple[list[int | None], list[bool | None]]:
    """Windows and shifts that stand in the sections of the models themselves."""
    return [policy.own_num_ctx for policy in policies], [policy.own_shift for policy in policies]
