"""What the load asks of the scripted upstream, written as a stop sequence: every lane of every proxy keeps those."""

import re
from dataclasses import dataclass
from typing import Final

_MARK: Final = re.compile(rb"\[\[bench tokens=(\d+) gap_us=(\d+) first_us=(\d+)\]\]")


WHEN_ASKED: Final = 1_000_000_000
"""A gap that lasts until the upstream is asked for the next token (`GET /next`)."""


@dataclass(frozen=True, slots=True)
class Script:
    """How one answer is given; times in microseconds."""

    tokens: int = 1
    gap: int = 0
    """Between two tokens; 0 sends all at once, `WHEN_ASKED` each when it is asked for."""
    first: int = 0
    """Before the first token."""

    @property
    def mark(self) -> str:
        """The script as it stands among the stop sequences."""
        return f"[[bench tokens={self.tokens} gap_us={self.gap} first_us={self.first}]]"


def script_of(body: bytes) -> Script:
    """The script in a request's body; one token at once where there is none."""
    found = _MARK.search(body)
    return Script(*map(int, found.groups())) if found else Script()


def without_script(body: bytes) -> bytes:
    """A request's body with any script cut out, so that equal prompts look equal."""
    return _MARK.sub(b"", body) if b"[[bench " in body else body
