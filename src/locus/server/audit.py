"""The audit log: which token did what to which thread, and what came of it. One JSON object per line.

    {"time": "…", "request_id": "…", "token": "3f9a…", "operation": "save", "threads": ["9b1c…"], "status": 201}

A token is named by its id, which does not reveal it; a thread by a keyed digest, as in the log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from typing import Any

from locus.memory.model.arguments import possible_path
from locus.server.logs import LOGGER, error_facts

STANDARD_OUTPUT = "-"


class AuditLog:
    """Writes to a file, or to standard output. A file that was moved away is begun anew, as rotation needs it."""

    def __init__(self, place: str) -> None:
        self._handler = logging.StreamHandler(sys.stdout) if place == STANDARD_OUTPUT else _file(place)
        self._handler.handleError = _report  # type: ignore[method-assign]

    def write(self, facts: Mapping[str, Any]) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
        text = json.dumps(line)
        self._handler.handle(logging.LogRecord("locus.audit", logging.INFO, "", 0, "%s", (text,), None))

    def close(self) -> None:
        self._handler.close()


class _PrivateFileHandler(WatchedFileHandler):
    """A file for its owner alone. Several workers append to it, a line with one write each."""

    def _open(self) -> Any:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")


def _file(place: str) -> logging.StreamHandler[Any]:
    with possible_path(place):
        return _PrivateFileHandler(place)


def _report(record: logging.LogRecord) -> None:
    """A line that could not be written is reported in the log, and the request was answered all the same."""
    error = sys.exc_info()[1]
    LOGGER.error("the audit log cannot be written", extra={"facts": error_facts(error) if error else {}})
