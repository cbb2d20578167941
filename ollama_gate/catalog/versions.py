"""What is true of an Ollama by its version, as `/api/version` gives it. From its release notes and tagged sources."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_SHOWS_PROMPTS: Final = (0, 11, 5)
_OBEYS: Final = (0, 12, 6)
_ONE_EMBED_ERROR: Final = (0, 13, 3)
_LLAMA_SERVER: Final = (0, 30)


@dataclass(frozen=True, slots=True)
class Features:
    """What one version does and does not."""

    version: str
    released: bool = True
    """False for a developer's build and for what is no version; they are taken for current."""
    shows_prompts: bool = True
    """`_debug_render_only` is known (v0.11.5); an older one would run the request."""
    obeys: bool = True
    """`truncate` and `shift` are obeyed by chat and generate (v0.12.6); an older one cuts, whatever it is told."""
    one_embed_error: bool = True
    """Inputs that are too long for an embedder are refused in one wording (v0.13.3)."""
    takes_full_window: bool = False
    """A prompt may have exactly num_ctx tokens (before v0.30); since then llama-server wants one less."""

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, version: str | None) -> "Features":
        """What is true of a version; None and everything that is no version counts as a current one."""
        number = version_of(version or "")
        if not number or number == (0, 0, 0):
            return cls(version or "", released=False)
        return cls(
            version or "",
            shows_prompts=number >= _SHOWS_PROMPTS,
            obeys=number >= _OBEYS,
            one_embed_error=number >= _ONE_EMBED_ERROR,
            takes_full_window=number < _LLAMA_SERVER,
        )

    @property
    def warning(self) -> str:
        """What an operator has to know of it; empty when there is nothing."""
        if self.obeys:
            return ""
        return (
            f"Ollama {self.version} ignores truncate and shift: it would cut what is too long, and only the gate's own "
            "count stands before that. What is not counted exactly has to fit twice. Update Ollama to 0.12.6 or later; "
            "0.30 or later is best."
        )


def version_of(text: str) -> tuple[int, ...]:
    """(0, 33, 1) for "0.33.1-rc2"; (0, 0, 0) is a build of a developer, and empty what is no version."""
    numbers = text.removeprefix("v").partition("-")[0].partition("+")[0].split(".")
    known = all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers)
    return tuple(int(number) for number in numbers) if known else ()
