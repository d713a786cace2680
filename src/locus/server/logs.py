"""Logs as JSON, one object per line. They contain no secrets, no payloads, no ids and no names of files.

An exception: the first line has the address of the store, if that is on the network.

Messages of this package consist of fixed text and of chosen facts, such as the type of an error, or a keyed digest that
stands for a thread. Messages of other packages may quote anything, so only their format strings are logged, without the
arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from locus.errors import ConfigurationError

LOGGER = logging.getLogger("locus.server")
KEY_VARIABLE = "LOCUS_SERVER_LOG_KEY"
"""The environment variable with the key of digests. Without it, each start has other digests."""

_LEAST_KEY = 16
_TRUSTED = ("locus.server", "uvicorn", "uvicorn.error")


class Digests:
    """Makes short keyed digests. Equal texts have equal digests, which reveal nothing without the key."""

    def __init__(self, key: str = "") -> None:
        self._key = (key or secrets.token_hex(16)).encode("utf-8", "surrogateescape")

    def of(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def key_from_environment() -> str:
    """The key of digests from the environment, or else a new one."""
    key = os.environ.get(KEY_VARIABLE, "")
    if key and len(key) < _LEAST_KEY:
        raise ConfigurationError(f"{KEY_VARIABLE} has at least {_LEAST_KEY} characters")
    return key or secrets.token_hex(16)


def error_facts(error: BaseException) -> dict[str, Any]:
    """The facts about an error that may be logged: its type, those of its causes, and its place, but not its text."""
    types = [type(cause).__name__ for cause in causes(error)]
    return {"error": types, "stack": stack_of(error.__traceback__)[-5:]}


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, five in all at most."""
    current: BaseException | None = error
    for _ in range(5):
        if current is None:
            return
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


class JSONLines(logging.Formatter):
    """Formats a record as one line. The entries of `extra={"facts": …}` become its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
            line["stack"] = stack_of(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False, default=str)


def _message(record: logging.LogRecord) -> str:
    if record.name in _TRUSTED:
        return record.getMessage()
    if record.args and isinstance(record.msg, str):  # a text of the source, into which arguments would be put
        return record.msg
    return f"logged by {record.module}:{record.lineno}"


def stack_of(trace: TracebackType | None) -> list[str]:
    """The locations in a stack. The text of the exception is left out, because it may quote data of a user."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


def log_failures() -> None:
    """Log warnings and uncaught errors like everything else. Python would print them with their texts."""

    def log(failure: Any) -> None:
        LOGGER.error("failed outside of a request", extra={"facts": error_facts(failure.exc_value)})

    logging.captureWarnings(True)
    threading.excepthook = log
    sys.unraisablehook = log


def set_up(level: str) -> None:
    """Log everything in this process as JSON lines on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in _TRUSTED:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(level.upper())
