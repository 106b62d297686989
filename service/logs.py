"""JSON lines on stderr: one object per event, with a constant message and its data beside it.

Never the text of a query, a passage or an answer. An exception is logged as its type and the places it came
through, without its message, because a message may quote what a user sent.
"""

import logging
import sys
import traceback
from datetime import UTC, datetime

import orjson

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, logger, message, the extra fields, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info is not None and record.exc_info[1] is not None:
            line["exception"] = describe(record.exc_info[1])
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def describe(error: BaseException) -> list[dict[str, object]]:
    """Return the chain of an exception, the cause last: type names and `file:line function` places, no messages."""
    chain: list[dict[str, object]] = []
    current: BaseException | None = error
    while current is not None and len(chain) < 8:
        frames = traceback.extract_tb(current.__traceback__)
        places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        chain.append({"type": type(current).__qualname__, "places": places})
        current = current.__cause__ if current.__cause__ is not None else current.__context__
    return chain


def configure_logging(level: str) -> None:
    """Send everything at `level` and above to stderr as JSON lines, in place of whatever was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, root.level))
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))
