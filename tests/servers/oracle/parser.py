"""What every part of the grammar does: it takes the tokens one after the other, or says what is wrong with them."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NoReturn

from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.lexer import RESERVED, Statement, Token

LONGEST_IN_POSTGRESQL = 63


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of PostgreSQL's: the bind that it comes from, and whether a LONG value may stand there."""

    bind: int
    takes_long: bool = False


@dataclass(slots=True)
class Translated:
    """A statement for PostgreSQL. Most are one; a definition may be several."""

    kind: str
    """"query", "change", "definition", "block", or a word that the session acts upon itself."""
    commands: list[str] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    verb: str = ""
    locks: bool = False
    wait: int | None = None
    """Seconds that a FOR UPDATE waits."""
    details: tuple[str, ...] = ()
    check: str | None = None
    """What is asked first, because PostgreSQL would let something pass."""


def name_in_postgresql(name: str) -> str:
    """Quoted. PostgreSQL would cut a name after 63 bytes without a word, where Oracle takes 128."""
    encoded = name.encode()
    if len(encoded) > LONGEST_IN_POSTGRESQL:
        kept = encoded[:40].decode(errors="ignore")
        name = f"{kept}~{hashlib.sha256(encoded).hexdigest()[:20]}"
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """SQL Language Reference, "Nulls": a character value with a length of zero is NULL."""
    if not text:
        return "NULL"
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if "\\" not in quoted else "E'" + quoted.replace("\\", "\\\\") + "'"


class Parser(ABC):
    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self._tokens = statement.tokens
        self._at = 0
        self.parameters: list[Parameter] = []

    @abstractmethod
    def expression(self) -> str: ...

    @abstractmethod
    def subquery(self) -> str: ...

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def ahead(self, count: int = 1) -> Token:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def see(self, *words: str) -> bool:
        """Whether these words come next, in this order."""
        return all(self.ahead(offset).is_(word) for offset, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        if not self.see(*words):
            return False
        self._at += len(words)
        return True

    def one_of(self, *words: str) -> str | None:
        return self.take().text if self.token.is_(*words) else None

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.wrong(*MISSING.get(word, (905, f"missing {word} keyword")))

    def wrong(self, code: int, message: str) -> OracleError:
        return OracleError(code, message, self.token.position)

    def fail(self, code: int, message: str) -> NoReturn:
        raise self.wrong(code, message)

    def end(self) -> None:
        """SQL Language Reference, "About SQL Statements": nothing may follow, not even a semicolon."""
        token = self.token
        if token.kind == "end":
            return
        before = self.statement.text[max(0, token.position - 30) : token.position].strip()
        if token.kind == "word" and token.text in RESERVED:
            raise self.wrong(
                3048, f"SQL reserved word '{token.text}' is not syntactically valid following '...{before}'"
            )
        if token.kind == "word":
            raise self.wrong(3049, f"SQL keyword '{token.text}' is not syntactically valid following '...{before}'")
        raise self.wrong(933, f"SQL command not properly ended at or near '{token.text}'")

    def name(self, code: int = 904, what: str = "invalid identifier") -> str:
        """A name that is not qualified, in PostgreSQL's form."""
        return name_in_postgresql(self.bare_name(code, what))

    def bare_name(self, code: int = 904, what: str = "invalid identifier") -> str:
        token = self.token
        if token.kind == "quoted" or (token.kind == "word" and token.text not in RESERVED):
            return self.take().text
        raise self.wrong(code, f'"{token.text}": {what}' if code == 904 else what)

    def table_name(self) -> str:
        """SQL Language Reference, "Database Objects": a table or view, in its own schema or in another."""
        first = self.name(903, "invalid table name")
        return f"{first}.{self.name(903, 'invalid table name')}" if self.accept(".") else first

    def is_name(self, offset: int = 0) -> bool:
        token = self.ahead(offset)
        return token.kind == "quoted" or (token.kind == "word" and token.text not in RESERVED)

    def whole_number(self) -> int:
        if self.token.kind != "number" or not self.token.text.isdigit():
            raise self.wrong(1722, "invalid number")
        return int(self.take().text)

    def bind(self, *, takes_long: bool = False) -> str:
        """A parameter of its own for each place: PostgreSQL gives it the type that the place needs."""
        index = int(self.take().text)
        self.parameters.append(Parameter(index, takes_long))
        return f"${len(self.parameters)}"

    def in_parentheses(self) -> str:
        self.expect("(")
        found = self.expression()
        self.expect(")")
        return found

    def names(self) -> list[str]:
        self.expect("(")
        found = [self.name()]
        while self.accept(","):
            found.append(self.name())
        self.expect(")")
        return found

    def skip_parentheses(self) -> None:
        """Options of storage, which mean nothing here."""
        self.expect("(")
        depth = 1
        while depth:
            if self.token.kind == "end":
                raise self.wrong(907, "missing right parenthesis")
            taken = self.take()
            depth += taken.is_("(") - taken.is_(")")


MISSING = {
    "(": (906, "missing left parenthesis"),
    ")": (907, "missing right parenthesis"),
    ",": (917, "missing comma"),
    "=": (927, "missing equal sign"),
    "FROM": (923, "FROM keyword not found where expected"),
    "INTO": (925, "missing INTO keyword"),
    "VALUES": (926, "missing VALUES keyword"),
    "SET": (971, "missing SET keyword"),
    "ON": (969, "missing ON keyword"),
    "BY": (924, "missing BY keyword"),
    "KEY": (905, "missing keyword"),
    "THEN": (905, "missing keyword"),
    "END": (905, "missing keyword"),
}
