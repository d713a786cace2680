"""The audit log records which token did what to which thread, and with what result. One JSON object per line.

    {"time": "…", "request_id": "…", "token": "3f9a…", "operation": "save", "threads": ["9b1c…"], "status": 201}

`token` is an id that does not reveal the token. `threads` are keyed digests, equal to those in the log.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locus.memory.model.arguments import possible_path
from locus.server.logs import LOGGER, error_facts

STANDARD_OUTPUT = "-"


class AuditLog:
    """Appends lines to a file that only its owner may read, or to standard output.

    Each line is one write, so workers can share a file. After log rotation moves the file away, it begins a new one.
    """

    def __init__(self, place: str) -> None:
        self._path = None if place == STANDARD_OUTPUT else Path(place).absolute()
        with possible_path(place):
            self._file = self._opened()

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write a line. A failure is only logged, because the request has been answered already."""
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
        try:
            if self._was_moved():
                self.close()
                self._file = self._opened()
            os.write(self._file, f"{json.dumps(line)}\n".encode())
        except OSError as error:
            LOGGER.error("the audit log cannot be written", extra={"facts": error_facts(error)})

    def close(self) -> None:
        if self._path is not None:
            os.close(self._file)

    def _opened(self) -> int:
        if self._path is None:
            return sys.stdout.fileno()
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _was_moved(self) -> bool:
        if self._path is None:
            return False
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return True
