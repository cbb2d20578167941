"""How much work one template may do: every loop of the interpreter is paid for from a budget.

Go's text/template has no such limits, so a hostile template hangs Ollama; here it ends with a RenderError instead.
"""

from typing import Final

from ollama_gate.errors import RenderError

MAX_SOURCE: Final = 256 * 1024
"""Characters of template text. The largest template of Ollama's library has some 10 KiB."""
MAX_TOKENS: Final = 40_000
"""Tokens of a template. The largest of Ollama's library has some 3000."""
MAX_NESTING: Final = 90
"""Blocks and parentheses within each other."""
MAX_DEPTH: Final = 100
"""Templates that are executing each other."""
MAX_WIDTH: Final = 1_000_000
"""Widest field of a printf verb, which is Go's own limit (`fmt/print.go:tooLarge`)."""


class Budget:
    """Steps and characters that are left of one rendering."""

    __slots__ = ("size", "steps")

    def __init__(self, items: int, characters: int) -> None:
        """Grant a fixed amount and more for a bigger request.

        Args:
            items: how many things a template may loop over: messages, calls, tools, properties.
            characters: how much text the request holds.
        """
        self.steps = 150_000 + 120 * items + characters // 16
        """Operands evaluated, plus one for each 64 elements or characters a function walks over."""
        self.size = 1024 * 1024 + 8 * characters
        """Characters written, and made by functions on the way: a doubling variable must not eat the memory."""

    def spend(self, steps: int, size: int) -> None:
        """Pay for steps and characters at once."""
        self.steps -= steps
        self.size -= size
        if self.steps < 0 or self.size < 0:
            raise RenderError("the template does more work than is allowed")

    def work(self, amount: int) -> None:
        """Pay for a walk over so many elements or characters."""
        self.steps -= 1 + (amount >> 6)
        if self.steps < 0:
            raise RenderError("the template does more work than is allowed")

    def make(self, amount: int) -> None:
        """Pay for so many new characters."""
        self.size -= amount
        if self.size < 0:
            raise RenderError("the template makes more text than is allowed")
