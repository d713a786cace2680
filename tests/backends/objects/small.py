"""Small numbers, with which a thread of some dozen events is a long one, of which only the newest are read."""

from __future__ import annotations

import pytest

from locus.memory.backends.objects import engine, index, merge, read, texts
from locus.memory.backends.objects.read import Recent


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (merge, engine):
        monkeypatch.setattr(module, "FAN", 4)
    for module in (index, engine):
        monkeypatch.setattr(module, "RECENT", 4)
    monkeypatch.setattr(engine, "_NEWEST", Recent(3))
    monkeypatch.setattr(read, "_SLACK", 0)
    monkeypatch.setattr(texts, "_GAP", 64)
