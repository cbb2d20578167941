"""Windows and wishes by model: the configuration applied to what Ollama says of each model."""

from dataclasses import dataclass

from ollama_gate.catalog.card import Mode, ModelCard
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
    """The wishes of one configuration, applied to cards; each (name, digest) is worked out once."""

    def __init__(self, config: Config) -> None:
        """Apply this configuration. A changed one gets a new instance."""
        self._config = config
        self._applied: dict[tuple[str, str], Applied] = {}

    def for_card(self, card: ModelCard) -> Applied:
        """What this model gets."""
        found = self._applied.get((card.key, card.digest))
        if found is None:
            if len(self._applied) > 1024:
                self._applied.clear()
            found = self._applied[card.key, card.digest] = self._apply(card)
        return found

    def unknown(self, key: str) -> Applied:
        """What a model gets that Ollama does not list: the request goes on with it and Ollama says no."""
        policy = self._config.model_policy(key)
        wish = Wish(policy.own_num_ctx, policy.budget, policy.shift)
        window = resolve(wish, modelfile_num_ctx=None, default_num_ctx=policy.num_ctx, trained=None, vision=False)
        return Applied(policy, window, None)

    def _apply(self, card: ModelCard) -> Applied:
        policy = self._config.model_policy(card.key)
        if card.mode is Mode.REMOTE:
            return Applied(policy, None, None)
        window = resolve(
            Wish(policy.own_num_ctx, policy.budget, policy.shift),
            modelfile_num_ctx=card.num_ctx,
            default_num_ctx=policy.num_ctx,
            trained=card.trained,
            vision=card.vision,
        )
        embeds = embed_limit(window.num_ctx, card.trained, card.num_batch) if card.embeds else None
        return Applied(policy, window, embeds)
