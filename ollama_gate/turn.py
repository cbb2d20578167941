"""The record of one request: what each stage learned, for headers, log and metrics. It never holds text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ollama_gate.errors import Refusal, UpstreamError
from ollama_gate.requests import PromptCount, Rung

if TYPE_CHECKING:
    from ollama_gate.access.door import Caller


class Phase(StrEnum):
    """How far a request has come; a client that leaves is counted by it."""

    READING = "reading"
    COUNTING = "counting"
    QUEUED = "queued"
    FIRST_BYTE = "first byte"
    STREAMING = "streaming"
    DONE = "done"


class Verdict(StrEnum):
    """What became of a request."""

    ADMIT = "admit"
    GRACE = "grace"
    COMPACT = "compact"
    """Over the budget, and sent on in a shorter form that fits."""
    CONTROL = "control"
    """A load or unload message."""
    UNCOUNTED = "uncounted"
    """Sent on without a count: Ollama has no such model, it is in the cloud, or its template refuses the request."""
    PASSED = "passed"
    """Not inference: handed on as it was."""
    REFUSE = "refuse"
    FAILED = "failed"
    """Ollama gave no whole answer, or the client left before there was a verdict."""


_EXACT: Final = Rung.EXACT  # an enum's members are slow to get (Python 3.11)


@dataclass(slots=True)
class Turn:
    """One request as it goes along; times are seconds of the gate's steady clock."""

    id: str
    route: str
    started: float
    dialect: str = "native"
    model: str | None = None
    """Canonical name; None until Ollama is known to have it."""
    phase: Phase = Phase.READING
    verdict: Verdict = Verdict.FAILED
    status: int = 0
    code: str | None = None
    """Why it was refused or failed."""
    rung: Rung | None = None
    prompt_tokens: int | None = None
    """The count, or the bound that decided."""
    budget: int | None = None
    window: int | None = None
    asked_output: int | None = None
    limit: int | None = None
    """Output length that was asked; an answer that ends before it, for want of room, ends with the window."""
    clamped: bool = False
    reload_avoided: bool = False
    left: bool = False
    """The client went away."""
    sent_at: float | None = None
    evaluated: bool = False
    """It was sent, and Ollama may have evaluated its prompt: it was there and did not begin with an error."""
    count_seconds: float | None = None
    wait_seconds: float | None = None
    notes: list[str] = field(default_factory=list)
    body_bytes: int = 0
    signals: Mapping[str, int] = field(default_factory=dict)
    """Symptoms that its conversation shows, with how much of each."""
    signals_told: str = ""
    """The same for the client, with tools' names and places."""
    reported: Callable[[int], None] | None = None
    """Who wants to know Ollama's own prompt count."""
    compaction: str | None = None
    """What became of the attempt to compact it (`compaction.compactor.Outcome`); None where there was none."""
    compaction_seconds: float | None = None
    compacted_from: int | None = None
    """Tokens of the prompt before it was compacted; `prompt_tokens` are those after."""
    replaced: tuple[str, ...] = ()
    """Hashes of the messages that are no longer whole in it."""
    cors: Mapping[str, str] = field(default_factory=dict)
    """What lets a web page of an allowed origin read the answer; empty for everybody else."""
    caller: "Caller | None" = None
    """Who showed which key; None where no key is asked for."""
    _told: list[str] | None = None
    """Its headers, where they were written down before they were wanted."""

    def counted(self, count: PromptCount, seconds: float) -> None:
        """Note a count and how long it took."""
        self.rung, self.prompt_tokens, self.count_seconds = count.rung, count.tokens, seconds

    def compacted(self, before: int, count: PromptCount, replaced: tuple[str, ...]) -> None:
        """Note that a shorter prompt goes on in place of one of `before` tokens."""
        self.verdict, self.compacted_from, self.replaced = Verdict.COMPACT, before, replaced
        self.rung, self.prompt_tokens = count.rung, count.tokens

    def refused(self, refusal: Refusal) -> None:
        """Note that the gate answers by itself."""
        self.status, self.code, self._told = refusal.status, refusal.code, None
        if refusal.status < 500:
            self.verdict = Verdict.REFUSE
        else:
            self.verdict = Verdict.FAILED

    def broke(self) -> None:
        """Note that the gate itself failed on it; where no status was sent yet, it will be a 500."""
        self.verdict, self.code, self.status = Verdict.FAILED, "internal_error", self.status or 500

    def failed(self, failure: UpstreamError) -> None:
        """Note that Ollama gave no whole answer."""
        self.code = failure.code

    def headers(self) -> dict[str, str]:
        """The gate's own response headers for this request."""
        pairs = (line.partition(": ") for line in self.lines())
        return {name: value for name, _, value in pairs}

    def prepare(self) -> None:
        """Write the headers down now: what they say is known, and Ollama works meanwhile."""
        self._told = self._lines()

    def lines(self) -> list[str]:
        """The gate's own response headers as lines, without line ends."""
        return self._told or self._lines()

    def _lines(self) -> list[str]:
        tokens, rung, budget, window = self.prompt_tokens, self.rung, self.budget, self.window
        out = [f"x-ollama-gate-request-id: {self.id}", f"x-ollama-gate-verdict: {self.verdict!s}"]
        if self.cors:
            out += map(": ".join, self.cors.items())
        if tokens is not None and rung is not None:
            out += (f"x-ollama-gate-prompt-tokens: {tokens}", f"x-ollama-gate-rung: {rung!s}")
        if budget is not None and window is not None:
            out += (f"x-ollama-gate-budget: {budget}", f"x-ollama-gate-window: {window}")
            if tokens is not None and rung is _EXACT:
                out.append(f"x-ollama-gate-room: {max(window - tokens, 0)}")
        if self.wait_seconds is not None and self.wait_seconds >= 0.001:
            out.append(f"x-ollama-gate-wait: {self.wait_seconds:.3f}")
        if self.signals_told:
            out.append(f"x-ollama-gate-signals: {plain(self.signals_told)[:1000]}")
        if self.compacted_from is not None:
            out.append(f"x-ollama-gate-compacted-from: {self.compacted_from}")
            out.append(f"x-ollama-gate-compacted-to: {tokens}")
            out.append(f"x-ollama-gate-checkpoint: {self.compaction}")
            out.append(f"x-ollama-gate-archived: {_shown(self.replaced)}")
        if self.notes:
            out.append(f"x-ollama-gate-note: {'; '.join(plain(note) for note in self.notes)[:1000]}")
        return out


def _shown(hashes: tuple[str, ...], most: int = 40) -> str:
    """The first hashes, each once, and how many more there are: a header must not grow with a conversation."""
    hashes = tuple(dict.fromkeys(hashes))
    more = f" +{len(hashes) - most}" if len(hashes) > most else ""
    return " ".join(hashes[:most]) + more


def plain(text: str) -> str:
    """A text as a header value: printable ASCII only, whatever a client put into it."""
    return "".join(char if " " <= char <= "~" else "?" for char in text)
