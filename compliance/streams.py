"""What a client makes of a stream that may break."""

from collections.abc import Iterable
from typing import Any


def until_it_fails(stream: Iterable[Any], kind: type[Exception]) -> tuple[list[Any], Exception | None]:
    """Everything that came, and the failure of that kind that ended it; None for a clean end."""
    came: list[Any] = []
    events = iter(stream)
    while True:
        try:
            came.append(next(events))
        except StopIteration:
            return came, None
        except kind as failure:
            return came, failure
