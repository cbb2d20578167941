"""Windows and wishes by model: the configuration applied to what Ollama says of each model."""

from collections.abc import Callable
from dataclasses import dataclass

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.catalog.versions import Features
from ollama_gate.config import Config, ModelPolicy
from ollama_gate.window import EmbedLimit, Window, Wish, embed_limit, resolve


@dataclass(frozen=True, slots=True)
class Applied:
    """What one model gets."""

    policy: ModelPolicy
    window: Window | None
    """None for cloud models, whose window is not the gate's to set."""
    embeds: EmbedLimit | None
    """The limit of each input, for embedding models."""


class Policies:
    """The wishes of one configuration, applied to cards; each (name, digest) is worked out once for one Ollama."""

    def __init__(self, config: Config, features: Callable[[], Features] = lambda: Features.of(None)) -> None:
        """Apply this configuration; a changed one gets a new instance. `features` are those of the Ollama there now."""
        self._config = config
        self._features = features
        self._applied: dict[tuple[str, str, Features], Applied] = {}

    def for_card(self, card: ModelCard) -> Applied:
        """What this model gets."""
        key = (card.key, card.digest, self._features())
        found = self._applied.get(key)
        if found is None:
            if len(self._applied) > 1024:
                self._applied.clear()
            found = self._applied[key] = self._apply(card)
        return found

    def unknown(self, key: str) -> Applied:
        """What a model gets that Ollama does not list: the request goes on with it and Ollama says no."""
        policy = self._config.model_policy(key)
        wish = Wish(policy.own_num_ctx, policy.budget, policy.shift)
        window = resolve(wish, modelfile_num_ctx=None, default_num_ctx=policy.num_ctx, trained=None, vision=False)
        return Applied(policy, window, None)

    def _apply(self, card: ModelCard) -> Applied:
        policy, features = self._config.model_policy(card.key), self._features()
        if card.mode is Mode.REMOTE:
            return Applied(policy, None, None)
        window = resolve(
            Wish(policy.own_num_ctx, policy.budget, policy.shift),
            modelfile_num_ctx=card.num_ctx,
            default_num_ctx=policy.num_ctx,
            trained=card.trained,
            vision=card.vision,
            old=features.takes_full_window,
            guarded=features.obeys,
        )
        embeds = embed_limit(window.num_ctx, card.trained, card.num_batch) if card.embeds else None
        return Applied(policy, window, embeds)
