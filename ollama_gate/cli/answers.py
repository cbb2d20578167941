"""JSON that another program answered, read so that nothing in it breaks a command.

What is missing, or of another kind than expected, counts as empty: the other program may be of another version.
"""

from collections.abc import Mapping
from typing import Any


def mapping(holder: Any, name: str) -> Mapping[str, Any]:
    """The object under a name of another object; empty where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def mappings(holder: Any, name: str) -> list[Mapping[str, Any]]:
    """The objects in the list under a name of an object; everything else in the list is passed over."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
