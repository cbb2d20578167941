"""The process that makes plans: `python -m ollama_gate.compaction.worker FD BYTES`.

Whatever a conversation does to it, it does to this process: its memory is limited, and the gate ends it when it takes
too long. It talks over the socket that it inherits, in frames of JSON behind their length (`counting.channel`): the
gate sends a job, answers what the worker asks while it works (tokens of texts, likeness in meaning), and gets a plan.
"""

import contextlib
import os
import resource
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

import orjson

from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.filling import Filler
from ollama_gate.compaction.terms import DoesNotFit, Terms
from ollama_gate.counting.channel import receive, send

_IDLE: Final = 600.0
"""Seconds without a job after which it ends by itself; the next job starts another."""
_GENTLE: Final = 5
"""It gives way to the gate, which has tokens to pass on."""


class Desk:
    """The worker's end of the socket."""

    def __init__(self, channel: socket.socket) -> None:
        """Take the socket over."""
        self._channel = channel

    def next(self) -> dict[str, Any] | None:
        """The next frame; None when the gate has hung up."""
        received = receive(self._channel)
        if received is None:
            return None
        frame: dict[str, Any] = orjson.loads(received)
        return frame

    def say(self, frame: dict[str, Any]) -> None:
        """Send a frame."""
        send(self._channel, orjson.dumps(frame))

    def count(self, texts: Sequence[str]) -> Sequence[int]:
        """Ask the gate for the tokens of each text."""
        answer = self._asked({"count": list(texts)})
        tokens: list[int] = answer["tokens"]
        return tokens

    def similar(self, question: str, texts: Sequence[str]) -> Sequence[float | None] | None:
        """Ask the gate how much each text means the same as the question."""
        answer = self._asked({"similar": list(texts), "question": question})
        likeness: list[float | None] | None = answer["likeness"]
        return likeness

    def _asked(self, frame: dict[str, Any]) -> dict[str, Any]:
        self.say(frame)
        answer = self.next()
        if answer is None:
            raise SystemExit(0)
        return answer


def main() -> None:
    """Serve until the gate hangs up."""
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with contextlib.suppress(OSError):
        os.nice(_GENTLE)
    with socket.socket(fileno=int(sys.argv[1])) as channel, contextlib.suppress(OSError):
        channel.settimeout(_IDLE)
        serve(Desk(channel))


def serve(desk: Desk) -> None:
    """Do one job after another; a job without messages is the last one with another target, or other costs."""
    filler: Filler | None = None
    while (job := desk.next()) is not None:
        answer: dict[str, Any]
        try:
            if "messages" in job:
                filler = _filler(desk, job)
            if filler is None:
                answer = {"cannot": "its process was started anew", "outcome": "failed"}
            else:
                filler.expect(job.get("more", 0.0))
                filled = filler.fill(job["target"])
                answer = {"plan": filled.plan.pack().decode(), "tokens": filled.tokens}
        except DoesNotFit as reason:
            answer = {"cannot": str(reason), "outcome": "does_not_fit"}
        except MemoryError:
            filler = None
            answer = {"cannot": "its memory limit was reached", "outcome": "memory"}
        except Exception as failure:  # noqa: BLE001 - the gate refuses the request and says why
            filler = None
            answer = {"cannot": f"it failed: {failure!r}"[:500], "outcome": "failed"}
        desk.say(answer)


def _filler(desk: Desk, job: dict[str, Any]) -> Filler:
    return Filler(
        Conversation(job["messages"]),
        Terms.from_json(job["terms"]),
        desk.count,
        desk.similar if job["meanings"] else None,
    )


if __name__ == "__main__":
    main()
