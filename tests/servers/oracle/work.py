"""What a session does: it executes statements, one call after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psycopg import pq

from tests.servers.oracle.answers import ARRAY_ERRORS, Answer
from tests.servers.oracle.calls import (
    COMMIT,
    LOGOFF,
    PIPELINE_END,
    ROLLBACK,
    Call,
    Execute,
    Fetch,
    LobCall,
    Logon,
    Option,
    Simple,
)
from tests.servers.oracle.cursors import Cursor, Results
from tests.servers.oracle.database import Command, Database
from tests.servers.oracle.errors import OracleError, translated_error
from tests.servers.oracle.failures import DatabaseError
from tests.servers.oracle.grammar import translate
from tests.servers.oracle.lexer import Statement
from tests.servers.oracle.lobs import Lobs
from tests.servers.oracle.parser import Translated
from tests.servers.oracle.requests import read_statement
from tests.servers.oracle.settings import path, setting, zone
from tests.servers.oracle.types import LARGE, Value

STOP_AT_ERROR = 2
MOST_CURSORS = 300
"""Database Reference, "OPEN_CURSORS": 50, unless it is set; this is what installations set it to."""
SHORT_WAIT = 100
"""Milliseconds: as good as none, and enough for locks of PostgreSQL's own that Oracle has not."""
IGNORED_SETTINGS = ("NLS_", "TXN_", "PLSQL_", "OPTIMIZER_", "STATISTICS_")


class Worker:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.user = ""
        self.cursors: dict[int, Cursor] = {}
        self._lobs = Lobs()
        self._results = Results(self._lobs)
        self._last = 0
        self._pipeline = 0
        self._failed = False
        self._definition_wait = 0

    async def begin(self, user: str, serial: int, alter_session: str) -> None:
        self.user = user
        await self.database.belong_to(user)
        said = re.search(r"TIME_ZONE='([^']*)'", alter_session)
        results = await self.database.run(
            setting("application_name", f"oracle:{user} {serial}"),
            setting("search_path", path(user)),
            setting("TimeZone", zone(said[1] if said else "+00:00")),
            setting("DateStyle", "ISO"),
            setting("default_transaction_isolation", "read committed"),
            self._results.question(),
        )
        self._results.learn(results[-1])

    async def do(self, call: Call, answer: Answer) -> bool:
        """Answer a call; False if it was the last."""
        for number in call.closed:
            self.cursors.pop(number, None)
        self._lobs.free(call.freed)
        if call.schema is not None:
            await self.database.run(setting("search_path", path(call.schema.upper())))
        if call.pipeline:
            self._pipeline, self._failed = call.pipeline, False
        if self._pipeline == STOP_AT_ERROR and self._failed and not isinstance(call.body, Simple):
            raise OracleError(43610, "Pipeline operation was aborted because of an error in a previous operation.")
        try:
            return await self._do(call.body, answer)
        except Exception:
            self._failed = True
            raise

    async def _do(self, body: Logon | Execute | Fetch | LobCall | Simple, answer: Answer) -> bool:
        if isinstance(body, Simple):
            return await self._simple(body, answer)
        if isinstance(body, Execute):
            await self._execute(body, answer)
        elif isinstance(body, Fetch):
            if body.cursor not in self.cursors:
                raise OracleError(1001, "invalid cursor")
            self._fetch(self.cursors[body.cursor], body.rows_wanted, answer)
        elif isinstance(body, LobCall):
            self._lobs.do(body, answer)
            answer.end(self.database.in_transaction)
        return True

    async def _simple(self, body: Simple, answer: Answer) -> bool:
        if body.code == COMMIT:
            await self._commit()
        elif body.code in (ROLLBACK, LOGOFF):
            await self.database.rollback()
        elif body.code == PIPELINE_END:
            self._pipeline = 0
        answer.status(self.database.in_transaction)
        return body.code != LOGOFF

    async def _commit(self) -> None:
        try:
            await self.database.commit()
        except DatabaseError as error:
            why = translated_error(error, "", self.user)
            raise OracleError(2091, f"transaction rolled back\n{why.text}") from error

    def _cursor(self, call: Execute) -> Cursor:
        if call.text is None or call.cursor in self.cursors:
            if call.cursor not in self.cursors:
                raise OracleError(1001, "invalid cursor")
            return self.cursors[call.cursor]
        statement, made = read_statement(call.text), translate(call.text)
        if isinstance(statement, OracleError):
            raise statement
        if isinstance(made, OracleError):
            raise made
        if len(self.cursors) >= MOST_CURSORS:
            raise OracleError(1000, "maximum open cursors exceeded")
        self._last += 1
        return Cursor(self._last, statement, made)

    async def _execute(self, call: Execute, answer: Answer) -> None:
        cursor = self._cursor(call)
        if call.binds is not None:
            cursor.binds = call.binds
        _check_binds(call, cursor.binds, cursor.statement)
        self.cursors[cursor.number] = cursor
        if call.defines is not None:
            cursor.defines = call.defines
            self._fetch(cursor, call.rows_wanted if call.has(Option.FETCH) else 0, answer)
        elif cursor.made.kind == "query":
            await self._query(call, cursor, answer)
        elif not call.has(Option.EXECUTE):
            answer.end(self.database.in_transaction, cursor=cursor.number)
        elif cursor.made.kind == "change":
            await self._change(call, cursor, answer)
        else:
            await self._other(cursor.made)
            if call.has(Option.COMMIT):
                await self._commit()
            answer.end(self.database.in_transaction, cursor=cursor.number)

    async def _query(self, call: Execute, cursor: Cursor, answer: Answer) -> None:
        command = self._results.command(cursor, call.rows[0] if call.rows else [None] * len(cursor.binds))
        try:
            if not call.has(Option.EXECUTE):
                only_described = f"SELECT * FROM ({command.sql}) AS described LIMIT 0"
                result = await self.database.query(Command(only_described, command.values, command.types))
            elif cursor.made.locks:
                result = await self._locking(command, cursor.made)
            else:
                result = await self.database.query(command)
        except DatabaseError as error:
            raise translated_error(error, cursor.made.verb, self.user) from error
        columns = self._results.columns(result)
        changed = columns != cursor.columns
        cursor.columns, cursor.result, cursor.next_row = columns, result, 0
        if changed or call.has(Option.PARSE):
            cursor.defines = None
            answer.describe(columns)
        large = any(column.type in LARGE for column in columns)
        self._fetch(cursor, call.rows_wanted if call.has(Option.FETCH) and not large else 0, answer)

    def _fetch(self, cursor: Cursor, wanted: int, answer: Answer) -> None:
        self._results.fetch(cursor, wanted, answer, self.database.in_transaction)

    async def _locking(self, command: Command, made: Translated) -> pq.abc.PGresult:
        if made.wait is None:
            return (await self.database.change(command))[0]
        wait = Command(f"SET LOCAL lock_timeout = {max(1, made.wait * 1000)}")
        try:
            results = await self.database.change(wait, command, Command("SET LOCAL lock_timeout = 0"))
        except DatabaseError as error:
            if error.state == "55P03":
                raise OracleError(30006, "resource busy; acquire with WAIT timeout expired") from error
            raise
        return results[1]

    async def _other(self, made: Translated) -> None:
        database = self.database
        if made.kind == "definition":
            await self._definition(made)
        elif made.kind == "setting":
            await self._set(made.details)
        elif made.kind == "commit":
            await self._commit()
        elif made.kind == "rollback" and not made.details:
            await database.rollback()
        elif made.kind == "rollback":
            await self._back_to(made.details[0])
        elif made.kind == "savepoint":
            await database.begin()
            await database.run(Command(f"SAVEPOINT {made.details[0]}"))
        elif made.kind == "transaction":
            if database.in_transaction:
                raise OracleError(1453, "SET TRANSACTION must be first statement of transaction")
            await database.begin(made.details[0])
        else:
            raise OracleError(3001, f"unimplemented feature: a PL/SQL {made.kind}")

    async def _back_to(self, savepoint: str) -> None:
        try:
            await self.database.change(Command(f"ROLLBACK TO SAVEPOINT {savepoint}"), alone=True)
        except DatabaseError as error:
            raise OracleError(1086, f"savepoint {savepoint} never established in this session or is invalid") from error

    async def _set(self, settings: Sequence[str]) -> None:
        for pair in settings:
            key, _, value = pair.partition("=")
            if key == "CURRENT_SCHEMA":
                await self.database.run(setting("search_path", path(value)))
            elif key == "TIME_ZONE":
                await self.database.run(setting("TimeZone", zone(value)))
            elif key == "DDL_LOCK_TIMEOUT":
                self._definition_wait = int(value) * 1000
            elif key == "ISOLATION_LEVEL":
                level = "repeatable read" if value == "SERIALIZABLE" else "read committed"
                await self.database.run(setting("default_transaction_isolation", level))
            elif not key.startswith(IGNORED_SETTINGS):
                raise OracleError(2248, "invalid option for ALTER SESSION")

    async def _definition(self, made: Translated) -> None:
        """SQL Language Reference, "COMMIT": a definition commits before it is done, and after.

        For a table that somebody else is changing it does not wait, but for as long as DDL_LOCK_TIMEOUT says.
        """
        await self._commit()
        wait = Command(f"SET LOCAL lock_timeout = {self._definition_wait or SHORT_WAIT}")
        try:
            await self.database.change(wait, *(Command(sql) for sql in made.commands), commit=True)
        except DatabaseError as error:
            raise translated_error(error, made.verb, self.user) from error

    async def _change(self, call: Execute, cursor: Cursor, answer: Answer) -> None:
        rows: Sequence[Sequence[Value]] = call.rows or [[None] * len(cursor.binds)] * max(call.times, 1)
        commit = call.has(Option.COMMIT)
        commands = [self._results.command(cursor, row) for row in rows]
        if call.has(Option.BATCH_ERRORS):
            await self._batch(commands, cursor, answer, commit)
            return
        try:
            if cursor.made.check:
                await self.database.query(Command(cursor.made.check, (), ()))
            results = await self.database.change(*commands, commit=commit)
        except DatabaseError as error:
            if len(commands) == 1:
                raise translated_error(error, cursor.made.verb, self.user) from error
            await self._until_failure(commands, cursor, answer)
            return
        counts = [result.command_tuples or 0 for result in results]
        if call.counts_wanted:
            answer.row_counts(counts)
        self._results.returned(cursor, results, answer)
        answer.end(self.database.in_transaction, cursor=cursor.number, row_count=sum(counts))

    async def _until_failure(self, commands: Sequence[Command], cursor: Cursor, answer: Answer) -> None:
        """Of many rows, those before the one that fails stay: only that one is undone."""
        done, failure = 0, None
        for command in commands:
            try:
                done += (await self.database.change(command))[0].command_tuples or 0
            except DatabaseError as error:
                failure = translated_error(error, cursor.made.verb, self.user)
                break
        answer.end(self.database.in_transaction, cursor=cursor.number, row_count=done, error=failure)

    async def _batch(self, commands: Sequence[Command], cursor: Cursor, answer: Answer, commit: bool) -> None:
        """python-oracledb's batch errors: each row is for itself."""
        failed: list[tuple[int, OracleError]] = []
        done = 0
        for offset, command in enumerate(commands):
            try:
                done += (await self.database.change(command))[0].command_tuples or 0
            except DatabaseError as error:
                failed.append((offset, translated_error(error, cursor.made.verb, self.user)))
        if commit:
            await self._commit()
        told = OracleError(ARRAY_ERRORS, "error(s) in array DML") if failed else None
        answer.end(self.database.in_transaction, cursor=cursor.number, row_count=done, error=told, batch=failed)


def _check_binds(call: Execute, binds: Sequence[object], statement: Statement) -> None:
    """The driver counts them, too: what comes here was not bound at all."""
    if call.defines is None and len(binds) != len(statement.binds):
        raise OracleError(1008, "not all variables bound")
