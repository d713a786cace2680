"""How PostgreSQL fails; `errors` says what that is in Oracle."""

from __future__ import annotations

from psycopg import pq


class DatabaseLostError(Exception):
    """PostgreSQL has closed the connection; `killed` if an administrator told it to."""

    def __init__(self, killed: bool = False) -> None:
        super().__init__()
        self.killed = killed


class DatabaseError(Exception):
    """PostgreSQL's own error, with what it says about the table, the column and the constraint."""

    def __init__(self, result: pq.abc.PGresult) -> None:
        def said(what: pq.DiagnosticField) -> str:
            return (result.error_field(what) or b"").decode()

        self.state = said(pq.DiagnosticField.SQLSTATE)
        self.message = said(pq.DiagnosticField.MESSAGE_PRIMARY)
        self.detail = said(pq.DiagnosticField.MESSAGE_DETAIL)
        self.schema = said(pq.DiagnosticField.SCHEMA_NAME)
        self.table = said(pq.DiagnosticField.TABLE_NAME)
        self.column = said(pq.DiagnosticField.COLUMN_NAME)
        self.constraint = said(pq.DiagnosticField.CONSTRAINT_NAME)
        super().__init__(f"{self.state} {self.message}")
