"""Names of variables in scope, for the parser, which checks them, and the compiler, which gives them slots."""

from collections.abc import Mapping

from ollama_gate.counting.rendering.gotemplate.functions import GoFunction


class Names:
    """A stack of names: the latest of a name is the one that is meant, and a block drops what it brought in."""

    def __init__(self) -> None:
        """Start a template, which knows `$` alone."""
        self.stack = ["$"]
        self.places: dict[str, list[int]] = {"$": [0]}

    def __contains__(self, name: str) -> bool:
        return bool(self.places.get(name))

    def __len__(self) -> int:
        return len(self.stack)

    def place(self, name: str) -> int | None:
        """How many names stood before this one came in; None for an unknown one."""
        places = self.places.get(name)
        return places[-1] if places else None

    def push(self, name: str) -> int:
        """Bring a name into scope."""
        self.places.setdefault(name, []).append(len(self.stack))
        self.stack.append(name)
        return len(self.stack) - 1

    def drop(self, mark: int) -> None:
        """Forget all names that came in when there were `mark` or more."""
        while len(self.stack) > mark:
            self.places[self.stack.pop()].pop()


class Scope:
    """What one template knows at one place: its functions and its variables, each in the slot of its place."""

    def __init__(self, functions: Mapping[str, GoFunction], *, missing_is_zero: bool) -> None:
        """Start a template.

        Args:
            functions: all functions but `and` and `or`.
            missing_is_zero: the option `missingkey=zero`; without it a missing key is the invalid value.
        """
        self.functions = functions
        self.missing_is_zero = missing_is_zero
        self.names = Names()
        self.size = 1
        """Slots needed so far."""

    def declare(self, name: str) -> int:
        """Bring a new variable into scope; gives its slot."""
        slot = self.names.push(name)
        self.size = max(self.size, slot + 1)
        return slot
