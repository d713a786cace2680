"""A save in three round trips, or in two if it adds nothing to any list.

A save that continues what this handle saved last needs no questions (see `sql_chain`):

    UPDATE locus_threads SET last_seq = 8, … WHERE id = 5 AND last_seq = 7 AND removals = 0 AND …
    INSERT INTO locus_runs …                        all runs of the save at once
    INSERT INTO locus_checkpoints …                 together with the commit

The UPDATE locks the thread's row and raises its counter; if it finds none, something has happened to the thread,
and nothing is written. A new thread begins with the INSERT of its row. An id that is taken is a unique key that is
taken (ORA-00001). In all these cases the save is decided on step by step, under a lock on the thread's row. Metadata
costs one round trip more, and so does a large value, which is looked for first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from locus.memory.backends.oracle.client import OracleConnection
from locus.memory.backends.oracle.commit import OracleThread, expiry
from locus.memory.backends.oracle.oracle_binds import Returned
from locus.memory.backends.oracle.oracle_errors import DUPLICATE, has_code, oracledb
from locus.memory.backends.oracle.oracle_flavour import OracleFlavour
from locus.memory.backends.sql.flavour import run_steps_async
from locus.memory.backends.sql.read import now
from locus.memory.backends.sql.sql_chain import Chain
from locus.memory.model.records import Commit, Outcome, Verdict


async def in_chain(sql: OracleFlavour, connection: OracleConnection, commit: Commit, chain: Chain) -> Outcome | None:
    """Save without a question; None if something is in the way, and then nothing was written."""
    outcome = Outcome(Verdict.COMMITTED, chain.seq + 1, chain.base.checkpoint_id)
    try:
        async with _transaction(connection):
            await connection.execute(
                f"UPDATE {sql.threads} SET last_seq = ?, expires_at = ? WHERE id = ? AND last_seq = ? AND removals = ?"
                " AND (expires_at IS NULL OR expires_at > ?)",
                (outcome.seq, expiry(sql, commit), chain.key, chain.seq, chain.removals, now(sql)),
            )
            if connection.changed != 1:
                await connection.rollback()
                return None
            await _write(connection, OracleThread(sql, chain.key, commit.thread_id, chain.seq), commit, outcome)
    except oracledb.Error as error:
        if not has_code(error, DUPLICATE):
            raise
        return None
    return outcome


async def in_new_thread(sql: OracleFlavour, connection: OracleConnection, commit: Commit) -> int | None:
    """Begin a thread, and return its key; None if it is there already, and then nothing was written."""
    try:
        async with _transaction(connection):
            ((key,),) = await connection.execute(
                f"INSERT INTO {sql.threads} (thread_id, last_seq, expires_at) VALUES (?, 1, ?) RETURNING id INTO ?",
                (sql.text(commit.thread_id), expiry(sql, commit), Returned()),
            )
            thread = OracleThread(sql, int(key), commit.thread_id, 0)
            await _write(connection, thread, commit, Outcome(Verdict.COMMITTED, 1))
    except oracledb.Error as error:
        if not has_code(error, DUPLICATE):
            raise
        return None
    return thread.key


@asynccontextmanager
async def _transaction(connection: OracleConnection) -> AsyncIterator[None]:
    """One that is committed by its last statement, and rolled back if something goes wrong."""
    await connection.begin(writing=True)
    try:
        yield
    except Exception:
        if connection.in_transaction():
            await connection.rollback()
        raise


async def _write(connection: OracleConnection, thread: OracleThread, commit: Commit, outcome: Outcome) -> None:
    there = await run_steps_async(thread.known_values(commit), connection.execute)
    *first, last = [*thread.written_runs(commit, outcome, there), *thread.written_checkpoint(commit, outcome)]
    for statement in first:
        await connection.execute(*statement)
    await connection.execute(*last, commit=True)
