"""What the load asks of the scripted upstream, written into the prompt where any proxy leaves it alone."""

import re
from dataclasses import dataclass
from typing import Final

_MARK: Final = re.compile(rb"\[\[bench tokens=(\d+) gap_us=(\d+) first_us=(\d+)\]\]")


@dataclass(frozen=True, slots=True)
class Script:
    """How one answer is given; times in microseconds."""

    tokens: int = 1
    gap: int = 0
    """Between two tokens; 0 sends all at once."""
    first: int = 0
    """Before the first token."""

    @property
    def mark(self) -> str:
        """The script as it stands in a prompt."""
        return f"[[bench tokens={self.tokens} gap_us={self.gap} first_us={self.first}]]"


def script_of(body: bytes) -> Script:
    """The script in a request's body; one token at once where there is none."""
    found = _MARK.search(body)
    return Script(*map(int, found.groups())) if found else Script()
