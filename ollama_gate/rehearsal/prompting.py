"""From a request to the tokens that reach the model: rendering, then layers A and B (`server/prompt.go`, v0.33)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ollama_gate.rehearsal import errors, tools
from ollama_gate.rehearsal.errors import StatusError
from ollama_gate.rehearsal.models import Mode, Model
from ollama_gate.rehearsal.options import Options
from ollama_gate.rehearsal.rendering import FALLBACK, Conversation, Think, style_of
from ollama_gate.rehearsal.runner import Runner
from ollama_gate.rehearsal.service import Call
from ollama_gate.rehearsal.window import IMAGE_GUESS, cut_middle, first_kept

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompter:
    """Writes the prompts of one request."""

    call: Call
    model: Model
    runner: Runner
    options: Options
    truncate: bool

    @property
    def native(self) -> bool:
        """Whether llama-server renders the chat."""
        return self.model.mode is Mode.JINJA

    def chat(self, messages: Sequence[Message], tools_given: Sequence[Any], think: Think) -> str:
        """The text of a conversation after layer A.

        Raises:
            StatusError: what llama-server or the template says to it.
        """
        if self.native and not self.runner.jinja and tools_given:
            raise errors.llama_server(500, "tools param requires --jinja flag", "server_error")
        told = [tools.tool(one) for one in tools_given]
        kept = self._layer_a(messages, told, think)
        return self._write([messages[at] for at in kept], told, think)

    def _layer_a(self, messages: Sequence[Message], told: Sequence[Any], think: Think) -> list[int]:
        num_ctx = min(self.options.num_ctx, self.runner.num_ctx)
        everything = list(range(len(messages)))
        if not self.truncate or (self.native and num_ctx <= 0):
            return everything

        def fits(kept: Sequence[int]) -> bool:
            text = self._write([messages[at] for at in kept], told, think)
            images = sum(len(messages[at].get("images") or ()) for at in kept)
            guess = IMAGE_GUESS * images if self.model.projector else 0
            return len(self.model.vocabulary.encode(text)) + guess <= num_ctx

        kept = first_kept([message["role"] for message in messages], fits)
        if len(kept) < len(messages):
            self.call.note(f"layer A: {len(messages) - len(kept)} of {len(messages)} messages dropped")
        return kept

    def _write(self, messages: Sequence[Message], told: Sequence[Any], think: Think) -> str:
        style = FALLBACK if self.native and not self.runner.jinja else style_of(self.model.text)
        vocabulary = self.model.vocabulary
        marked = [self._marked(message, at) for at, message in enumerate(messages)]
        talk = Conversation(marked, told, think, vocabulary.text_of("bos"), vocabulary.text_of("eos"))
        text = style.write(talk)
        # llama-server adds the BOS itself where the vocabulary asks for one, and takes it off the template's text.
        return text.removeprefix(talk.bos) if self.native and vocabulary.specials[0] and talk.bos else text

    def _marked(self, message: Message, at: int) -> Message:
        images = len(message.get("images") or ())
        if not images:
            return message
        mark = "<__ollama_media_rehearsal__>" if self.native else f"[img-{at}]"
        return {**message, "content": mark * images + message["content"]}

    def tokens(self, text: str, *, images: int, native_route: bool) -> list[int]:
        """The tokens of a prompt after layer B, which the native chat route does not have.

        Raises:
            StatusError: 400 when it would have to be cut and the runner was launched without context shift.
        """
        if self.model.vocabulary.specials[0] and not native_route:
            text = text.removeprefix("<bos>")  # `completionPrompt` takes it off, so that it is not there twice
        ids = self.model.vocabulary.encode(text, special=True)
        num_ctx = self.runner.num_ctx
        if not self.truncate or images or native_route or num_ctx <= 1 or len(text.encode()) < num_ctx:
            return ids
        if len(ids) <= num_ctx - 1:
            return ids
        if not self.runner.shift:
            raise StatusError(400, errors.TOO_LONG_WITHOUT_SHIFT, of_runner=True)
        adds_bos = bool(self.model.vocabulary.specials[0])
        cut = cut_middle(ids, num_ctx, self.options.num_keep, adds_bos=adds_bos)
        self.call.note(f"layer B: {len(ids)} tokens cut to {len(cut)}")
        return cut


def conversation(model: Model, messages: Sequence[Message]) -> list[Message]:
    """The Modelfile's messages and system prompt before the request's (`server/routes.go:ChatHandler`)."""
    said = [*map(normal, model.messages), *map(normal, messages)]
    first = normal(messages[0])["role"] if messages else ""
    if first != "system" and model.system:
        said.insert(0, {"role": "system", "content": model.system})
    return said


def normal(message: Message) -> Message:
    """A message with what it may lack."""
    return {**message, "role": (message.get("role") or "").lower(), "content": message.get("content") or ""}
