"""The pure parts of the PostgreSQL engine, and what its driver's errors mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors as pg

from locus.errors import BackendUnavailableError, CorruptCheckpointError, LocusError, SerializationError
from locus.memory.backends.postgresql.client import Connector, translated, trouble_of
from locus.memory.backends.postgresql.schema import (
    FORMAT,
    MIGRATIONS,
    PostgreSQLFlavour,
    ddl,
    lock_number,
    numbered,
    statements,
)
from locus.memory.backends.postgresql.search import LONGEST_WORD, lexeme, vector
from locus.memory.backends.sql.engine import Trouble
from locus.memory.backends.sql.search import leaf_of, matches
from locus.memory.engine import NotAllowedError

SQL = PostgreSQLFlavour()
CONNECTOR = Connector({"host": "db", "dbname": "app", "password": "s3cret"}, 1.0, 1.0, True)
few = st.text(st.sampled_from("\0\x01\x02\x03a"), max_size=6)


@given(one=few, other=few)
def test_ids_are_told_apart_come_back_and_keep_their_order(one: str, other: str) -> None:
    assert SQL.read_text(SQL.text(one)) == one
    assert "\0" not in SQL.text(one)
    assert (SQL.text(one) < SQL.text(other)) == (one < other)


def test_question_marks_become_numbers_except_in_literals() -> None:
    assert numbered("a = ? AND b = '?' AND c IN (?, ?)") == "a = $1 AND b = '?' AND c IN ($2, $3)"


def test_names_are_quoted() -> None:
    sql = PostgreSQLFlavour("Agents", "State")
    assert sql.threads == '"State"."Agents_threads"'
    assert 'CREATE SCHEMA IF NOT EXISTS "State"' in ddl(sql)


def test_migrations_go_on_where_the_tables_are() -> None:
    assert len(MIGRATIONS) == FORMAT
    assert statements(SQL, FORMAT) == [f'UPDATE "locus_format" SET version = {FORMAT}']
    assert statements(SQL)[0].startswith('CREATE TABLE "locus_format"')
    assert lock_number(SQL) != lock_number(PostgreSQLFlavour("other"))
    assert -(2**63) <= lock_number(SQL) < 2**63


def test_words_and_their_places() -> None:
    assert vector('["Red, red; green!", {"key": "ÉTÉ"}]') == "'red':1,2 'green':3 'été':4"
    assert vector("[]") == ""
    long = "x" * (LONGEST_WORD + 1)
    assert len(lexeme(long)) < 40
    assert lexeme(long) != lexeme(long + "y")
    many = " ".join(f"{number:030}y" for number in range(30_000))
    assert vector(f'["{many}"]') is None


@pytest.mark.parametrize(
    ("error", "trouble", "kind", "told"),
    [
        (pg.SerializationFailure("x"), Trouble.ROLLED_BACK, BackendUnavailableError, "40001"),
        (pg.DeadlockDetected("x"), Trouble.ROLLED_BACK, BackendUnavailableError, "40P01"),
        (pg.AdminShutdown("x"), Trouble.LOST, BackendUnavailableError, "cannot be reached"),
        (pg.CannotConnectNow("x"), Trouble.LOST, BackendUnavailableError, "cannot be reached"),
        (pg.OperationalError("server closed the connection"), Trouble.LOST, BackendUnavailableError, "server closed"),
        (ConnectionResetError("reset"), Trouble.LOST, BackendUnavailableError, "reset"),
        (pg.TooManyConnections("x"), Trouble.LOST, BackendUnavailableError, "max_pool_size"),
        (pg.OperationalError("FATAL: sorry, too many clients already"), Trouble.LOST, BackendUnavailableError, "max_p"),
        (TimeoutError("too long"), Trouble.FINAL, BackendUnavailableError, "too long"),
        (pg.DiskFull("x"), Trouble.FINAL, BackendUnavailableError, "disk is full"),
        (pg.OutOfMemory("x"), Trouble.FINAL, BackendUnavailableError, "out of memory"),
        (pg.ReadOnlySqlTransaction("x"), Trouble.FINAL, BackendUnavailableError, "read-only"),
        (pg.InvalidPassword("x"), Trouble.FINAL, BackendUnavailableError, "password"),
        (pg.OperationalError("password authentication failed"), Trouble.FINAL, BackendUnavailableError, "pg_hba"),
        (pg.InvalidCatalogName("x"), Trouble.FINAL, BackendUnavailableError, "create it"),
        (pg.InsufficientPrivilege("x"), Trouble.FINAL, NotAllowedError, "granted"),
        (pg.QueryCanceled("x"), Trouble.FINAL, BackendUnavailableError, "statement_timeout"),
        (pg.UndefinedTable("x"), Trouble.FINAL, CorruptCheckpointError, "tables"),
        (pg.DataCorrupted("x"), Trouble.FINAL, CorruptCheckpointError, "tables"),
        (pg.ProgramLimitExceeded("x"), Trouble.FINAL, SerializationError, "hold"),
        (pg.InternalError_("x"), Trouble.FINAL, BackendUnavailableError, "XX000"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_errors_mean(error: Exception, trouble: Trouble, kind: type[LocusError], told: str) -> None:
    assert trouble_of(error) is trouble
    found = translated(error, CONNECTOR)
    assert type(found) is kind
    assert told in str(found)


def test_passwords_in_the_driver_s_text_are_hidden() -> None:
    error = pg.OperationalError("connection to s3cret failed\nDETAIL: s3cret")
    assert "s3cret" not in str(translated(error, CONNECTOR))
    assert "s3cret" not in repr(CONNECTOR) + str(CONNECTOR)


def test_a_value_at_a_path() -> None:
    payload = {"a": [{"b": 1, "c": [1.0, "x"]}, {"b": True}], "d": {"e": None}, "f": []}
    assert matches(payload, ("a", "b"), 1)
    assert matches(payload, ("a", "b"), True)
    assert not matches(payload, ("a", "b"), 1.0)
    assert matches(payload, ("a", "c"), "x")
    assert matches(payload, ("a", "c"), [1.0, "x"])
    assert not matches(payload, ("a", "c"), [1.0])
    assert matches(payload, ("a",), {"b": 1})
    assert matches(payload, ("d",), {"e": None})
    assert matches(payload, ("f",), [])
    assert not matches(payload, ("f",), None)
    assert not matches(payload, ("d", "e", "g"), None)
    assert leaf_of({"a": [[], {"b": 5}]}) == "5"
    assert leaf_of({"a": []}) is None
