"""What a request holds while it runs: a slot, memory, or nothing at all."""

from collections.abc import Awaitable
from types import TracebackType
from typing import Self


class Hold:
    """A hold on something, to be entered before a request is sent and left when it is over.

    `enter` and `leave` are for those who enter at every request, and mostly without waiting; everybody else uses it as
    an async context manager.
    """

    __slots__ = ()

    waited = 0.0
    """Seconds in the queue."""

    def enter(self) -> Awaitable[None] | None:
        """Take the hold; what has to be waited for until it is taken, None when it was free. `leave` must follow it.

        Raises:
            Refused: it cannot be had, which is raised at once or when waited for; then it is not held.
        """
        return None

    def leave(self) -> None:
        """Free everything."""

    def answered(self) -> None:
        """Ollama has begun to answer, be it with a client error: the model is loaded."""

    def failed(self) -> None:
        """Ollama said that it could not load or run the model."""

    def unsent(self) -> None:
        """The request never reached Ollama."""

    async def __aenter__(self) -> Self:
        """Take the hold."""
        if (turn := self.enter()) is not None:
            await turn
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free everything, however it is left."""
        self.leave()
