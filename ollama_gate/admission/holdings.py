"""The ledger's words: what it decides, and what it knows of one model."""

import math
from dataclasses import dataclass
from enum import Enum, StrEnum

from ollama_gate.admission.demand import Demand
from ollama_gate.admission.residents import Reported


class OnFull(StrEnum):
    """What happens to a load that does not fit beside what is resident."""

    EVICT = "evict"
    """The least recently used idle models are unloaded for it."""
    WAIT = "wait"
    """It waits until enough idle models have expired by themselves."""
    REFUSE = "refuse"
    """It is refused at once."""


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """The limit and how it is kept. Times are seconds."""

    limit: int | None = None
    """Bytes; None for no limit."""
    on_full: OnFull = OnFull.EVICT
    counts_host: bool = True
    """Whether the limit covers host memory too (a CPU or unified memory) or only the GPUs'."""
    drain_after: float = 15.0
    """After waiting so long for busy models a load stops them from taking new requests."""
    load_grace: float = 10.0
    """A load that nobody waits for any more is aborted by Ollama; its memory counts as taken for so long."""
    leave_grace: float = 30.0
    """A model told to go that is still listed after so long counts as resident again."""


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may go on; its memory is booked."""

    loads: bool
    """Ollama will load the model for it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: models have to become idle, or to go, first."""

    evict: tuple[str, ...] = ()
    """Idle models that are to be unloaded for it; they are marked as leaving already."""


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Not at all, or not while others are resident and the policy is not to wait."""

    needed: int
    limit: int
    free: int
    largest_now: int
    """The largest num_ctx that would fit beside what is resident; 0 when none would."""
    largest_ever: int
    """The same with nothing else loaded."""
    retry_at: float | None = None
    """When enough idle models will have expired by themselves; None when they would not do or nothing is known."""
    host_cache: int = 0
    """Bytes of `needed` that llama-server may keep of old prompts, no more than it is let."""

    @property
    def ever(self) -> bool:
        """Whether it would fit with nothing else loaded."""
        return self.needed <= self.limit

    @property
    def for_host_cache(self) -> bool:
        """Whether it never fits for the sake of old prompts alone: a setting, not the model, is too large."""
        return self.needed > self.limit >= self.needed - self.host_cache


Decision = Granted | Wait | DoesNotFit

RESIDENT_GRANT = Granted(loads=False)
LOAD_GRANT = Granted(loads=True)

SETTLES = 0.5
"""Seconds after which Ollama has certainly noticed that a request is over, its client having gone included.

Only then does it work out anew when the model expires (`server/sched.go:processCompleted`, Ollama v0.33); until then
`/api/ps` has what followed from the request before.
"""


class Stage(Enum):
    """What the ledger believes of a model."""

    LOADING = "loading"
    RESIDENT = "resident"
    LEAVING = "leaving"


class Outcome(Enum):
    """How a request that held memory ended, as far as memory is concerned."""

    ANSWERED = "answered"
    """Ollama answered it: the model is loaded."""
    FAILED = "failed"
    """Ollama said that it could not load or run the model: which of them, only its next `/api/ps` tells."""
    UNSENT = "unsent"
    """The request never reached Ollama."""
    LEFT = "left"
    """The client went before Ollama said anything: nobody knows how far a load came."""


@dataclass(slots=True)
class Holding:
    """One model's memory."""

    model: str
    stage: Stage
    booked: int
    num_ctx: int
    demand: Demand | None = None
    """None while only `/api/ps` has told of it."""
    users: int = 0
    """Requests that hold it now."""
    since: float = -math.inf
    """When it entered its stage; what was asked before says nothing about it."""
    last_used: float = -math.inf
    seen: float = -math.inf
    """When it was last certain to be there."""
    abandoned_at: float | None = None
    """When the last request left without an answer; what Ollama made of its load is not known yet."""
    told_expiry: float | None = None
    """When it will be unloaded if nobody uses it, as Ollama has said."""
    told_of_use: float = -math.inf
    """Behind which use, by its `last_used`, Ollama has said that."""
    told_late: bool = False
    """Whether it has said that so long behind that use that it had certainly noticed its end."""
    reported: Reported | None = None
    look_due: bool = False
    """Whether nobody has asked yet what became of its load."""
    tried: bool = False
    """Whether Ollama has failed a request for it, and may have loaded it before that."""
    draining: bool = False
    """Takes no new requests, so that it becomes idle and can go."""

    @property
    def idle(self) -> bool:
        """Whether it could be unloaded now without breaking a request."""
        return self.users == 0 and self.stage is Stage.RESIDENT

    @property
    def loads(self) -> bool:
        """Whether a load of it is under way."""
        return self.users > 0 and self.stage is Stage.LOADING

    @property
    def untold(self) -> bool:
        """Whether it was listed only while it was used, as by the self-check, and so never told its expiry."""
        return self.told_of_use == -math.inf and self.reported is not None

    @property
    def expires_at(self) -> float | None:
        """When it will be unloaded if nobody uses it: as Ollama has said, and later by how much it was used since."""
        return None if self.told_expiry is None else self.told_expiry + (self.last_used - self.told_of_use)

    @property
    def expiry_sure(self) -> bool:
        """Whether that is no guess: Ollama has said it since the last use."""
        return self.told_late and self.last_used == self.told_of_use

    def tell_expiry(self, expires_at: float | None, asked_at: float) -> None:
        """Take what Ollama said of when it unloads the model, unless that was before the last use or during one."""
        if self.users == 0 and asked_at > self.last_used:
            self.told_expiry, self.told_of_use = expires_at, self.last_used
            self.told_late = asked_at > self.last_used + SETTLES
