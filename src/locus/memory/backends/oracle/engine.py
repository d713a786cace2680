"""The engine for Oracle Database. Needs python-oracledb; see `oracle` for the public names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from locus.errors import CheckpointError
from locus.memory.backends.oracle import oracle_save
from locus.memory.backends.oracle import read as oracle_read
from locus.memory.backends.oracle import search as oracle_search
from locus.memory.backends.oracle.client import Address, OracleConnection
from locus.memory.backends.oracle.commit import OracleThread, OracleThreads
from locus.memory.backends.oracle.oracle_errors import DRIVER_ERRORS, translated, trouble_of
from locus.memory.backends.oracle.oracle_flavour import NATIVE, OracleFlavour
from locus.memory.backends.oracle.oracle_setup import Setup
from locus.memory.backends.sql.commit import is_written
from locus.memory.backends.sql.engine import SQLServerEngine, Trouble
from locus.memory.backends.sql.sql_chain import Chains, can_be_first
from locus.memory.backends.sql.sql_pool import PoolOptions
from locus.memory.model.records import (
    Commit,
    Entry,
    Hit,
    Outcome,
    Stored,
    Verdict,
)


class OracleEngine(SQLServerEngine[OracleConnection]):
    """Threads in Oracle Database."""

    dialect = NATIVE
    driver_errors = DRIVER_ERRORS
    sql: OracleFlavour

    def __init__(
        self,
        address: Address,
        sql: OracleFlavour,
        pool: PoolOptions,
        *,
        auto_create_table: bool,
        retry_seconds: float,
    ) -> None:
        self._threads = OracleThreads(sql)
        super().__init__(sql, self._threads, pool, retry_seconds=retry_seconds)
        self._address = address
        self._setup = Setup(address, sql, auto_create_table=auto_create_table)
        self._chains = Chains()

    @property
    def identity(self) -> str:
        return f"oracle:{self._address}/{self.sql.threads.lower()}"

    async def _connect(self) -> OracleConnection:
        return await self._address.connect()

    def trouble(self, error: BaseException) -> Trouble:
        return trouble_of(error)

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, str(self._address), self._address.secrets)

    async def setup(self) -> None:
        making = not self.reading_only
        if not await self._insist(lambda connection: self._setup.run(connection, making=making), repeatable=True):
            raise self.nothing_there()

    async def _commit(self, connection: OracleConnection, commit: Commit) -> Outcome:
        """Without a question, if nothing is in the way; what that is, the steps of the slower way find out."""
        connection.committing = True
        chain = self._chains.get(commit.thread_id)
        if chain is not None and chain.continued_by(commit, any_id=True):
            outcome = await oracle_save.in_chain(self.sql, connection, commit, chain)
            if outcome is not None:
                self._chains.note(commit, chain.key, outcome.seq, chain.removals, chain)
                return outcome
        self._chains.forget(commit.thread_id)
        if chain is None and can_be_first(commit):
            key = await oracle_save.in_new_thread(self.sql, connection, commit)
            if key is not None:
                self._chains.note(commit, key, 1, 0)
                return Outcome(Verdict.COMMITTED, 1)
        used: list[OracleThread] = []
        outcome = await self._transact(
            connection, lambda: self._threads.commit_in(commit, used), writing=True, keep=is_written
        )
        for thread in used:
            self._chains.note(commit, thread.key, outcome.seq, thread.removals)
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        return await self._read(lambda: oracle_read.read(self.sql, thread_id, namespace, checkpoint_id))

    async def find(self, key: str, value: str, limit: int) -> list[Entry]:
        return await self._read(lambda: oracle_read.find(self.sql, key, value, limit))

    async def search(self, terms: Sequence[str], limit: int) -> list[Hit]:
        # Those who save meanwhile do not keep it going.
        while await self._index_more():
            pass
        return await self._read(lambda: oracle_search.search(self.sql, terms, limit))

    async def _index_more(self) -> bool:
        """Index a portion; whether there may be more."""
        portion = await self._read(lambda: oracle_search.next_portion(self.sql))
        if portion.threads:
            texts = await asyncio.to_thread(oracle_search.texts_of, self.sql, portion)
            await self._write(partial(oracle_search.add, self.sql, portion, texts), repeatable=True)
        return portion.is_full
