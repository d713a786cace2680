"""The contract, kept by Oracle Database: by its stand-in, or by a real one that the environment names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from locus.memory.backends import OracleCheckpointSaver, OracleSyncCheckpointSaver
from locus.memory.saver import CheckpointSaver
from locus.memory.threads import Threads
from locus.testing import REQUIRED, SaverLaws
from locus.testing.durable import DurableContract
from locus.testing.laws.saver_checkpoints import OpenSaver
from tests.contract.effort import FewerRepetitions
from tests.integration.oracle.places import oracle_place, oracle_proxy, oracle_store, oracle_tables
from tests.integration.oracle.stores import OracleStore, drop_tables, new_name, place_of
from tests.oracle_server import OracleDatabase

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


class TestOracle(FewerRepetitions, OwnSavers, DurableContract):
    required = REQUIRED["oracle"]
    # What is atomic here is the server's transaction; the shared steps are tried at every line elsewhere.
    line_samples = 4
    line_step = 40
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 12, "vacuum": 12, "thread": 30}
    examples_and_steps: ClassVar[tuple[int, int]] = (4, 20)

    @pytest.fixture
    def store(
        self, oracle_place: OracleDatabase, oracle_store: OracleStore, request: pytest.FixtureRequest
    ) -> Iterator[OracleStore]:
        # Those that are about a store that is not there yet get one.
        if "new_store" in request.node.name or "first_uses" in request.node.name:
            store = OracleStore(oracle_place, oracle_store.proxy, f"{oracle_place.prefix}{new_name()}")
            yield store
            drop_tables(oracle_place, store.table_name)
        else:
            yield oracle_store


class Awaited:
    """Something that blocks, for laws that await."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    @property
    def threads(self) -> Threads:
        threads: Threads = self._blocking._saver.threads
        return threads

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
    def store(self, oracle_store: OracleStore) -> OracleStore:
        return oracle_store
