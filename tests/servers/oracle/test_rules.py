"""The rules of the database that bite, each shown by a client that breaks it."""

from __future__ import annotations

from typing import Any

import oracledb
import pytest

IntegrityError = oracledb.IntegrityError


def refused(cursor: oracledb.Cursor, text: str, values: Any = ()) -> str:
    """The code that a statement is refused with."""
    with pytest.raises(oracledb.DatabaseError) as caught:
        cursor.execute(text, values)
    return str(caught.value.args[0].full_code)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("INSERT INTO {} (id, name) VALUES (1, 'b')", "ORA-00001"),
        ("INSERT INTO {} (id, name) VALUES (2, 'a')", "ORA-00001"),
        ("INSERT INTO {} (id) VALUES (NULL)", "ORA-01400"),
        ("UPDATE {} SET needed = NULL", "ORA-01407"),
        ("INSERT INTO {} (id, needed) VALUES (2, '')", "ORA-01400"),
        ("INSERT INTO {} (id, parent) VALUES (2, 77)", "ORA-02291"),
        ("INSERT INTO {} (id, name) VALUES (2, 'ääääää')", "ORA-12899"),
        ("INSERT INTO {} (id, wide) VALUES (2, '12345678901')", "ORA-12899"),
        ("INSERT INTO {} (id) VALUES (1234567890)", "ORA-01438"),
        ("INSERT INTO {} (id, part) VALUES (2, 12345.5)", "ORA-01438"),
        ("INSERT INTO {} (id) VALUES ('x')", "ORA-01722"),
        ("INSERT INTO {} (id, doc) VALUES (2, '{{no json')", "ORA-40441"),
        ("INSERT INTO {} VALUES (1, 2)", "ORA-00947"),
        ("INSERT INTO {} (id, nothing) VALUES (1, 2)", "ORA-00904"),
        ("SELECT nothing FROM {}", "ORA-00904"),
        ("SELECT id FROM {}_nowhere", "ORA-00942"),
        ("SELECT a.id FROM {0} a, {0} b WHERE id = 1", "ORA-00918"),
        ("SELECT name, COUNT(*) FROM {}", "ORA-00979"),
        ("SELECT (SELECT id FROM {0} UNION ALL SELECT id FROM {0}) FROM dual", "ORA-01427"),
        ("SELECT 1 / 0 FROM {}", "ORA-01476"),
        ("SELECT id FROM {} ORDER BY text", "ORA-00932"),
        ("SELECT id FROM {} WHERE text = 'x'", "ORA-00932"),
        ("SELECT DISTINCT text FROM {}", "ORA-00932"),
        ("SELECT COUNT(*) FROM {} FOR UPDATE", "ORA-01786"),
        ("CREATE TABLE {} (id NUMBER)", "ORA-00955"),
        ("CREATE INDEX {}_again ON {} (id)", "ORA-01408"),
        ("CREATE TABLE {}_twice (a NUMBER, a NUMBER)", "ORA-00957"),
        ("ALTER TABLE {} ADD (name NUMBER)", "ORA-01430"),
        ("ALTER TABLE {} ADD (must NUMBER NOT NULL)", "ORA-01758"),
        ("TRUNCATE TABLE {}", "ORA-02266"),
        ("DROP TABLE {}_nowhere", "ORA-00942"),
        ("DROP INDEX {}_nowhere", "ORA-01418"),
        ("GRANT SELECT ON {} TO nobody_at_all", "ORA-01917"),
        ("SELECT id FROM {} WHERE JSON_TEXTCONTAINS(doc, '$', 'word')", "ORA-40467"),
        ("ALTER SESSION SET nonsense = 1", "ORA-02248"),
    ],
)
def test_what_the_database_refuses(cursor: oracledb.Cursor, things: str, text: str, code: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, name) VALUES (1, 'a')")
    # So that a definition, which commits, finds a row.
    statement = text.format(*[things] * (text.count("{}") or 1))
    if code == "ORA-02266":
        cursor.execute(f"CREATE TABLE {things}_child (id NUMBER REFERENCES {things} (id))")
    assert refused(cursor, statement) == code
    if code == "ORA-02266":
        cursor.execute(f"DROP TABLE {things}_child")


def test_an_empty_string_is_null(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, name, wide) VALUES (1, :1, '')", [""])
    assert cursor.execute(f"SELECT name, wide FROM {things} WHERE name IS NULL").fetchall() == [(None, None)]
    assert cursor.execute(f"SELECT id FROM {things} WHERE name = ''").fetchall() == []
    assert cursor.execute("SELECT 'a' || NULL || '', TRIM(' '), REPLACE('a', 'a') FROM dual").fetchone() == (
        "a",
        None,
        None,
    )


def test_names_fold_to_upper_case_unless_they_are_quoted(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f'SELECT Id, "NAME", id AS "as Said" FROM {things.upper()}')
    assert [column.name for column in cursor.description or []] == ["ID", "NAME", "as Said"]
    assert refused(cursor, f'SELECT "id" FROM {things}') == "ORA-00904"
    assert refused(cursor, f'SELECT id FROM "{things}"') == "ORA-00942"


def test_the_error_names_the_constraint(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")
    with pytest.raises(IntegrityError, match=rf"ORA-00001: unique constraint \(\w+\.{things.upper()}_KEY\) violated"):
        cursor.execute(f"INSERT INTO {things} (id) VALUES (1)")


def test_binds_are_counted_and_named_by_the_driver(cursor: oracledb.Cursor, things: str) -> None:
    assert refused(cursor, f"SELECT id FROM {things} WHERE id = :1 OR id = :2", [1]) == "DPY-4009"
    assert refused(cursor, f"SELECT id FROM {things} WHERE id = :a", {"b": 1}) == "DPY-4008"
    assert refused(cursor, f"SELECT id FROM {things} WHERE id = :a AND name = :b", {"a": 1}) == "DPY-4010"
    assert refused(cursor, f"SELECT id FROM {things} WHERE id = :1") == "DPY-4010"


def test_a_long_value_is_for_a_column_and_for_no_expression(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, text) VALUES (:1, :2)", [1, "x" * 40_000])
    cursor.execute(f"UPDATE {things} SET text = :1 WHERE id = :2", ["y" * 5_000, 1])
    assert refused(cursor, f"SELECT id FROM {things} WHERE name = :1", ["x" * 4_001]) == "ORA-01461"
    assert refused(cursor, f"INSERT INTO {things} (id, name) VALUES (2, :1)", ["x" * 4_001]) == "ORA-12899"
    # The declared size counts: the driver declares four bytes for each byte, unless it is told the size in characters.
    query = f"SELECT COUNT(*) FROM {things} WHERE wide = :1"
    assert refused(cursor, query, ["😀" * 251]) == "ORA-01461"
    cursor.setinputsizes(251)
    assert cursor.execute(query, ["😀" * 251]).fetchone() == (0,)


def test_a_value_is_as_long_as_its_column_in_bytes_or_in_characters(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, name, wide) VALUES (1, :1, :2)", ["ä" * 5, "😀" * 10])
    with pytest.raises(oracledb.DatabaseError, match=r"ORA-12899: .* \(actual: 12, maximum: 10\)"):
        cursor.execute(f"UPDATE {things} SET name = :1", ["ä" * 6])


def test_more_cursors_than_a_session_may_have_open(database: Any) -> None:
    with oracledb.connect(**database.parameters, stmtcachesize=0) as connection:
        cursors = [connection.cursor() for _ in range(301)]
        with pytest.raises(oracledb.DatabaseError, match="ORA-01000"):
            for number, cursor in enumerate(cursors):
                cursor.prefetchrows = 1
                cursor.execute(f"SELECT {number} FROM dual UNION ALL SELECT 1 FROM dual UNION ALL SELECT 2 FROM dual")
        for cursor in cursors:
            cursor.close()


def test_the_dictionary(cursor: oracledb.Cursor, things: str, connection: oracledb.Connection) -> None:
    name = things.upper()
    assert (name,) in cursor.execute("SELECT table_name FROM user_tables").fetchall()
    columns = cursor.execute(
        "SELECT column_name, data_type, nullable FROM user_tab_columns WHERE table_name = :1", [name]
    ).fetchall()
    assert {("ID", "NUMBER", "N"), ("DOC", "JSON", "Y"), ("TEXT", "CLOB", "Y"), ("NAME", "VARCHAR2", "Y")} <= set(
        columns
    )
    indexes = cursor.execute("SELECT index_name, uniqueness FROM user_indexes WHERE table_name = :1", [name]).fetchall()
    assert (f"{name}_KEY", "UNIQUE") in indexes
    assert cursor.execute("SELECT user FROM dual").fetchone() == (connection.username.upper(),)
    question = "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
    assert cursor.execute(question).fetchone() == ("AL32UTF8",)
