"""The log: one structured line for each finished request, and one for what an operator should know.

Counts, names, codes and hashes only; never a prompt, an answer or a key.
"""

import sys
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.typing import FilteringBoundLogger, Processor

Level = Literal["debug", "info", "warning", "error"]
_WITHOUT_LOCALS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
"""Local variables hold prompts."""
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: Level = "info", style: Literal["json", "console"] = "json", stream: TextIO | None = None) -> None:
    """Set the process's log up: JSON objects, or lines for people, on standard error unless a stream is given."""
    out = stream if stream is not None else sys.stderr
    shared: list[Processor] = [structlog.processors.add_log_level]
    factory: Any
    if style == "json":
        shared += [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(_WITHOUT_LOCALS),
            structlog.processors.JSONRenderer(serializer=_json),
        ]
        factory = structlog.WriteLoggerFactory(file=out)
    else:
        shared += [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
        factory = structlog.WriteLoggerFactory(file=out)
    structlog.configure(
        processors=shared,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )


def logger() -> FilteringBoundLogger:
    """The gate's logger."""
    found: FilteringBoundLogger = structlog.get_logger("ollama_gate")
    return found


def _json(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
