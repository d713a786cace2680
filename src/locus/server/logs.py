"""Logs as JSON, one object per line. They contain no secrets, no payloads, no ids and no names of files.

The first line names the store, if that is on the network, by its address.

What this package logs is made of words that stand in its source, and of facts that it has chosen: an error by its type,
a thread by a keyed digest. What other packages log may quote anything, so only the words of their source are kept.
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
"""The environment variable with the key of digests. Without it they cannot be compared after a restart."""

_LEAST_KEY = 16
_TRUSTED = ("locus.server", "uvicorn", "uvicorn.error")


class Digests:
    """Short keyed digests: the same for the same text, and of no use to whoever does not have the key."""

    def __init__(self, key: str = "") -> None:
        self._key = (key or secrets.token_hex(16)).encode("utf-8", "surrogateescape")

    def of(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def key_from_environment() -> str:
    """The key of digests; a new one if none is given."""
    key = os.environ.get(KEY_VARIABLE, "")
    if key and len(key) < _LEAST_KEY:
        raise ConfigurationError(f"{KEY_VARIABLE} has at least {_LEAST_KEY} characters")
    return key or secrets.token_hex(16)


def error_facts(error: BaseException) -> dict[str, Any]:
    """What a log may say about an error: its type, those of its causes, and where it was raised. Not its text."""
    types = [type(found).__name__ for found in causes(error)]
    return {"error": types, "stack": stack_of(error.__traceback__)[-5:]}


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and the errors that led to it: five of them at most."""
    found: BaseException | None = error
    for _ in range(5):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


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
    """The locations of a stack. The text of an exception is left out, because it may quote what a user sent."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]


def log_failures() -> None:
    """Log warnings, and errors that nobody catches, as everything else: Python would print them with their texts."""

    def log(found: Any) -> None:
        LOGGER.error("failed outside of a request", extra={"facts": error_facts(found.exc_value)})

    logging.captureWarnings(True)
    threading.excepthook = log
    sys.unraisablehook = log


def set_up(level: str) -> None:
    """Log everything in this process as such lines, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in _TRUSTED:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(level.upper())
