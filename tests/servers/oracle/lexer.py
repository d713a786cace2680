"""The words of a statement, and its binds in the order in which the driver sends their values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.servers.oracle.errors import OracleError

TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<string>[nN]?'(?:[^']|'')*')
    |(?P<quoted>"[^"]*")
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)
    |(?P<word>[^\W\d_][\w$\#]*)
    |(?P<operator>\|\||<=|>=|<>|!=|\^=|:=|=>|\.\.|[-+*/<>=(),.;@%?\[\]])
    |(?P<colon>:)""",
    re.VERBOSE | re.DOTALL,
)
BIND = re.compile(r":\s*(?:\"([^\"]+)\"|(\d+)|([^\W\d_][\w$#]*))")
ALTERNATIVE_QUOTE = re.compile(r"[nN]?[qQ]'(?:\[(.*?)\]|\{(.*?)\}|<(.*?)>|\((.*?)\)|(.)(.*?)\5)'", re.DOTALL)
LONGEST_NAME = 128
QUERIES = {"SELECT", "WITH"}
CHANGES = {"INSERT", "UPDATE", "DELETE", "MERGE"}
DEFINITIONS = {"CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "ANALYZE", "AUDIT", "COMMENT", "TRUNCATE"}
BLOCKS = {"DECLARE", "BEGIN", "CALL"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """"word" (in upper case), "quoted", "string", "number", "bind" (its index), "operator" or "end"."""
    text: str
    position: int

    def is_(self, *words: str) -> bool:
        return self.text in words and self.kind in ("word", "operator", "end")


@dataclass(slots=True)
class Statement:
    """A statement's text, taken apart as the driver does it, which is also how it sends the binds."""

    text: str
    tokens: list[Token] = field(default_factory=list)
    binds: list[str] = field(default_factory=list)
    """The name of each bind: at every place where it stands, in PL/SQL only at its first."""
    returned: set[int] = field(default_factory=set)
    """The binds after RETURNING … INTO: nothing is sent for them."""

    @property
    def first(self) -> str:
        return self.tokens[0].text if self.tokens[0].kind == "word" else ""

    @property
    def is_query(self) -> bool:
        return self.first in QUERIES

    @property
    def is_block(self) -> bool:
        return self.first in BLOCKS

    @property
    def is_definition(self) -> bool:
        return self.first in DEFINITIONS


def read(text: str) -> Statement:
    statement = Statement(text)
    position = 0
    returning = into = False
    while position < len(text):
        if quote := ALTERNATIVE_QUOTE.match(text, position):
            parts = quote.groups()
            content = next((part for part in (*parts[:4], parts[5]) if part is not None), "")
            statement.tokens.append(Token("string", content, position))
            position = quote.end()
            continue
        found = TOKEN.match(text, position)
        if found is None:
            raise _unreadable(text, position)
        kind = str(found.lastgroup)
        if kind == "colon":
            position = _bind(statement, position, returned=into)
            continue
        if kind != "space":
            token = _token(kind, found.group(), position)
            returning = returning or (token.is_("RETURNING", "RETURN") and statement.first in CHANGES)
            into = into or (returning and token.is_("INTO"))
            statement.tokens.append(token)
        position = found.end()
    statement.tokens.append(Token("end", "", len(text)))
    return statement


def _token(kind: str, text: str, position: int) -> Token:
    if kind == "word":
        return Token(kind, _name(text.upper(), position), position)
    if kind == "quoted":
        if len(text) == 2:
            raise OracleError(1741, "illegal zero-length identifier", position)
        return Token(kind, _name(text[1:-1], position), position)
    if kind == "string":
        return Token(kind, text[text.index("'") + 1 : -1].replace("''", "'"), position)
    return Token(kind, text, position)


def _name(name: str, position: int) -> str:
    """SQL Language Reference, "Database Object Names and Qualifiers": names are at most 128 bytes long."""
    if len(name.encode()) > LONGEST_NAME:
        raise OracleError(972, f"The identifier {name[:30]}... exceeds the maximum length of 128 bytes.", position)
    return name


def _bind(statement: Statement, position: int, returned: bool) -> int:
    """SQL Language Reference, "Placeholder Expressions": a bind is a colon with a name or a number after it."""
    found = BIND.match(statement.text, position)
    if found is None:
        raise OracleError(1745, "invalid host/bind variable name", position)
    quoted, number, word = found.groups()
    name = quoted or number or word.upper()
    if word and name in RESERVED:
        raise OracleError(1745, f"The host or bind variable name {name} is not valid.", position)
    if statement.is_block and name in statement.binds:
        index = statement.binds.index(name)
    else:
        index = len(statement.binds)
        statement.binds.append(name)
    if returned:
        statement.returned.add(index)
    statement.tokens.append(Token("bind", str(index), position))
    return found.end()


def _unreadable(text: str, position: int) -> OracleError:
    if text[position] == "'":
        return OracleError(1756, "quoted string not properly terminated", position)
    if text[position] == '"':
        return OracleError(1740, "missing double quote in identifier", position)
    return OracleError(911, f"{text[position]}: invalid character after <input>", position)


WORDS = """
ACCESS ADD ALL ALTER AND ANY AS ASC AUDIT BETWEEN BY CHAR CHECK CLUSTER COLUMN COLUMN_VALUE COMMENT COMPRESS CONNECT
CREATE CURRENT DATE DECIMAL DEFAULT DELETE DESC DISTINCT DROP ELSE EXCLUSIVE EXISTS FILE FLOAT FOR FROM GRANT GROUP
HAVING IDENTIFIED IMMEDIATE IN INCREMENT INDEX INITIAL INSERT INTEGER INTERSECT INTO IS LEVEL LIKE LOCK LONG MAXEXTENTS
MINUS MLSLABEL MODE MODIFY NESTED_TABLE_ID NOAUDIT NOCOMPRESS NOT NOWAIT NULL NUMBER OF OFFLINE ON ONLINE OPTION OR
ORDER PCTFREE PRIOR PUBLIC RAW RENAME RESOURCE REVOKE ROW ROWID ROWNUM ROWS SELECT SESSION SET SHARE SIZE SMALLINT START
SUCCESSFUL SYNONYM SYSDATE TABLE THEN TO TRIGGER UID UNION UNIQUE UPDATE USER VALIDATE VALUES VARCHAR VARCHAR2 VIEW
WHENEVER WHERE WITH
"""
RESERVED = frozenset(WORDS.split())
"""SQL Language Reference, "Oracle SQL Reserved Words": none of them can name anything unless it is quoted."""
