"""The cursors of a session: statements with what they have found, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from psycopg import pq

from tests.servers.oracle.answers import NO_DATA_FOUND, ROW_DATA, Answer
from tests.servers.oracle.database import Command
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.lexer import Statement
from tests.servers.oracle.lobs import Lobs
from tests.servers.oracle.parser import Translated
from tests.servers.oracle.types import (
    BLOB,
    CLOB,
    LONG,
    LONG_RAW,
    TEXTS,
    Bind,
    Column,
    Locator,
    Value,
    column_of,
    parameter_types,
    write_value,
)

TYPES = "numeric,int2,int4,int8,oid,text,varchar,name,unknown,bpchar,clob,blob,raw,jsonb,bool,timestamp,timestamptz"
TEXTS_TYPE = 1009
WANTED_TYPES = (
    "SELECT typname, oid FROM pg_type WHERE typname = ANY($1)"
    " AND typnamespace IN ('pg_catalog'::regnamespace, 'oracle_sys'::regnamespace)"
)


@dataclass(slots=True)
class Cursor:
    number: int
    statement: Statement
    made: Translated
    binds: list[Bind] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    defines: list[Bind] | None = None
    """What the client wants the columns as, if it has said so."""
    result: pq.abc.PGresult | None = None
    next_row: int = 0


class Results:
    """Between the client's types and PostgreSQL's."""

    def __init__(self, lobs: Lobs) -> None:
        self._lobs = lobs
        self._names: dict[int, str] = {}
        self._parameters: dict[int, int] = {}

    @staticmethod
    def question() -> Command:
        """The numbers of the types, which differ from database to database."""
        return Command(WANTED_TYPES, (f"{{{TYPES},float8}}".encode(),), (TEXTS_TYPE,))

    def learn(self, answer: pq.abc.PGresult) -> None:
        rows = [(answer.get_value(row, 0) or b"", answer.get_value(row, 1) or b"") for row in range(answer.ntuples)]
        named = {name.decode(): int(number) for name, number in rows}
        self._names = {number: name for name, number in named.items()}
        self._parameters = parameter_types(named)

    def command(self, cursor: Cursor, row: Sequence[Value]) -> Command:
        values: list[bytes | None] = []
        types: list[int] = []
        for parameter in cursor.made.parameters:
            bind = cursor.binds[parameter.bind]
            if bind.is_long and bind.type in TEXTS and not parameter.takes_long:
                # Error Messages, ORA-01461: more than 4000 bytes are for a column, and for no expression.
                raise OracleError(1461, "The value provided for the bind variable is too long for its place.")
            if bind.type not in self._parameters:
                raise OracleError(3001, f"unimplemented feature: binds of type {bind.type}")
            value = row[parameter.bind]
            values.append(self._lobs.value(value) if isinstance(value, Locator) else value)
            types.append(self._parameters[bind.type])
        return Command(cursor.made.commands[0], tuple(values), tuple(types))

    def columns(self, result: pq.abc.PGresult) -> list[Column]:
        found = []
        for at in range(result.nfields):
            type_ = self._names.get(result.ftype(at), f"type {result.ftype(at)}")
            found.append(column_of((result.fname(at) or b"").decode(), type_, result.fmod(at)))
        return found

    def fetch(self, cursor: Cursor, wanted: int, answer: Answer, in_transaction: bool) -> None:
        """The next rows. With the last of them goes ORA-01403, which ends the fetching."""
        result = cursor.result
        if result is None:
            raise OracleError(1002, "fetch out of sequence")
        end = min(cursor.next_row + wanted, result.ntuples)
        for row in range(cursor.next_row, end):
            answer.writer.u8(ROW_DATA)
            for at, column in enumerate(cursor.columns):
                wanted_as = cursor.defines[at].type if cursor.defines else column.type
                self._write(answer, result.get_value(row, at), column.type, wanted_as)
                if wanted_as in (LONG, LONG_RAW):
                    answer.writer.sb(0)
                    answer.writer.ub(0)
        cursor.next_row = end
        done = end == result.ntuples and wanted > 0
        error = OracleError(NO_DATA_FOUND, "no data found") if done else None
        answer.end(in_transaction, cursor=cursor.number, row_count=end, error=error)

    def returned(self, cursor: Cursor, results: Sequence[pq.abc.PGresult], answer: Answer) -> None:
        """For the binds after RETURNING … INTO."""
        outs = sorted(cursor.statement.returned)
        for result in results if outs else ():
            answer.writer.u8(ROW_DATA)
            columns = self.columns(result)
            for at, index in enumerate(outs):
                answer.writer.ub(result.ntuples)
                for row in range(result.ntuples):
                    self._write(answer, result.get_value(row, at), columns[at].type, cursor.binds[index].type)
                    answer.writer.sb(0)

    def _write(self, answer: Answer, data: bytes | None, type_: int, wanted: int) -> None:
        if type_ in (CLOB, BLOB) and wanted == type_:
            self._lobs.write_locator(answer.writer, data, type_)
        else:
            write_value(answer.writer, data, type_, wanted)
