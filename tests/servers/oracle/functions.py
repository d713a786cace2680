"""The functions that this emulator knows: SQL Language Reference, "Functions", and DBMS_LOB's of PL/SQL Packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MANY = 1000


@dataclass(frozen=True)
class Function:
    make: Callable[..., str]
    least: int
    most: int


def _call(name: str) -> Callable[..., str]:
    return lambda *arguments: f"{name}({', '.join(arguments)})"


def _text(name: str) -> Callable[..., str]:
    """One whose result may be an empty string, which is NULL."""
    return lambda *arguments: f"NULLIF({name}({', '.join(arguments)}), '')"


def _extreme(name: str) -> Callable[..., str]:
    """NULL if one of them is: PostgreSQL would leave it out."""

    def make(*arguments: str) -> str:
        missing = " OR ".join(f"{argument} IS NULL" for argument in arguments)
        return f"(CASE WHEN {missing} THEN NULL ELSE {name}({', '.join(arguments)}) END)"

    return make


def _decode(value: str, *pairs: str) -> str:
    """Two NULLs are equal here."""
    whens = " ".join(
        f"WHEN {value} IS NOT DISTINCT FROM {pairs[at]} THEN {pairs[at + 1]}" for at in range(0, len(pairs) - 1, 2)
    )
    rest = f" ELSE {pairs[-1]}" if len(pairs) % 2 else ""
    return f"(CASE {whens}{rest} END)"


PLAIN = {
    "NVL": Function(_call("COALESCE"), 2, 2),
    "NVL2": Function(lambda a, b, c: f"(CASE WHEN {a} IS NOT NULL THEN {b} ELSE {c} END)", 3, 3),
    "COALESCE": Function(_call("COALESCE"), 2, MANY),
    "NULLIF": Function(_call("NULLIF"), 2, 2),
    "DECODE": Function(_decode, 3, MANY),
    "GREATEST": Function(_extreme("GREATEST"), 1, MANY),
    "LEAST": Function(_extreme("LEAST"), 1, MANY),
    "UPPER": Function(_call("upper"), 1, 1),
    "LOWER": Function(_call("lower"), 1, 1),
    "LTRIM": Function(_text("ltrim"), 1, 2),
    "RTRIM": Function(_text("rtrim"), 1, 2),
    "LENGTH": Function(_call("oracle_sys.length"), 1, 1),
    "LENGTHB": Function(_call("octet_length"), 1, 1),
    "SUBSTR": Function(_call("oracle_sys.substr"), 2, 3),
    "INSTR": Function(_call("oracle_sys.instr"), 2, 3),
    "REPLACE": Function(lambda a, b, c="''": f"NULLIF(replace({a}, {b}, COALESCE({c}, '')), '')", 2, 3),
    "LPAD": Function(lambda a, n, *c: f"lpad({', '.join([a, f'({n})::int', *c])})", 2, 3),
    "RPAD": Function(lambda a, n, *c: f"rpad({', '.join([a, f'({n})::int', *c])})", 2, 3),
    "CONCAT": Function(_call("oracle_sys.joined"), 2, 2),
    "CHR": Function(lambda a: f"chr(({a})::int)", 1, 1),
    "ASCII": Function(_call("ascii"), 1, 1),
    "REGEXP_LIKE": Function(_call("regexp_like"), 2, 3),
    "REGEXP_REPLACE": Function(lambda a, b, c="''": f"NULLIF(regexp_replace({a}, {b}, {c}, 'g'), '')", 2, 3),
    "REGEXP_SUBSTR": Function(_call("regexp_substr"), 2, 2),
    "ABS": Function(_call("abs"), 1, 1),
    "MOD": Function(_call("mod"), 2, 2),
    "ROUND": Function(lambda a, n="0": f"round({a}, ({n})::int)", 1, 2),
    "TRUNC": Function(_call("oracle_sys.trunc"), 1, 2),
    "CEIL": Function(_call("ceil"), 1, 1),
    "FLOOR": Function(_call("floor"), 1, 1),
    "POWER": Function(_call("power"), 2, 2),
    "SIGN": Function(_call("sign"), 1, 1),
    "SQRT": Function(_call("sqrt"), 1, 1),
    "TO_CHAR": Function(_call("oracle_sys.to_char"), 1, 2),
    "TO_NUMBER": Function(lambda a: f"({a})::text::numeric", 1, 1),
    "TO_DATE": Function(lambda a, f: f"to_timestamp({a}, {f})::timestamp(0)", 2, 2),
    "TO_TIMESTAMP": Function(lambda a, f: f"to_timestamp({a}, oracle_sys.time_format({f}))::timestamp", 2, 2),
    "TO_TIMESTAMP_TZ": Function(lambda a, f: f"to_timestamp({a}, oracle_sys.time_format({f}))", 2, 2),
    "TO_CLOB": Function(_call("oracle_sys.to_clob"), 1, 1),
    "TO_BLOB": Function(lambda a: f"({a})::oracle_sys.blob", 1, 1),
    "EMPTY_CLOB": Function(lambda: "''::text::oracle_sys.clob", 0, 0),
    "EMPTY_BLOB": Function(lambda: "''::bytea::oracle_sys.blob", 0, 0),
    "HEXTORAW": Function(lambda a: f"decode({a}, 'hex')::oracle_sys.raw", 1, 1),
    "RAWTOHEX": Function(lambda a: f"upper(encode(({a})::bytea, 'hex'))", 1, 1),
    "UTL_RAW.CAST_TO_RAW": Function(lambda a: f"convert_to({a}, 'UTF8')::oracle_sys.raw", 1, 1),
    "SYS_GUID": Function(lambda: "uuid_send(gen_random_uuid())::oracle_sys.raw", 0, 0),
    "SYS_EXTRACT_UTC": Function(lambda a: f"(({a})::timestamptz AT TIME ZONE 'UTC')", 1, 1),
    "NUMTODSINTERVAL": Function(lambda n, u: f"(({n}) * ('1 ' || {u})::interval)", 2, 2),
    "SYS_CONTEXT": Function(_call("oracle_sys.sys_context"), 2, 2),
    "DBMS_LOB.GETLENGTH": Function(_call("oracle_sys.length"), 1, 1),
    "DBMS_LOB.SUBSTR": Function(
        lambda a, n="32767::numeric", s="1::numeric": f"oracle_sys.lob_substr({a}, {n}, {s})", 1, 3
    ),
    "DBMS_LOB.INSTR": Function(_call("oracle_sys.instr"), 2, 3),
    "COUNT": Function(_call("count"), 1, 1),
    "SUM": Function(_call("sum"), 1, 1),
    "AVG": Function(_call("avg"), 1, 1),
    "MIN": Function(_call("min"), 1, 1),
    "MAX": Function(_call("max"), 1, 1),
    "ROW_NUMBER": Function(_call("row_number"), 0, 0),
    "RANK": Function(_call("rank"), 0, 0),
    "DENSE_RANK": Function(_call("dense_rank"), 0, 0),
    "LAG": Function(_call("lag"), 1, 1),
    "LEAD": Function(_call("lead"), 1, 1),
    "FIRST_VALUE": Function(_call("first_value"), 1, 1),
    "LAST_VALUE": Function(_call("last_value"), 1, 1),
}
WINDOWED = {
    "COUNT", "SUM", "AVG", "MIN", "MAX", "ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE",
}  # fmt: skip
WITHOUT_PARENTHESES = {
    "NULL": "NULL",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "SYSDATE": "statement_timestamp()::timestamp(0)",
    "SYSTIMESTAMP": "statement_timestamp()",
    "CURRENT_TIMESTAMP": "statement_timestamp()",
    "CURRENT_DATE": "statement_timestamp()::timestamp(0)",
    "LOCALTIMESTAMP": "statement_timestamp()::timestamp",
    "USER": "oracle_sys.username()",
    "DBTIMEZONE": "'+00:00'",
    "SESSIONTIMEZONE": "current_setting('timezone')",
}
