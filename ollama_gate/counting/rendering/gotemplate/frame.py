"""The state of one rendering: what compiled templates read and write while they run."""

from collections.abc import Callable
from datetime import date
from enum import Enum

from ollama_gate.counting.rendering.gotemplate.limits import Budget
from ollama_gate.counting.rendering.gotemplate.values import INVALID, GoValue


class Frame:
    """One execution of one template. A `{{ template }}` inside it gets a frame of its own over the same output."""

    __slots__ = ("budget", "depth", "out", "slots", "today")

    def __init__(self, size: int, data: GoValue, *, budget: Budget, today: date, depth: int = 0) -> None:
        """Start with every variable unset but `$`.

        Args:
            size: how many slots for variables the template needs.
            data: what `$` is.
            budget: what the whole rendering may use up.
            today: the server's local date.
            depth: how many templates are executing around this one.
        """
        self.slots: list[GoValue] = [INVALID] * size
        self.slots[0] = data
        self.out: list[str] = []
        self.budget = budget
        self.today = today
        self.depth = depth


class Leave(Enum):
    """How a body ends before its last node."""

    BREAK = 1
    CONTINUE = 2


Evaluator = Callable[[Frame, GoValue], GoValue]
"""A compiled operand or pipeline: takes the frame and the cursor."""
Step = Callable[[Frame, GoValue], Leave | None]
"""A compiled node or body: takes the frame and the cursor."""
