"""Logs as JSON, one object a line: what was asked for and what came of it, no secrets and no payloads."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

LOGGER = logging.getLogger("locus.server")


class JSONLines(logging.Formatter):
    """Each record as one line; what is given as `extra={"facts": …}` becomes its fields."""

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
            line["stack"] = where(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False, default=str)


def where(trace: TracebackType | None) -> list[str]:
    """The places of a stack. The text of an exception may quote what a user sent, and is left out."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


def set_up(level: str) -> None:
    """Let everything that this process logs be such lines, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("locus.server", "uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(level.upper())
