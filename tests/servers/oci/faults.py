"""What the server is told to do wrong, and what it has been asked.

A fault is a JSON object; the first one that fits a request strikes, so many times:

    {"kind": "answer", "times": 2, "operation": "PutObject", "status": 503, "code": "ServiceUnavailable"}

| kind | what happens | is it done? |
|---|---|---|
| answer | the status is answered at once | no |
| late | it is done, and then the status is answered | yes |
| refuse | the connection is closed in place of an answer | no |
| lost | it is done, and then the connection is closed | yes |
| half | it is done, and the connection is closed in the middle of the answer's body | yes |
| unread | the connection is reset in the middle of the request's body | no |
| hang | the answer comes so many `seconds` late | yes |
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Literal

Kind = Literal["answer", "late", "refuse", "lost", "half", "unread", "hang"]


@dataclass
class Fault:
    kind: Kind
    times: int = 1
    operation: str | None = None
    """Such as `PutObject`; None: any."""
    after: int = 0
    """How many requests that fit are left alone before."""
    status: int = 503
    code: str = "ServiceUnavailable"
    seconds: float = 0.0


class Faults:
    """The faults to come, and a count of all requests, by operation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._counts: Counter[str] = Counter()

    def set(self, faults: list[Fault]) -> None:
        with self._lock:
            self._faults = faults

    def counts(self, *, reset: bool = False) -> dict[str, int]:
        with self._lock:
            counts = dict(self._counts)
            if reset:
                self._counts.clear()
            return counts

    def note(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def next(self, operation: str) -> Fault | None:
        """Count a request, and say what shall go wrong with it."""
        with self._lock:
            self._counts[operation] += 1
            for fault in self._faults:
                if fault.times > 0 and fault.operation in (None, operation):
                    if fault.after > 0:
                        fault.after -= 1
                        return None
                    fault.times -= 1
                    return fault
        return None
