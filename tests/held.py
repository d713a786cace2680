"""Work that a test holds up: it has begun when `begun` is set, and ends when `go` is."""

from __future__ import annotations

import threading


class Held:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, _resource: object) -> bool:
        self.begun.set()
        return self.go.wait(30)
