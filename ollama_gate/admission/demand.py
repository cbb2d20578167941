"""What a request asks of the memory: its model's shape, the launch that will hold it, and what both come to."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

from ollama_gate.admission.memory import Footprint, Launch, LaunchPlan, footprint, largest_window
from ollama_gate.admission.shapes import ModelShape


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """One model as this gate has it loaded. Made once for each model and configuration, not for each request.

    Each is equal to itself alone, so that what is worked out for it is found again at once.
    """

    footprint: Footprint
    shape: ModelShape | None = None
    """None for a model whose metadata says nothing; then its footprint is a guess from its file."""
    plan: LaunchPlan | None = None
    num_ctx: int = field(init=False)
    """The window as `/api/ps` will report it."""
    slots: int = field(init=False)
    """How many requests Ollama runs at once."""

    def __post_init__(self) -> None:
        """Have at hand what every request asks for."""
        launch = self.footprint.launch
        object.__setattr__(self, "num_ctx", launch.num_ctx)
        object.__setattr__(self, "slots", launch.num_parallel)

    @classmethod
    def of(cls, shape: ModelShape, plan: LaunchPlan) -> "Demand":
        """The demand of a model with known metadata."""
        return cls(footprint(shape, plan), shape, plan)

    @classmethod
    def guess(cls, file_bytes: int, num_ctx: int) -> "Demand":
        """The demand of a model about which only its file's size is known: half as much again, one slot."""
        launch = Launch(num_ctx, 1, 0, 0, 0)
        parts = dict.fromkeys(Footprint.__dataclass_fields__, 0)
        del parts["launch"], parts["notes"]
        parts |= {"weights": file_bytes, "headroom": file_bytes // 2}
        return cls(Footprint(launch, **parts, notes=("no metadata: booked at one and a half times its file",)))

    def at(self, num_ctx: int) -> Footprint:
        """What the model takes when it was loaded with another window than ours."""
        if self.shape is None or self.plan is None or num_ctx == self.num_ctx:
            return self.footprint
        return footprint(self.shape, replace(self.plan, num_ctx=num_ctx))

    @lru_cache(maxsize=1024)  # noqa: B019 - so many are kept, and no more
    def fitting(self, within: int, *, with_host: bool) -> int:
        """The largest num_ctx with which the model would take at most so many bytes; 0 when none.

        `with_host` counts `Footprint.total`, else `Footprint.loaded`.
        """
        if self.shape is None or self.plan is None:
            size = self.footprint.total if with_host else self.footprint.loaded
            return self.num_ctx if size <= within else 0
        return largest_window(self.shape, self.plan, within, with_host=with_host)
