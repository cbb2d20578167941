"""The prompt's text as far as it can be made here: Go templates and jinja. Built-in renderers are Ollama's own affair.

One `LocalRenderer` serves one model; it is immutable and several threads may use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.normalise import (
    Conversation,
    Flow,
    ModelTraits,
    chat_conversation,
    generate_conversation,
)
from ollama_gate.counting.structs import decode_messages
from ollama_gate.errors import RenderError
from ollama_gate.requests import InferenceRequest, Kind

if TYPE_CHECKING:
    from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
    from ollama_gate.counting.rendering.jinja import JinjaTemplate

RENDERER_BOS: Mapping[str, str] = {
    "cogito": "<｜begin▁of▁sentence｜>",
    "deepseek3.1": "<｜begin▁of▁sentence｜>",
    "cohere": "<BOS_TOKEN>",
    "gemma4": "<bos>",
    "gemma4-small": "<bos>",
    "gemma4-large": "<bos>",
    "functiongemma": "<bos>",
    "lfm2": "<|startoftext|>",
    "lfm2-thinking": "<|startoftext|>",
    "glimmer": "<|begin_of_text|>",
    "laguna": "〈|EOS|〉",
    "poolside-v1": "〈|EOS|〉",
}
"""The text that a built-in renderer puts first and that Ollama takes off again where the tokenizer adds BOS itself
(`model/renderers`, `llm/llama_server.go:completionPrompt`, v0.33)."""


def traits_of(card: ModelCard) -> ModelTraits:
    """What of a card changes the prompts that are made for the model."""
    return ModelTraits(
        name=card.name,
        family=card.family,
        capabilities=card.capabilities,
        system=card.system,
        messages=decode_messages(list(card.messages)),
        parser=card.parser,
        template=card.template if card.mode is Mode.GO_TEMPLATE else "",
        bare=card.mode is Mode.CHATML,
    )


def conversation_of(request: InferenceRequest, traits: ModelTraits) -> Conversation:
    """The request as the renderers get it.

    Raises:
        TemplateRefused: Ollama answers 400 to this request.
        RenderError: what Ollama makes of it cannot be known here.
    """
    if request.kind is Kind.CHAT:
        return chat_conversation(request.body, traits, relax_thinking=request.dialect == "anthropic")
    return generate_conversation(request.body, traits)


_JINJA: Final = (Mode.JINJA, Mode.CHATML)


def load_engines(card: ModelCard) -> None:
    """Load what renders for this model, which takes a tenth of a second and belongs in a thread.

    It is done when a model is first met, and while its tokenizer is built: a gate that waits for its first request
    starts faster and smaller.
    """
    import_module("ollama_gate.counting.rendering.gotemplate")
    if card.mode in _JINJA:
        import_module("ollama_gate.counting.rendering.jinja")


def _jinja_template() -> "type[JinjaTemplate]":
    from ollama_gate.counting.rendering.jinja import JinjaTemplate  # noqa: PLC0415 - see `load_engines`

    return JinjaTemplate


@dataclass(frozen=True, slots=True)
class LocalRenderer:
    """Makes the text of one model's prompts, or says that it cannot."""

    card: ModelCard
    traits: ModelTraits
    go: "GoTemplate | None"
    jinja: "JinjaTemplate | None"
    era: "Era"
    why: str = ""
    """Why chat prompts cannot be rendered here; empty when they can."""

    @classmethod
    def of(cls, card: ModelCard, facts: TokenizerFacts, *, version: str | None) -> "LocalRenderer":
        """Compile a model's template. It takes up to some milliseconds and belongs in a thread.

        Args:
            card: the model.
            facts: what is known of its tokenizer.
            version: Ollama's.
        """
        from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate  # noqa: PLC0415 - see `load_engines`

        traits, era = traits_of(card), Era.of(version or "")
        go: GoTemplate | None = None
        jinja: JinjaTemplate | None = None
        why = ""
        try:
            match card.mode:
                case Mode.GO_TEMPLATE:
                    go = GoTemplate.parse(card.template, era=era)
                case Mode.JINJA:
                    jinja = _jinja_template().compile(
                        card.template,
                        facts.bos_text,
                        facts.eos_text,
                        adds_bos=facts.adds_bos,
                        adds_eos=facts.adds_eos,
                    )
                case Mode.CHATML:
                    jinja = _jinja_template().chatml(
                        facts.bos_text, facts.eos_text, adds_bos=facts.adds_bos, adds_eos=facts.adds_eos
                    )
                case Mode.RENDERER:
                    why = f"only Ollama can render for {card.renderer}"
                case Mode.REMOTE:
                    why = "the model runs in the cloud"
        except RenderError as failure:
            why = f"its template cannot be rendered here ({failure})"
        return cls(card, traits, go, jinja, era, why)

    @property
    def dated(self) -> bool:
        """Whether the text may depend on the day."""
        return (self.go is not None and self.go.dated) or (self.jinja is not None and self.jinja.dated)

    def text(self, request: InferenceRequest, now: datetime) -> str:
        """The text as Ollama's `_debug_render_only` would show it.

        Args:
            request: what is rendered.
            now: local time where Ollama runs.

        Raises:
            TemplateRefused: Ollama would refuse the request.
            RenderError: the text cannot be made here.
        """
        return self.render(conversation_of(request, self.traits), now)

    def render(self, conversation: Conversation, now: datetime) -> str:
        """The text of a prepared conversation; see `text`."""
        if conversation.raw is not None:
            return conversation.raw
        if conversation.context:
            raise RenderError("the text of the request's context tokens is Ollama's to make")
        if conversation.flow is Flow.OVERRIDE or (conversation.flow is Flow.SUFFIX and conversation.override):
            from ollama_gate.counting.rendering.gotemplate import GoTemplate  # noqa: PLC0415 - see `of`

            return GoTemplate.parse(conversation.override, era=self.era).render(conversation, today=now.date())
        if self.go is not None:
            return self.go.render(conversation, today=now.date())
        if self.jinja is None:
            raise RenderError(self.why)
        if conversation.flow is Flow.SUFFIX:
            raise RenderError("only a Go template can fill in the middle")
        return self.jinja.render(conversation, now=now)

    def probe(self, body: Mapping[str, Any], now: datetime) -> str:
        """The text of a bare chat body, for measuring what the template adds; thinking as by default."""
        return self.render(chat_conversation(body, self.traits), now)


def without_bos(text: str, card: ModelCard, kind: Kind, *, adds_bos: bool) -> str:
    """The text as the tokenizer gets it: one leading BOS text is taken off where the tokenizer adds BOS itself.

    Native chat prompts have lost theirs already (llama.cpp, `common/chat.cpp`). What goes through Ollama's own hands
    loses the renderer's declared BOS or a literal `<bos>` (`llm/llama_server.go:completionPrompt`, v0.33). Any other
    BOS that a Go template writes stays, and the model gets two.
    """
    if not adds_bos or (card.mode in (Mode.JINJA, Mode.CHATML) and kind is Kind.CHAT):
        return text
    declared = RENDERER_BOS.get(card.renderer, "")
    if declared and text.startswith(declared):
        return text[len(declared) :]
    return text.removeprefix("<bos>")
