"""Where commands write for people."""

from rich.console import Console


def wide() -> Console:
    """The terminal; a file or pipe takes long lines, so that tables keep their shape there."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)
