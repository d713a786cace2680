"""How ids, times, JSON and statements are put into Oracle's words."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import CorruptCheckpointError
from locus.memory.backends.oracle.client import MOST_CONTAINERS, DriverJSON, ServerJSON, batches, input_sizes, prepared
from locus.memory.backends.oracle.schema import FORMAT, MIGRATIONS, JSONText, OracleFlavour, ddl, oracle_sql, statements
from locus.memory.backends.oracle.search import MOST_TERMS, query
from locus.memory.backends.sql.search import spelt
from locus.memory.model.codec import decode, encode
from locus.memory.model.ids import words
from locus.testing.data import EXACT_VALUES, budget, json_values
from tests.samples import exact

SQL = OracleFlavour()
ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(["", "\0", "\x01", "\x01\x01"])


@pytest.mark.parametrize(
    ("shared", "oracle"),
    [
        ("SELECT a FROM t WHERE b = ? AND c = ?", "SELECT a FROM t WHERE b = :1 AND c = :2"),
        ("x = ? LIMIT 1", "x = :1 FETCH FIRST 1 ROWS ONLY"),
        ("x = ? ORDER BY y LIMIT ?", "x = :1 ORDER BY y FETCH FIRST :2 ROWS ONLY"),
        ("SELECT r.number, start FROM r", "SELECT r.num, begins FROM r"),
        ("(branch, number) IN ((?, ?))", "(branch, num) IN ((:1, :2))"),
        ("f(a, '$.number ? LIMIT 1') = ?", "f(a, '$.number ? LIMIT 1') = :1"),
        ("numbers, restart, start_number", "numbers, restart, start_number"),
    ],
)
def test_statements_are_put_into_oracles_words(shared: str, oracle: str) -> None:
    assert oracle_sql(shared) == oracle


@given(ids)
@budget(100)
def test_ids_survive_where_an_empty_text_is_null(value: str) -> None:
    stored = SQL.text(value)
    assert stored
    assert "\0" not in stored
    assert len(stored) <= max(1, 2 * len(value))
    assert SQL.read_text(stored) == value


@given(ids, ids)
@budget(100)
def test_the_order_of_ids_is_that_of_their_code_points(one: str, other: str) -> None:
    stored = SQL.text(one).encode(), SQL.text(other).encode()
    assert (stored[0] < stored[1]) == (one < other)
    assert (stored[0] == stored[1]) == (one == other)


@given(st.datetimes(timezones=st.just(UTC)))
@budget(50)
def test_times_are_kept_to_the_microsecond(at: datetime) -> None:
    assert SQL.read_time(SQL.time(at)) == at


def test_times_of_other_zones_are_the_same_instants() -> None:
    at = datetime(2026, 5, 17, 12, 30, 1, 234_567, tzinfo=timezone(timedelta(hours=2)))
    assert SQL.read_time(SQL.time(at)) == at
    with pytest.raises(TypeError):
        SQL.read_time("2026-05-17")


def _returned(text: JSONText) -> Any:
    """What the driver makes of a JSON column: each number is a Decimal, without zeros at its end."""

    def number(digits: str) -> Decimal:
        return Decimal(digits).normalize() if "." in digits else Decimal(digits)

    value = json.loads(text, parse_int=number, parse_float=number)
    assert isinstance(value, dict | list), "None and plain values are no JSON to the driver"
    return value


@pytest.mark.parametrize("value", [*EXACT_VALUES, None, "text", "", 1.5, {"$locus:scalar": 1}], ids=repr)
def test_json_survives_the_driver(value: Any) -> None:
    assert exact(decode(SQL.read_json(_returned(SQL.json(encode(value)))))) == exact(value)


@given(json_values)
@budget(60)
def test_any_json_survives_the_driver(value: Any) -> None:
    assert exact(decode(SQL.read_json(_returned(SQL.json(encode(value)))))) == exact(value)


@pytest.mark.parametrize("damaged", [None, "text", Decimal(1), {"a": datetime(2026, 1, 1, tzinfo=UTC)}, [b"x"]])
def test_what_is_no_json_of_ours_is_damage(damaged: Any) -> None:
    with pytest.raises(CorruptCheckpointError):
        SQL.read_json(damaged)


def test_a_query_holds_words_and_nothing_else() -> None:
    nasty = "O'Neil 'quoted' } NOT {x} % _ $ ; -- /* é漢字 " + "long" * 20
    assert query([spelt(word) for word in words(nasty)]).replace(" & ", "").isalnum()
    assert query(["xxa", "xxb"]) == "xxa & xxb"
    assert query([f"xx{number}" for number in range(100)]).count("&") == MOST_TERMS - 1
    with pytest.raises(ValueError, match="spelt"):
        query(["xx' OR 1 = 1"])


def test_the_script_is_what_the_migrations_do() -> None:
    assert len(MIGRATIONS) == FORMAT
    text = ddl(SQL)
    for statement in statements(SQL, 0):
        assert f"{statement};\n" in text
    assert f"SET version = {FORMAT} " in text
    assert statements(SQL, FORMAT) == []


@pytest.mark.parametrize("reserved", ["number", "start", "level", "size", "comment", "session", "date", "mode", "uid"])
def test_no_column_has_the_name_of_a_reserved_word(reserved: str) -> None:
    assert not any(line.strip().lower().startswith(f"{reserved} ") for line in ddl(SQL).splitlines())


def test_no_text_is_declared_as_a_long_one() -> None:
    """The driver declares four times its bytes, unless it is told how many characters it has."""
    short, long = "a" * 250, "\U0001f600" * 255
    assert input_sizes([[short, 1, None, DriverJSON([])]], "json") == [None, None, None, "json"]
    assert input_sizes([[short, 1], [long, 2], [None, 3]], "json") == [255, None]


def test_the_driver_encodes_small_json_and_the_server_parses_the_rest() -> None:
    """The driver's encoder is quadratic in the number of objects and lists."""
    assert prepared(SQL.json('{"a":[1]}')) == DriverJSON({"a": [1]})
    edge: list[list[int]] = [[]] * (MOST_CONTAINERS - 1)
    assert prepared(SQL.json(encode(edge))) == DriverJSON(edge)
    assert isinstance(prepared(SQL.json(encode([*edge, []]))), ServerJSON)
    code = {"code": "{[" * 500}
    assert prepared(SQL.json(encode(code))) == DriverJSON(code), "what stands in a text does not count"
    assert prepared("{[" * 500) == "{[" * 500


def test_rows_that_are_bound_alike_go_together() -> None:
    heavy = SQL.json(encode([[]] * 50))
    rows = [(1, SQL.json("[1]")), (2, heavy), (3, SQL.json("[3]")), (4, heavy)]
    light, textual = batches("INSERT INTO t (a, b) VALUES (:1, :2)", rows)
    assert light == ("INSERT INTO t (a, b) VALUES (:1, :2)", [[1, DriverJSON([1])], [3, DriverJSON([3])]])
    assert textual == ("INSERT INTO t (a, b) VALUES (:1, JSON(:2))", [[2, ServerJSON(heavy)], [4, ServerJSON(heavy)]])


def test_what_is_only_for_us_is_read_as_it_was_written() -> None:
    manifest = '[[["messages"],[["b",0,0,1]]]]'
    inner = SQL.manifest_json(manifest)
    assert prepared(inner) == DriverJSON({"$locus:text": manifest})
    assert SQL.read_json(json.loads(inner)) == manifest
    assert decode(SQL.read_json(json.loads(SQL.json('{"$locus:text":"x"}')))) == {"$locus:text": "x"}
