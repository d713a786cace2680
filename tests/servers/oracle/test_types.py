"""Values of every type, as the driver sends and gets them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import oracledb
import pytest

NOW = datetime(2026, 3, 4, 5, 6, 7, 891234)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("column", "value", "back"),
    [
        ("id", 123456789, 123456789),
        ("part", Decimal("-12.345"), -12.35),
        ("part", 7, 7.0),
        ("name", "é\0\U0010fffe", "é\0\U0010fffe"),
        ("wide", "😀" * 10, "😀" * 10),
        ("bits", b"\0\xff\x80", b"\0\xff\x80"),
        ("moment", NOW, NOW.replace(microsecond=0)),
        ("day", NOW, NOW.replace(microsecond=0)),
        ("day", date(2026, 3, 4), datetime(2026, 3, 4)),  # noqa: DTZ001
        ("real", -1.5, -1.5),
        ("truth", True, True),
        ("truth", False, False),
        ("name", None, None),
        ("part", None, None),
    ],
)
def test_a_value(cursor: oracledb.Cursor, things: str, column: str, value: Any, back: Any) -> None:
    if column == "id":
        cursor.execute(f"INSERT INTO {things} (id) VALUES (:1)", [value])
    else:
        cursor.execute(f"INSERT INTO {things} (id, {column}) VALUES (1, :1)", [value])
    ((found,),) = cursor.execute(f"SELECT {column} FROM {things}").fetchall()
    assert found == back
    assert type(found) is type(back)


@pytest.mark.parametrize(
    ("column", "value", "type_"),
    [("moment", NOW, oracledb.DB_TYPE_TIMESTAMP), ("real", -1.5e300, oracledb.DB_TYPE_BINARY_DOUBLE)],
)
def test_a_value_whose_type_has_to_be_said(
    cursor: oracledb.Cursor, things: str, column: str, value: Any, type_: oracledb.DbType
) -> None:
    """Of itself, the driver sends a datetime as a DATE, and a float as a NUMBER."""
    cursor.setinputsizes(type_)
    cursor.execute(f"INSERT INTO {things} (id, {column}) VALUES (1, :1)", [value])
    assert cursor.execute(f"SELECT {column} FROM {things}").fetchone() == (value,)


def test_a_number_that_oracle_does_not_have(cursor: oracledb.Cursor, things: str) -> None:
    with pytest.raises(oracledb.DatabaseError, match="DPY-4003"):
        cursor.execute(f"INSERT INTO {things} (id, real) VALUES (1, :1)", [1e300])


def test_a_zone_is_dropped_on_the_way_in_and_on_the_way_out(cursor: oracledb.Cursor, things: str) -> None:
    """As the driver's documentation says of its thin mode."""
    zoned = NOW.replace(tzinfo=timezone(timedelta(hours=5)))
    cursor.setinputsizes(oracledb.DB_TYPE_TIMESTAMP_TZ)
    cursor.execute(f"INSERT INTO {things} (id, zoned) VALUES (1, :1)", [zoned])
    assert cursor.execute(f"SELECT zoned FROM {things}").fetchone() == (NOW,)


def test_what_a_query_says_of_its_columns(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"SELECT id, part, name, doc, text, data, bits, moment, zoned, day, real, truth FROM {things}")
    columns = cursor.description or []
    assert [column.type_code for column in columns] == [
        oracledb.DB_TYPE_NUMBER, oracledb.DB_TYPE_NUMBER, oracledb.DB_TYPE_VARCHAR, oracledb.DB_TYPE_JSON,
        oracledb.DB_TYPE_CLOB, oracledb.DB_TYPE_BLOB, oracledb.DB_TYPE_RAW, oracledb.DB_TYPE_TIMESTAMP,
        oracledb.DB_TYPE_TIMESTAMP_TZ, oracledb.DB_TYPE_DATE, oracledb.DB_TYPE_BINARY_DOUBLE, oracledb.DB_TYPE_BOOLEAN,
    ]  # fmt: skip
    assert [(column.precision, column.scale) for column in columns[:2]] == [(9, 0), (6, 2)]


JSON_VALUES: list[Any] = [
    {"b": [1, Decimal("2.5"), None, True, "é\0"], "a": {}},
    [],
    "text",
    Decimal("12345678901234567890.123456789"),
    None,
]


@pytest.mark.parametrize("value", JSON_VALUES)
def test_json_is_an_object_of_pythons(cursor: oracledb.Cursor, things: str, value: Any) -> None:
    cursor.setinputsizes(oracledb.DB_TYPE_JSON)
    cursor.execute(f"INSERT INTO {things} (id, doc) VALUES (1, :1)", [value])
    assert cursor.execute(f"SELECT doc FROM {things}").fetchone() == (value,)


def test_json_comes_in_as_text_too_and_its_numbers_come_out_as_decimals(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, doc) VALUES (1, :1)", ['{"a": [1, 2.50]}'])
    (found,) = cursor.execute(f"SELECT doc FROM {things}").fetchone()
    assert found == {"a": [1, Decimal("2.5")]}
    assert [type(number) for number in found["a"]] == [Decimal, Decimal]


def test_a_dictionary_needs_a_type(cursor: oracledb.Cursor, things: str) -> None:
    with pytest.raises(oracledb.NotSupportedError, match="DPY-3002"):
        cursor.execute(f"INSERT INTO {things} (id, doc) VALUES (1, :1)", [{"a": 1}])


def test_functions_of_json(cursor: oracledb.Cursor, things: str) -> None:
    cursor.setinputsizes(oracledb.DB_TYPE_JSON)
    cursor.execute(f"INSERT INTO {things} (id, doc) VALUES (1, :1)", [{"a": {"b": "x"}, "n": 5, "l": [1, 2]}])
    row = cursor.execute(
        "SELECT JSON_VALUE(doc, '$.a.b'), JSON_VALUE(doc, '$.n' RETURNING NUMBER), JSON_VALUE(doc, '$.nowhere'),"
        f" JSON_QUERY(doc, '$.l'), JSON_SERIALIZE(doc RETURNING VARCHAR2(400)) FROM {things}"
    ).fetchone()
    assert row[:4] == ("x", 5, None, "[1, 2]")
    assert set(row[4]) == set('{"a":{"b":"x"},"l":[1,2],"n":5}')
    found = f"SELECT id FROM {things} WHERE JSON_EXISTS(doc, '$.a?(@.b == $v)' PASSING :1 AS \"v\")"
    assert cursor.execute(found, ["x"]).fetchall() == [(1,)]
    assert cursor.execute(found, ["y"]).fetchall() == []
    table = "JSON_TABLE(t.doc, '$.l[*]' COLUMNS (item NUMBER PATH '$')) j"
    assert cursor.execute(f"SELECT j.item FROM {things} t, {table} ORDER BY 1").fetchall() == [(1,), (2,)]


def test_words_are_found_by_a_search_index(cursor: oracledb.Cursor, things: str) -> None:
    table = f"{things}_texts"
    cursor.execute(f"CREATE TABLE {table} (id NUMBER PRIMARY KEY, doc JSON)")
    cursor.execute(f"CREATE SEARCH INDEX {table}_words ON {table} (doc) FOR JSON PARAMETERS ('SYNC (ON COMMIT)')")
    texts = ['{"a": "Hello, brave new World"}', '{"b": ["hello-there"]}', '{"a": "nothing"}']
    cursor.executemany(f"INSERT INTO {table} VALUES (:1, :2)", list(enumerate(texts)))
    cursor.connection.commit()
    for words, path, expected in [
        ("hello", "$", [0, 1]),
        ("HELLO & world", "$", [0]),
        ("new world", "$", [0]),
        ("world new", "$", []),
        ("there | nothing", "$", [1, 2]),
        ("hello", "$.b", [1]),
        ("hel%", "$", [0, 1]),
        ("hell", "$", []),
    ]:
        found = cursor.execute(
            f"SELECT id FROM {table} WHERE JSON_TEXTCONTAINS(doc, '{path}', '{words}') ORDER BY id"
        ).fetchall()
        assert [key for (key,) in found] == expected, words
    with pytest.raises(oracledb.DatabaseError, match="DRG-50901"):
        cursor.execute(f"SELECT id FROM {table} WHERE JSON_TEXTCONTAINS(doc, '$', '(((')")
    cursor.execute(f"DROP TABLE {table} PURGE")


def test_a_lob_is_a_locator(cursor: oracledb.Cursor, things: str) -> None:
    text, data = "é😀" * 10_000, bytes(range(256)) * 100
    cursor.execute(f"INSERT INTO {things} (id, text, data) VALUES (1, :1, :2)", [text, data])
    clob, blob = cursor.execute(f"SELECT text, data FROM {things}").fetchone()
    assert isinstance(clob, oracledb.LOB)
    # Counted in units of UTF-16, as the database keeps it.
    assert clob.size() == 30_000
    assert (clob.read(), clob.read(2, 2), blob.read(), blob.read(3, 2)) == (text, "😀", data, data[2:4])


def test_a_lob_is_a_value_if_it_is_asked_for_so(cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, text, data) VALUES (1, :1, :2)", ["é" * 9_000, b"\0" * 9_000])
    query = f"SELECT text, data, id FROM {things}"
    assert cursor.execute(query, fetch_lobs=False).fetchone() == ("é" * 9_000, b"\0" * 9_000, 1)
    with cursor.connection.cursor() as other:
        other.outputtypehandler = lambda cursor, found: (
            cursor.var(oracledb.DB_TYPE_LONG, arraysize=cursor.arraysize)
            if found.type_code is oracledb.DB_TYPE_CLOB
            else None
        )
        assert other.execute(f"SELECT text FROM {things}").fetchone() == ("é" * 9_000,)


def test_a_temporary_lob_is_a_bind(cursor: oracledb.Cursor, things: str) -> None:
    lob = cursor.connection.createlob(oracledb.DB_TYPE_CLOB)
    lob.write("one ")
    lob.write("two", 5)
    cursor.execute(f"INSERT INTO {things} (id, text) VALUES (1, :1)", [lob])
    assert cursor.execute(f"SELECT text, name FROM {things}", fetch_lobs=False).fetchone() == ("one two", None)


async def test_an_asynchronous_lob_is_awaited(database: Any, cursor: oracledb.Cursor, things: str) -> None:
    cursor.execute(f"INSERT INTO {things} (id, text) VALUES (1, :1)", ["x" * 5_000])
    cursor.connection.commit()
    async with oracledb.connect_async(**database.parameters) as connection:
        (lob,) = await connection.fetchone(f"SELECT text FROM {things}")
        assert await lob.read() == "x" * 5_000
    with pytest.raises(oracledb.InterfaceError, match="DPY-1001"):
        await lob.read()


def test_numbers_are_exact(cursor: oracledb.Cursor) -> None:
    values = [10**37, -(10**37), Decimal("0.1"), Decimal("1E-20"), 0]
    for value in values:
        (found,) = cursor.execute("SELECT TO_CHAR(:1) FROM dual", [value]).fetchone()
        assert Decimal(found) == value
