"""Logs as JSON, one object per line. They contain no secrets and no payloads."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

LOGGER = logging.getLogger("locus.server")


class JSONLines(logging.Formatter):
    """Formats a record as one line. The entries of `extra={"facts": …}` become its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["stack"] = stack_of(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False, default=str)


def stack_of(trace: TracebackType | None) -> list[str]:
    """The locations of a stack. The text of an exception is left out, because it may quote what a user sent."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


def set_up(level: str) -> None:
    """Log everything in this process as such lines, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("locus.server", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(level.upper())
