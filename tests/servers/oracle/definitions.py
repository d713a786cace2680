"""CREATE, ALTER, DROP and the like: SQL Language Reference, "SQL Statements". Each of them commits."""

from __future__ import annotations

import re

from tests.servers.oracle.alterations import Alterations
from tests.servers.oracle.parser import Translated, literal

SEARCH_PARAMETERS = re.compile(
    r"\s*((SEARCH_ON\s+(NONE|TEXT|VALUE|TEXT_VALUE|TEXT_VALUE_STRING)(\s*\([^)]*\))?"
    r"|DATAGUIDE\s+(ON|OFF)(\s+CHANGE\s+\w+)?|SYNC\s*\((ON COMMIT|MANUAL|EVERY [^)]*)\)|MAINTENANCE\s+(AUTO|MANUAL)"
    r"|OPTIMIZE\s*\([^)]*\)|ASYNCHRONOUS_UPDATE|MEMORY\s+\w+)\s*)*",
    re.IGNORECASE,
)
"""Text Reference, "CREATE SEARCH INDEX": what PARAMETERS may say of a search index for JSON."""


class Definitions(Alterations):
    def definition_statement(self) -> Translated:
        made = self.start_definition()
        make = {
            "CREATE": self._create,
            "DROP": self._drop,
            "ALTER": self._alter,
            "TRUNCATE": self._truncate,
            "COMMENT": self._comment,
            "GRANT": self._grant,
            "REVOKE": self._grant,
        }.get(made.verb)
        if make is None:
            raise self.wrong(900, "invalid SQL statement")
        made.commands = make()
        self.end()
        return made

    def _create(self) -> list[str]:
        self.expect("CREATE")
        replaced = self.accept("OR", "REPLACE")
        if self.accept("GLOBAL", "TEMPORARY") or self.accept("PRIVATE", "TEMPORARY"):
            raise self.wrong(3001, "unimplemented feature: temporary tables")
        if self.accept("TABLE"):
            return self._create_table()
        if self.see("UNIQUE", "INDEX") or self.see("INDEX"):
            return self._create_index("UNIQUE " if self.accept("UNIQUE") else "")
        if self.accept("SEARCH", "INDEX"):
            return self._create_search_index()
        if self.accept("SEQUENCE"):
            return self._create_sequence()
        if self.accept("VIEW"):
            name = self.table_name()
            columns = f" ({', '.join(self.names())})" if self.see("(") else ""
            if not self.accept("AS"):
                raise self.wrong(905, "missing keyword")
            return [f"CREATE {'OR REPLACE ' if replaced else ''}VIEW {name}{columns} AS {self._query(top=True)[0]}"]
        if self.accept("USER"):
            return self._create_user()
        raise self.wrong(901, "invalid CREATE command")

    def _create_index(self, unique: str) -> list[str]:
        self.expect("INDEX")
        missing = self._if_not_exists()
        name = self.table_name()
        self.expect("ON")
        table = self.table_name()
        self.expect("(")
        items = [self._index_item()]
        while self.accept(","):
            items.append(self._index_item())
        self.expect(")")
        self._storage()
        columns = ", ".join(items)
        # An index is in its table's schema unless its name says another, which PostgreSQL can't do.
        plain = name.rpartition(".")[2]
        return [
            f"SELECT oracle_sys.check_index({literal(table)}, {literal(columns)})",
            f"CREATE {unique}INDEX {missing}{plain} ON {table} ({columns})",
        ]

    def _index_item(self) -> str:
        text = self.expression()
        if not text.startswith('"'):
            text = f"({text})"
        return f"{text} DESC" if self.one_of("ASC", "DESC") == "DESC" else text

    def _create_search_index(self) -> list[str]:
        """JSON Developer's Guide, "JSON Search Index": on one JSON column, and for it alone."""
        missing = self._if_not_exists()
        name = self.table_name().rpartition(".")[2]
        self.expect("ON")
        table = self.table_name()
        columns = self.names()
        if not self.accept("FOR", "JSON"):
            raise self.wrong(905, "missing keyword")
        if self.accept("PARAMETERS"):
            self._index_parameters()
        self._storage()
        column = columns[0]
        return [
            f"CREATE INDEX {missing}{name} ON {table} USING gin (oracle_sys.json_texts({column}))",
            f"SELECT oracle_sys.check_search_index({literal(table)}, {literal(name)}, {literal(column)})",
        ]

    def _index_parameters(self) -> None:
        self.expect("(")
        if self.token.kind != "string":
            raise self.wrong(29850, "invalid option for creation of domain indexes")
        if not SEARCH_PARAMETERS.fullmatch(self.token.text):
            raise self.wrong(29855, "error in the execution of ODCIINDEXCREATE\nDRG-11000: invalid keyword")
        self.take()
        self.expect(")")

    def _create_sequence(self) -> list[str]:
        missing = self._if_not_exists()
        text = f"CREATE SEQUENCE {missing}{self.table_name()}"
        while self.token.kind == "word":
            if self.accept("START", "WITH"):
                text += f" START WITH {self.whole_number()}"
            elif self.accept("INCREMENT", "BY"):
                text += f" INCREMENT BY {self.whole_number()}"
            elif self.accept("CACHE"):
                self.whole_number()
            elif not self.one_of("NOCACHE", "NOCYCLE", "ORDER", "NOORDER", "NOMAXVALUE", "NOMINVALUE"):
                break
        return [text]

    def _create_user(self) -> list[str]:
        user = self.bare_name(1935, "missing user or role name")
        password = self._identified()
        while self.token.kind in ("word", "number", "quoted"):
            self.take()
        return [f"SELECT oracle_sys.create_user({literal(user)}, {literal(password)})"]

    def _grant(self) -> list[str]:
        """Every user may do everything here, so that only the object and the user have to be there."""
        verb = self.take().text
        rights = [self._right()]
        while self.accept(","):
            rights.append(self._right())
        table = self.table_name() if self.accept("ON") else ""
        self.expect("TO" if verb == "GRANT" else "FROM")
        user = "PUBLIC" if self.accept("PUBLIC") else self.bare_name(1987, "specified user name does not exist")
        while self.one_of("WITH", "ADMIN", "GRANT", "OPTION", "CASCADE", "CONSTRAINTS"):
            pass
        return [f"SELECT oracle_sys.check_grant({literal(table)}, {literal(user)})"]

    def _right(self) -> str:
        words = []
        while self.token.kind == "word" and not self.token.is_("ON", "TO", "FROM"):
            words.append(self.take().text)
        if not words:
            raise self.wrong(990, "missing or invalid privilege")
        if self.see("("):
            self.names()
        return " ".join(words)
