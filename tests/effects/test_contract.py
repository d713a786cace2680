"""Effects keep their laws on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from locus.testing import EffectLaws, EffectProcessLaws
from locus.testing.data import HOSTILE_IDS
from locus.testing.stores import DurableTestStore, TestStore
from tests.backends.embedded import FileStore, SQLiteStore
from tests.backends.every_store import SERVERS, MemoryStore, durable_store


class TestEffectsInMemory(EffectLaws):
    effect_ids = HOSTILE_IDS

    @pytest.fixture
    def store(self) -> TestStore:
        return MemoryStore()


class TestEffectsInFiles(EffectLaws, EffectProcessLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return FileStore(tmp_path)


class TestEffectsInSQLite(EffectLaws, EffectProcessLaws):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableTestStore:
        return SQLiteStore(tmp_path)


MADE_UNREACHABLE = (
    "test_an_outage_makes_no_call_and_repeats_none",
    "test_an_effect_of_a_process_that_was_killed_is_unknown_until_somebody_knows",
)


class OnServers(EffectProcessLaws):
    effect_ids = ("'", "%", "a/b", "a", "a ", "\0", "ß", "ss")
    made_at_once = 3

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[DurableTestStore]:
        is_unreachable = request.node.originalname in MADE_UNREACHABLE
        with durable_store(name, request, tmp_path, behind_proxy=is_unreachable) as store:
            yield store


@pytest.mark.parametrize("name", [store for store in SERVERS if store.values[0] in ("postgresql", "redis")])
class TestEffectsOnServers(OnServers, EffectLaws):
    """All laws where the other laws of effects are tried with several databases."""


@pytest.mark.parametrize("name", [store for store in SERVERS if store.values[0] not in ("postgresql", "redis")])
class TestEffectsOnOtherServers(OnServers):
    """What the store has a part in; the rest is built on that."""
