"""How long the first connection of all is tried: a wrong address is told soon, and a restart is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from locus.errors import BackendUnavailableError
from locus.memory import get_checkpointer
from locus.memory.backends.sql import engine as sql_engine
from tests.servers.ports import free_port

URLS = ["postgresql://u@127.0.0.1:{}/d", "mysql://u@127.0.0.1:{}/d", "oracle://u:p@127.0.0.1:{}/d"]


class Clock:
    """Time that passes only between attempts."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def seconds(self, _attempt: int) -> float:
        self.now += 0.25
        return 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sql_engine, "time", clock)
    monkeypatch.setattr(sql_engine, "BETWEEN_ATTEMPTS", clock)
    return clock


@pytest.mark.parametrize("url", URLS, ids=lambda url: url.partition(":")[0])
async def test_a_server_that_was_never_there_is_tried_for_a_second(url: str, clock: Clock) -> None:
    async with get_checkpointer(url.format(free_port())) as checkpointer:
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await checkpointer.load("t")
    assert 0 < clock.now < 2


@pytest.mark.parametrize("url", URLS, ids=lambda url: url.partition(":")[0])
async def test_one_that_was_there_or_that_retry_seconds_speaks_of_is_tried_longer(url: str, clock: Clock) -> None:
    place = url.format(free_port())
    async with get_checkpointer(f"{place}?retry_seconds=4") as checkpointer:
        with pytest.raises(BackendUnavailableError):
            await checkpointer.load("t")
    assert 4 < clock.now < 5
    async with get_checkpointer(place) as checkpointer:
        engine: Any = checkpointer.store.engine
        engine._was_connected = True
        clock.now = 0.0
        with pytest.raises(BackendUnavailableError):
            await checkpointer.load("t")
    assert 10 < clock.now < 11
