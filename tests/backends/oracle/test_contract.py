"""The contract, kept by Oracle Database: by its stand-in, or by a real one that the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from locus.memory.backends import OracleCheckpointSaver, OracleSyncCheckpointSaver
from locus.memory.saver import CheckpointSaver
from locus.memory.store import CheckpointStore
from locus.testing import REQUIRED, SaverLaws
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.laws.handles.saver import OpenSaver
from tests.backends.effort import FewestRepetitions
from tests.backends.oracle.fixtures import oracle_place, oracle_proxy, oracle_store, oracle_tables
from tests.backends.oracle.stores import OracleStore, drop_tables, new_name, place_of
from tests.backends.proxied import is_behind_the_proxy
from tests.servers.oracle.fixtures import OracleDatabase

__all__ = ["oracle_place", "oracle_proxy", "oracle_store", "oracle_tables"]

pytestmark = pytest.mark.oracle


class OwnSavers(SaverLaws):
    """With savers of Oracle's own, each with connections of its own."""

    def make_saver(self, store: OracleStore) -> Any:
        return OracleCheckpointSaver(**place_of(store.database), **store.options)

    @pytest_asyncio.fixture
    async def open_saver(self, store: OracleStore) -> AsyncIterator[OpenSaver]:
        opened: list[CheckpointSaver] = []

        def open_one() -> CheckpointSaver:
            opened.append(self.make_saver(store))
            return opened[-1]

        yield open_one
        for saver in opened:
            await saver.close()


class TestOracle(FewestRepetitions, OwnSavers, DurableContract, StallLaws):
    required = REQUIRED["oracle"]
    # What stands in for the server is slow, and does the SQL of the other databases.
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 10, "vacuum": 10, "thread": 24}

    @pytest.fixture
    def store(
        self, oracle_place: OracleDatabase, oracle_store: OracleStore, request: pytest.FixtureRequest
    ) -> Iterator[OracleStore]:
        test = request.node.originalname
        if is_behind_the_proxy(request):
            yield oracle_store
        elif "new_store" in test or "first_uses" in test:
            # They are about a store that is not there yet.
            store = OracleStore(oracle_place, None, f"{oracle_place.prefix}{new_name()}")
            yield store
            drop_tables(oracle_place, store.table_name)
        else:
            yield OracleStore(oracle_place, None, oracle_store.table_name)


class Awaited:
    """Something that blocks, for laws that await."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    @property
    def store(self) -> CheckpointStore:
        store: CheckpointStore = self._blocking._wrapped.store
        return store

    @property
    def sync(self) -> Any:
        return self._blocking

    @property
    def backend(self) -> Awaited:
        return Awaited(self._blocking.backend)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._blocking, name)

        async def call(*values: Any, **named: Any) -> Any:
            return await asyncio.to_thread(method, *values, **named)

        return call


class TestOracleSyncSaver(OwnSavers):
    """The same laws, through the blocking saver."""

    required = REQUIRED["oracle"]

    def make_saver(self, store: OracleStore) -> Any:
        return Awaited(OracleSyncCheckpointSaver(**place_of(store.database), **store.options))

    @pytest.fixture
    def store(self, oracle_place: OracleDatabase, oracle_store: OracleStore) -> OracleStore:
        return OracleStore(oracle_place, None, oracle_store.table_name)
