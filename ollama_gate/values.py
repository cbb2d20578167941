"""Values that are made for every request: frozen to whoever reads them, and as cheap to make as anything.

A frozen dataclass guards each field at run time, and pays for it with a call for each field whenever one is made: five
times what the object costs without. The type checker guards them just as well, for nothing.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass with slots whose fields may not be assigned to, which the type checker sees to."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
