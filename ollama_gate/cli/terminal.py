"""The terminal that commands show things on, to people: nothing that came from outside can command it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ollama_gate.cli.output import visible


class Terminal(Console):
    """Standard output for people. Control characters in a text, whoever wrote it, are shown and not obeyed."""

    def __init__(self, *, width: int | None = None) -> None:
        """Numbers and names are not coloured by their looks.

        Args:
            width: in characters; without one, that of the terminal.
        """
        super().__init__(highlight=False, width=width)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich does; all that is shown comes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def wide() -> Terminal:
    """The terminal; a file or pipe takes long lines, so that tables keep their shape there."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=120)
