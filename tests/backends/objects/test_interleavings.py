"""The object layout in a world of many processes, of which some fail between any two requests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from locus.testing.data import SOAK
from tests.backends.objects.world import World


@settings(
    max_examples=2_000 if SOAK else 16,
    deadline=None,
    derandomize=not SOAK,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), processes=st.integers(2, 4))
@example(seed=1, processes=3)
async def test_any_interleaving_leaves_what_its_events_say(seed: int, processes: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        world = World(seed, monkeypatch)
        await world.run(processes, steps=25)
        await world.check()
        for _ in range(3):
            world.clock.seconds += 4_000
            await world._sweep(world.handle(), "")
            await world.check()
