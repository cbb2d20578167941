"""The log: one structured line for each finished request, and one for what an operator should know.

Counts, names, codes and hashes only; never a prompt, an answer or a key. A line that cannot be written (the disk is
full, nobody reads the pipe) is lost, and fails nobody: there is no other place to say so.
"""

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, BinaryIO, Final, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

Level = Literal["debug", "info", "warning", "error"]
Style = Literal["json", "console"]
_WITHOUT_LOCALS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
"""Local variables hold prompts."""
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: Level = "info", style: Style = "json", stream: TextIO | None = None) -> None:
    """Set the process's log up: JSON objects, or lines for people, on standard error unless a stream is given."""
    out = stream if stream is not None else sys.stderr
    _direct.out = _below(out) if style == "json" and _LEVELS[level] <= _LEVELS["info"] else None
    processors: list[Processor]
    if style == "json":
        processors = [_json_line]
    else:
        processors = [
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Unfailing(out))),
        cache_logger_on_first_use=False,
    )


class _Unfailing:
    """The log's stream, as far as structlog uses it, which never raises."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def write(self, text: str) -> None:
        """Write a line, or lose it."""
        try:
            self.out.write(text)
        except _UNWRITABLE:
            return

    def flush(self) -> None:
        """Send it on its way, or lose it."""
        try:
            self.out.flush()
        except _UNWRITABLE:
            return


_UNWRITABLE: Final = (OSError, ValueError)
"""What writing raises: the second of a stream that is closed."""


def _below(out: TextIO) -> BinaryIO | None:
    """What takes the bytes of a stream as they are: below its buffer, where there is one, which each line empties."""
    buffer: BinaryIO | None = getattr(out, "buffer", None)
    return getattr(buffer, "raw", buffer)


@dataclass(slots=True)
class _Direct:
    """Where lines of finished requests go without passing the processors: the bytes below the log's stream."""

    out: BinaryIO | None = None


_direct: Final = _Direct()


def finished(line: dict[str, object]) -> bytes:
    """The line of a finished request, to be written by `write`: what `logger().info("request", **line)` writes.

    This is the short way; where lines go the long one it is written now, and nothing is left of it.
    """
    if _direct.out is None:
        logger().info("request", **line)
        return b""
    line["event"] = "request"
    line["level"] = "info"
    line["timestamp"] = datetime.now(UTC)
    return orjson.dumps(line, default=repr, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def write(lines: bytes) -> None:
    """Write lines that `finished` gave."""
    out = _direct.out
    try:
        while lines and out is not None and (written := out.write(lines)):  # all, but for a full pipe or disk
            lines = lines[written:]
    except _UNWRITABLE:
        return


def logger() -> FilteringBoundLogger:
    """The gate's logger."""
    found: FilteringBoundLogger = structlog.get_logger("ollama_gate")
    return found


_with_exception: Final = structlog.processors.ExceptionRenderer(_WITHOUT_LOCALS)


@lru_cache(maxsize=1)
def _second(of: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(of))


def _stamp(now: float) -> str:
    """RFC 3339 with microseconds; only they are written anew for each line."""
    whole = int(now)
    return f"{_second(whole)}.{int((now - whole) * 1e6):06d}Z"


def _json_line(logger: Any, method: str, event: EventDict) -> str:
    """Level, time and tracebacks put in and the whole written as JSON: one step, because every request takes it."""
    event["level"] = "error" if method == "exception" else method
    event["timestamp"] = _stamp(time.time())
    if "exc_info" in event:
        event = _with_exception(logger, method, event)
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
