"""One back-off for everything that is tried again."""

from __future__ import annotations

import pytest

from locus.memory.runtime.retry import Backoff


def test_pauses_grow_to_the_longest_and_stay_there() -> None:
    backoff = Backoff(0.1, 2.0, factor=3.0, random_part=0.0)
    assert [backoff.seconds(attempt) for attempt in range(5)] == pytest.approx([0.1, 0.3, 0.9, 2.0, 2.0])
    assert backoff.seconds(10**9) == 2.0


def test_a_part_of_each_pause_is_random() -> None:
    backoff = Backoff(1.0, 1.0, random_part=0.5)
    pauses = {backoff.seconds(0) for _ in range(100)}
    assert len(pauses) > 50
    assert 0.5 <= min(pauses) <= max(pauses) <= 1.0


async def test_waiting_takes_that_long(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("locus.memory.runtime.retry.asyncio.sleep", sleep)
    monkeypatch.setattr("locus.memory.runtime.retry.time.sleep", waited.append)
    backoff = Backoff(0.25, 1.0, random_part=0.0)
    await backoff.pause(1)
    backoff.block(2)
    assert waited == [0.5, 1.0]
