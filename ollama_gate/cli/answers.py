"""JSON that another program answered, read so that nothing in it breaks a command.

What is missing, or of another kind than expected, counts as empty: the other program may be of another version.
"""

from collections.abc import Mapping
from typing import Any, Final

_LARGEST: Final = 2**63 - 1
"""Beyond this a number is nonsense, and arithmetic with it may fail."""


def mapping(holder: Any, name: str) -> Mapping[str, Any]:
    """The object under a name of another object; empty where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def mappings(holder: Any, name: str) -> list[Mapping[str, Any]]:
    """The objects in the list under a name of an object; everything else in the list is passed over."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def whole(holder: Any, name: str) -> int | None:
    """The whole number under a name of an object, from 0 on; None where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST else None


def seconds(holder: Any, name: str) -> float | None:
    """The time in seconds, whole or not, under a name of an object; None where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _LARGEST else None
