"""What the Oracle stand-in takes, and what it refuses as Oracle does: a wrong client must not pass."""

from __future__ import annotations

import pytest

from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.grammar import translate
from tests.servers.oracle.parser import Translated

REFUSED = [
    # Other databases' SQL
    ("SELECT * FROM t LIMIT 5", 3049),
    ("SELECT * FROM t WHERE a = 1 LIMIT 5 OFFSET 3", 3049),
    ("SELECT * FROM t AS x", 3048),
    ("SELECT * FROM t;", 933),
    ("SELECT a::text FROM t", 1745),
    ("SELECT * FROM t WHERE a ILIKE 'x'", 3049),
    ("SELECT * FROM t WHERE a = TRUE AND b RLIKE 'x'", 3049),
    ("SELECT ARRAY[1] FROM t", 933),
    ("SELECT `a` FROM t", 911),
    ("WITH RECURSIVE x AS (SELECT 1 FROM dual) SELECT * FROM x", 905),
    ("INSERT INTO t (a) VALUES (1) ON CONFLICT DO NOTHING", 3048),
    ("INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = 2", 3048),
    ("REPLACE INTO t (a) VALUES (1)", 900),
    ("DELETE FROM t USING u WHERE t.a = u.a", 3049),
    ("UPSERT INTO t VALUES (1)", 900),
    ("VACUUM", 900),
    ("SELECT * FROM t WHERE a = ?", 936),
    ("SELECT * FROM t WHERE a = %s", 936),
    ("SELECT * FROM t WHERE a = $1", 911),
    # RETURNING goes into binds
    ("INSERT INTO t (a) VALUES (1) RETURNING a", 925),
    ("DELETE FROM t RETURNING a, b INTO :1", 913),
    ("DELETE FROM t RETURNING a INTO :1, :2", 947),
    # Types
    ("CREATE TABLE t (a TEXT)", 902),
    ("CREATE TABLE t (a BIGINT)", 902),
    ("CREATE TABLE t (a SERIAL)", 902),
    ("CREATE TABLE t (a JSONB)", 902),
    ("CREATE TABLE t (a DATETIME)", 902),
    ("CREATE TABLE t (a BYTEA)", 902),
    ("CREATE TABLE t (a VARCHAR2)", 906),
    ("CREATE TABLE t (a VARCHAR2(4001))", 910),
    ("CREATE TABLE t (a VARCHAR2(0))", 1723),
    ("CREATE TABLE t (a RAW(2001))", 910),
    ("CREATE TABLE t (a NUMBER(39))", 1727),
    ("CREATE TABLE t (a TIMESTAMP(10))", 30088),
    ("CREATE TABLE t (a)", 2263),
    ("SELECT CAST(a AS TEXT) FROM t", 902),
    # Definitions
    ("CREATE TABLE t (a NUMBER NOT NULL DEFAULT 0)", 907),
    ("CREATE TABLE t (a NUMBER AUTO_INCREMENT)", 907),
    ("CREATE TABLE t (a NUMBER REFERENCES u (id) ON UPDATE CASCADE)", 907),
    ("CREATE TABLE t (a NUMBER REFERENCES u (id) ON DELETE RESTRICT)", 905),
    ("CREATE INDEX i ON t USING gin (a)", 906),
    ("CREATE INDEX i ON t (a) WHERE a > 1", 3048),
    ("DROP TABLE t CASCADE", 905),
    ("DROP DATABASE x", 950),
    ("CREATE DATABASE x", 901),
    ("ALTER TABLE t ADD COLUMN b NUMBER", 904),
    ("CREATE SEARCH INDEX i ON t (j)", 905),
    ("CREATE SEARCH INDEX i ON t (j) FOR JSON PARAMETERS ('SYNC (AT ONCE)')", 29855),
    ("CREATE USER u", 905),
    # Names
    ("CREATE TABLE t (level NUMBER)", 904),
    ("CREATE TABLE t (mode VARCHAR2(3))", 904),
    ("CREATE TABLE t (comment VARCHAR2(3))", 904),
    ("CREATE TABLE order (a NUMBER)", 903),
    ("SELECT size FROM t", 936),
    ("SELECT _a FROM t", 911),
    (f"SELECT {'a' * 129} FROM t", 972),
    (f'SELECT "{"ü" * 65}" FROM t', 972),
    ('SELECT "" FROM t', 1741),
    # Expressions
    ("SELECT a FROM t WHERE a IN ()", 936),
    ("SELECT a FROM t WHERE (a, b) > (1, 2)", 1796),
    ("SELECT a FROM t WHERE a IS TRUTHY", 908),
    ("SELECT a FROM t WHERE", 936),
    ("SELECT a b c FROM t", 3049),
    ("SELECT IFNULL(a, 1) FROM t", 904),
    ("SELECT now() FROM dual", 904),
    ("SELECT string_agg(a, ',') FROM t", 904),
    ("SELECT jsonb_set(a, '{b}', '1') FROM t", 904),
    ("SELECT NVL(a) FROM t", 938),
    ("SELECT NVL(a, b, c) FROM t", 939),
    ("SELECT CASE WHEN a = 1 THEN 2 FROM t", 905),
    ("SELECT 'abc FROM t", 1756),
    ('SELECT "abc FROM t', 1740),
    (f"SELECT '{'x' * 4001}' FROM dual", 1704),
    ("SELECT a FROM t WHERE a = :", 1745),
    ("SELECT a FROM t WHERE a = :table", 1745),
    ("SELECT COUNT(* FROM t", 907),
    ("SELECT a INTO b FROM t", 1744),
    # Row limits and locks
    ("SELECT a FROM t FETCH 5 ROWS ONLY", 905),
    ("SELECT a FROM t FETCH FIRST 5 ROWS", 905),
    ("SELECT a FROM t FETCH FIRST 1 ROWS ONLY FOR UPDATE", 2014),
    ("SELECT DISTINCT a FROM t FOR UPDATE", 2014),
    ("SELECT a FROM t GROUP BY a FOR UPDATE", 2014),
    ("SELECT a FROM t UNION SELECT a FROM u FOR UPDATE", 2014),
    # JSON
    ("SELECT JSON_VALUE(j, :1) FROM t", 40454),
    ("SELECT JSON_VALUE(j, 'a.b') FROM t", 40442),
    ("SELECT j->>'a' FROM t", 936),
    ("SELECT a FROM t WHERE JSON_TEXTCONTAINS(j, '$', :1)", 40483),
    # MERGE
    ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET b = 1", 906),
    ("MERGE INTO t USING u ON (t.a = u.a) WHEN MATCHED THEN UPDATE SET a = 1", 38104),
    ("MERGE INTO t USING u ON (t.a = u.a)", 905),
    # Counts
    ("INSERT INTO t (a, b) VALUES (1)", 947),
    ("INSERT INTO t (a) VALUES (1, 2)", 913),
    ("INSERT INTO t (a)", 926),
    ("UPDATE t a = 1", 971),
    ("UPDATE t SET a", 927),
    ("SELECT a, FROM t", 936),
    ("ALTER SESSION SET", 922),
]


@pytest.mark.parametrize(("text", "code"), REFUSED)
def test_a_wrong_statement_is_refused_with_oracles_code(text: str, code: int) -> None:
    found = translate(text)
    assert isinstance(found, OracleError), f"taken as {found}"
    assert found.code == code, found.text
    assert found.text.startswith(f"ORA-{code:05}: ")


def test_a_list_may_have_65535_expressions_and_no_more() -> None:
    assert isinstance(translate(f"SELECT a FROM t WHERE a IN ({', '.join(['1'] * 2000)})"), Translated)
    too_long = translate(f"SELECT a FROM t WHERE a IN ({', '.join(['1'] * 65_536)})")
    assert isinstance(too_long, OracleError)
    assert too_long.code == 1795


TAKEN = [
    ("SELECT * FROM dual", 'SELECT * FROM "DUAL"'),
    ('select A, "b" from T', 'SELECT "A", "b" FROM "T"'),
    ("SELECT a x FROM s.t y WHERE y.a = :1", 'SELECT "A" AS "X" FROM "S"."T" AS "Y" WHERE ("Y"."A" = $1)'),
    ("SELECT a FROM t WHERE a = ''", 'SELECT "A" FROM "T" WHERE ("A" = NULL)'),
    ("SELECT a FROM t WHERE a = q'[it's]'", 'SELECT "A" FROM "T" WHERE ("A" = \'it\'\'s\')'),
    ("SELECT a FROM t WHERE a IS NOT NULL", 'SELECT "A" FROM "T" WHERE ("A" IS NOT NULL)'),
    ("SELECT a FROM t WHERE :1 IS NULL", 'SELECT "A" FROM "T" WHERE ($1::text IS NULL)'),
    ("SELECT a FROM t MINUS SELECT a FROM u", 'SELECT "A" FROM "T" EXCEPT SELECT "A" FROM "U"'),
    (
        "SELECT a FROM t ORDER BY 1 DESC OFFSET :1 ROWS FETCH NEXT :2 ROWS ONLY",
        'SELECT "A" FROM "T" ORDER BY 1 DESC OFFSET ($1)::bigint FETCH FIRST (($2)::bigint) ROWS ONLY',
    ),
    ("SELECT a FROM t FOR UPDATE SKIP LOCKED", 'SELECT "A" FROM "T" FOR UPDATE SKIP LOCKED'),
    ("DELETE t WHERE a = 1", 'DELETE FROM "T" WHERE ("A" = 1::numeric)'),
    ("UPDATE t x SET x.a = :1 WHERE x.b = :1", 'UPDATE "T" AS "X" SET "A" = $1 WHERE ("X"."B" = $2)'),
    ("INSERT INTO t VALUES (s.NEXTVAL, DEFAULT)", 'INSERT INTO "T" VALUES (nextval(\'"S"\'), DEFAULT)'),
    ("SELECT a FROM t WHERE a LIKE '10\\%'", 'SELECT "A" FROM "T" WHERE ("A" LIKE E\'10\\\\%\' ESCAPE \'\')'),
    ("DROP TABLE t CASCADE CONSTRAINTS PURGE", 'DROP TABLE "T" CASCADE'),
    ("-- why\nDROP TABLE IF EXISTS t /* so */", 'DROP TABLE IF EXISTS "T"'),
]


@pytest.mark.parametrize(("text", "made"), TAKEN)
def test_a_statement_of_oracles_becomes_one_of_postgresqls(text: str, made: str) -> None:
    found = translate(text)
    assert isinstance(found, Translated), found
    assert found.commands == [made]


def test_every_place_of_a_bind_is_a_parameter_of_its_own() -> None:
    found = translate("SELECT a FROM t WHERE a = :x OR b = :y OR c = :x")
    assert isinstance(found, Translated)
    assert [parameter.bind for parameter in found.parameters] == [0, 1, 2]


def test_only_the_value_of_a_column_may_be_long() -> None:
    found = translate("UPDATE t SET a = :1, b = NVL(:2, 'x') WHERE c = :3")
    assert isinstance(found, Translated)
    assert [parameter.takes_long for parameter in found.parameters] == [True, False, False]


def test_names_longer_than_postgresqls_stay_apart() -> None:
    one, other = translate(f"SELECT a FROM {'t' * 100}1"), translate(f"SELECT a FROM {'t' * 100}2")
    assert isinstance(one, Translated)
    assert isinstance(other, Translated)
    assert one.commands != other.commands
    assert len(one.commands[0].rpartition(" ")[2].encode()) <= 65


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("COMMIT", "commit"),
        ("ROLLBACK WORK", "rollback"),
        ("ROLLBACK TO SAVEPOINT x", "rollback"),
        ("SAVEPOINT x", "savepoint"),
        ("SET TRANSACTION READ ONLY", "transaction"),
        ("ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY", "setting"),
        ("LOCK TABLE t IN EXCLUSIVE MODE NOWAIT", "change"),
        ("GRANT SELECT, INSERT ON t TO u", "definition"),
        ("BEGIN NULL; END;", "block"),
    ],
)
def test_what_is_no_query_is_known_by_its_kind(text: str, kind: str) -> None:
    found = translate(text)
    assert isinstance(found, Translated), found
    assert found.kind == kind
