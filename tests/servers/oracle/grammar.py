"""A statement of Oracle's, made into PostgreSQL's."""

from __future__ import annotations

from functools import lru_cache

from tests.servers.oracle.definitions import Definitions
from tests.servers.oracle.errors import OracleError
from tests.servers.oracle.lexer import CHANGES, QUERIES, read
from tests.servers.oracle.parser import Translated


class Grammar(Definitions):
    def statement_(self) -> Translated:
        token = self.token
        if token.text in QUERIES or token.is_("("):
            return self.query_statement()
        if token.text in CHANGES:
            return self.change_statement()
        if token.is_("COMMIT", "ROLLBACK", "SAVEPOINT", "SET", "LOCK"):
            return self._control()
        if token.is_("BEGIN", "DECLARE"):
            return Translated("block")
        return self.definition_statement()

    def _control(self) -> Translated:
        word = self.take().text
        if word == "LOCK":
            return self._lock_table()
        if word == "SET":
            return self._set_transaction()
        details: tuple[str, ...] = ()
        if word == "SAVEPOINT":
            details = (self.name(),)
        else:
            self.accept("WORK")
            if word == "ROLLBACK" and self.accept("TO"):
                self.accept("SAVEPOINT")
                details = (self.name(),)
        self.end()
        return Translated(word.lower(), details=details)

    def _set_transaction(self) -> Translated:
        self.expect("TRANSACTION")
        if self.accept("READ", "ONLY"):
            details = ("ISOLATION LEVEL REPEATABLE READ READ ONLY",)
        elif self.accept("READ", "WRITE"):
            details = ("",)
        elif self.accept("ISOLATION", "LEVEL", "SERIALIZABLE"):
            details = ("ISOLATION LEVEL REPEATABLE READ",)
        elif self.accept("ISOLATION", "LEVEL", "READ", "COMMITTED"):
            details = ("",)
        else:
            raise self.wrong(900, "invalid SQL statement")
        self.end()
        return Translated("transaction", details=details)

    def _lock_table(self) -> Translated:
        self.expect("TABLE")
        table = self.table_name()
        self.expect("IN")
        words = []
        while self.token.is_("ROW", "SHARE", "EXCLUSIVE", "UPDATE"):
            words.append(self.take().text)
        self.expect("MODE")
        modes = {"EXCLUSIVE": "EXCLUSIVE", "SHARE": "SHARE", "ROW EXCLUSIVE": "ROW EXCLUSIVE", "ROW SHARE": "ROW SHARE"}
        mode = modes.get(" ".join(words)) or self.fail(
            1737, "valid modes: [ROW] SHARE, [[SHARE] ROW] EXCLUSIVE, SHARE UPDATE"
        )
        text = f"LOCK TABLE {table} IN {mode} MODE"
        if self.accept("NOWAIT"):
            text += " NOWAIT"
        self.end()
        return Translated("change", [text], verb="LOCK")


@lru_cache(maxsize=4000)
def translate(text: str) -> Translated | OracleError:
    """What it is for PostgreSQL, or what Oracle would say to it: each found out once."""
    try:
        grammar = Grammar(read(text))
        made = grammar.statement_()
        made.parameters = grammar.parameters
    except OracleError as error:
        return error
    return made
