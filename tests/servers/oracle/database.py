"""One session's connection to PostgreSQL: several commands in one round trip, and statements that fail alone."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import pq

from tests.servers.oracle.failures import DatabaseError, DatabaseLostError

Status = pq.ExecStatus
MOST_PREPARED = 200
KILLED = "57P01"
PLAN_OUTDATED = "0A000"


@dataclass(frozen=True, slots=True)
class Command:
    """A statement of PostgreSQL's, with texts for its parameters; with types, it is prepared and kept."""

    sql: str
    values: tuple[bytes | None, ...] = ()
    types: tuple[int, ...] | None = None


BEGIN, COMMIT, ROLLBACK = (Command(word, (), ()) for word in ("BEGIN", "COMMIT", "ROLLBACK"))
SAVE = Command("SAVEPOINT statement", (), ())
UNDO = Command("ROLLBACK TO SAVEPOINT statement", (), ())
RELEASE = Command("RELEASE SAVEPOINT statement", (), ())


class Database:
    """Runs commands. `in_transaction` says whether there is something to commit."""

    def __init__(self, connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._prepared: OrderedDict[tuple[str, tuple[int, ...]], bytes] = OrderedDict()
        self._names = 0
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._socket = self._pg.socket
        self._loop.add_reader(self._socket, self._readable)
        connection.add_notice_handler(self._noticed)
        self._lost = self._killed = False
        self.in_transaction = False
        self.pid = self._pg.backend_pid
        self._user = ""

    @classmethod
    async def open(cls, url: str) -> Database:
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=10)
        return cls(connection)

    async def rest(self) -> bool:
        """Undo what is open, and be nobody's session; False if it can't be another's any more."""
        if self._lost or self._pg.transaction_status == pq.TransactionStatus.ACTIVE:
            return False
        try:
            if self._pg.transaction_status != pq.TransactionStatus.IDLE:
                await self.run(ROLLBACK)
            await self.run(Command("SELECT set_config('application_name', 'resting', false)", (), ()))
        except (DatabaseError, DatabaseLostError):
            return False
        self.in_transaction = False
        return True

    async def belong_to(self, user: str) -> None:
        """What was prepared for another user names that user's tables."""
        if self._user != user:
            self._prepared.clear()
            await self.run(Command("DEALLOCATE ALL"))
            self._user = user

    async def close(self) -> None:
        if not self._lost:
            self._loop.remove_reader(self._socket)
            self._lost = True
        await self._connection.close()

    def cancel(self) -> None:
        """Stop what is running, from outside of it."""
        asyncio.get_running_loop().create_task(self._connection.cancel_safe())

    async def run(self, *commands: Command) -> list[pq.abc.PGresult]:
        """All of them in one round trip. The first that fails is raised; those after it are not done."""
        if self._lost:
            raise DatabaseLostError(self._killed)
        try:
            return await self._run(commands)
        except (psycopg.OperationalError, OSError) as error:
            self._forget()
            raise DatabaseLostError(self._killed) from error

    async def begin(self, how: str = "") -> None:
        if not self.in_transaction:
            await self.run(Command(f"BEGIN {how}"))
            self.in_transaction = True

    async def change(self, *commands: Command, commit: bool = False, alone: bool = False) -> list[pq.abc.PGresult]:
        """Inside of the session's transaction. What fails is undone, and nothing before it.

        `alone` is for what ends savepoints, so that none of ours can be around it.
        """
        first = not self.in_transaction
        if alone or (first and commit and len(commands) == 1):
            return await self.run(*commands)
        before = BEGIN if first else SAVE
        after = [COMMIT] if commit else [] if first else [RELEASE]
        try:
            results = await self.run(before, *commands, *after)
        except DatabaseError:
            await self._undo(first)
            raise
        self.in_transaction = not commit
        return results[1 : 1 + len(commands)]

    async def query(self, command: Command) -> pq.abc.PGresult:
        """A query that locks nothing needs no transaction; inside of one, its failure must not end it."""
        try:
            return await self._query(command)
        except DatabaseError as error:
            if error.state != PLAN_OUTDATED or command.types is None:
                raise
        # Its table has got other columns since it was prepared.
        self._prepared.pop((command.sql, command.types), None)
        return await self._query(command)

    async def _query(self, command: Command) -> pq.abc.PGresult:
        if not self.in_transaction:
            return (await self.run(command))[0]
        try:
            results = await self.run(SAVE, command, RELEASE)
        except DatabaseError:
            await self._undo(first=False)
            raise
        return results[1]

    async def commit(self) -> None:
        if self._lost:  # with all that was to be committed
            raise DatabaseLostError(self._killed)
        if self.in_transaction:
            self.in_transaction = False
            await self.run(COMMIT)

    async def rollback(self) -> None:
        if self.in_transaction:
            self.in_transaction = False
            await self.run(ROLLBACK)

    async def _undo(self, first: bool) -> None:
        if first:
            self.in_transaction = False
            await self.run(ROLLBACK)
        else:
            await self.run(UNDO, RELEASE)

    async def _run(self, commands: Sequence[Command]) -> list[pq.abc.PGresult]:
        pg = self._pg
        if len(commands) == 1 and (name := self._known(commands[0])):
            return [await self._run_known(name, commands[0])]
        pg.enter_pipeline_mode()
        new: list[tuple[str, tuple[int, ...]]] = []
        expected: list[bool] = []
        for command in commands:
            self._send(command, new, expected)
        pg.pipeline_sync()
        await self._flush()
        results: list[pq.abc.PGresult] = []
        failure: DatabaseError | None = None
        for wanted in expected:
            for result in await self._results():
                if result.status == Status.FATAL_ERROR and failure is None:
                    failure = self._failure(result)
                if wanted:
                    results.append(result)
        await self._synchronised()
        pg.exit_pipeline_mode()
        if failure is not None:
            for key in new:
                self._prepared.pop(key, None)
            raise failure
        return results

    async def _flush(self) -> None:
        while self._pg.flush():
            room = asyncio.Event()
            self._loop.add_writer(self._socket, room.set)
            try:
                await room.wait()
            finally:
                self._loop.remove_writer(self._socket)

    def _known(self, command: Command) -> bytes | None:
        return self._prepared.get((command.sql, command.types)) if command.types is not None else None

    async def _run_known(self, name: bytes, command: Command) -> pq.abc.PGresult:
        """One command that is prepared already needs no pipeline."""
        self._pg.send_query_prepared(name, command.values)
        await self._flush()
        (result,) = await self._results()
        if result.status == Status.FATAL_ERROR:
            raise self._failure(result)
        return result

    def _failure(self, result: pq.abc.PGresult) -> DatabaseError:
        failure = DatabaseError(result)
        self._killed = self._killed or failure.state == KILLED
        if self._pg.status != pq.ConnStatus.OK or failure.state.startswith("57P"):
            self._forget()
        return failure

    def _send(self, command: Command, new: list[tuple[str, tuple[int, ...]]], expected: list[bool]) -> None:
        sql = command.sql.encode()
        if command.types is None:
            self._pg.send_query_params(sql, list(command.values) or None)
            expected.append(True)
            return
        key = (command.sql, command.types)
        name = self._prepared.get(key)
        if name is None:
            if len(self._prepared) >= MOST_PREPARED:
                old = self._prepared.popitem(last=False)[1]
                self._pg.send_query_params(b"DEALLOCATE " + old, None)
                expected.append(False)
            self._names += 1
            name = self._prepared[key] = b"s%d" % self._names
            new.append(key)
            self._pg.send_prepare(name, sql, list(command.types))
            expected.append(False)
        self._pg.send_query_prepared(name, list(command.values))
        expected.append(True)

    async def _results(self) -> list[pq.abc.PGresult]:
        """Those of one command, which end with none."""
        found = []
        while (result := await self._result()) is not None:
            found.append(result)
        return found

    async def _result(self) -> pq.abc.PGresult | None:
        while self._pg.is_busy():
            await self._readable_again()
        return self._pg.get_result()

    async def _synchronised(self) -> None:
        while True:
            result = await self._result()
            if result is not None and result.status == Status.PIPELINE_SYNC:
                return
            if self._pg.status != pq.ConnStatus.OK:
                return

    async def _readable_again(self) -> None:
        if self._lost:
            raise psycopg.OperationalError("the connection to PostgreSQL is lost")
        self._waiter = self._loop.create_future()
        await self._waiter

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        self._killed = self._killed or diagnostic.sqlstate == KILLED

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            self._pg.is_busy()  # looks at what has come, and finds what nobody has asked for
        except psycopg.OperationalError as error:
            self._pg.is_busy()
            self._forget()
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _forget(self) -> None:
        if not self._lost:
            self._lost = True
            self.in_transaction = False
            self._loop.remove_reader(self._socket)
