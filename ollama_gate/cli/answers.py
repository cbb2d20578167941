"""JSON that another program answered, read so that nothing in it breaks a command.

What is missing, or of another kind than expected, counts as empty: the other program may be of another version.
"""

from collections.abc import Mapping
from typing import Any


def mapping(holder: Any, name: str) -> Mapping[str, Any]:
    """The object that stands under a name in another one; an empty one where there is none."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def mappings(holder: Any, name: str) -> list[Mapping[str, Any]]:
    """The objects in the list that stands under a name; what is no object in it is passed over."""
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
