"""ALTER, DROP, TRUNCATE and COMMENT: SQL Language Reference, "SQL Statements"."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from tests.servers.oracle.parser import literal, name_in_postgresql
from tests.servers.oracle.tables import Tables


class Alterations(Tables):
    def _identified(self) -> str:
        for word in ("IDENTIFIED", "BY"):
            self.expect(word)
        if self.token.kind not in ("quoted", "word"):
            raise self.wrong(988, "missing or invalid password(s)")
        token = self.take()
        return token.text if token.kind == "quoted" else self.statement.text[token.position :][: len(token.text)]

    def _drop(self) -> list[str]:
        self.expect("DROP")
        kind = self.one_of("TABLE", "INDEX", "SEQUENCE", "VIEW", "USER")
        if kind is None:
            raise self.wrong(950, "invalid DROP option")
        if kind == "USER":
            user = self.bare_name(1935, "missing user or role name")
            cascade = "true" if self.accept("CASCADE") else "false"
            return [f"SELECT oracle_sys.drop_user({literal(user)}, {cascade})"]
        self._made.verb = f"DROP {kind}"
        exists = "IF EXISTS " if self.accept("IF", "EXISTS") else ""
        text = f"DROP {kind} {exists}{self.table_name()}"
        if kind in ("TABLE", "VIEW") and self.accept("CASCADE"):
            # Of the constraints that refer to it, only: CASCADE alone is not enough.
            self.expect("CONSTRAINTS")
            text += " CASCADE"
        if kind == "TABLE":
            self.accept("PURGE")
        if kind == "INDEX":
            self.one_of("ONLINE", "FORCE")
        return [text]

    def _alter(self) -> list[str]:
        self.expect("ALTER")
        if self.accept("SESSION"):
            return self._alter_session()
        if self.accept("SYSTEM"):
            return self._alter_system()
        if self.accept("USER"):
            user = self.bare_name(1935, "missing user or role name")
            if self.accept("QUOTA"):
                while self.token.kind in ("word", "number", "quoted"):
                    self.take()
                return []
            return [f"SELECT oracle_sys.alter_user({literal(user)}, {literal(self._identified())})"]
        if self.accept("INDEX"):
            name = self.table_name()
            if self.accept("RENAME", "TO"):
                return [f"ALTER INDEX {name} RENAME TO {self.name()}"]
            if self.accept("REBUILD"):
                self._storage()
                return [f"REINDEX INDEX {name}"]
        if not self.accept("TABLE"):
            raise self.wrong(940, "invalid ALTER command")
        return self._alter_table()

    def _alter_session(self) -> list[str]:
        """A setting of the session; the session itself takes it."""
        self.expect("SET")
        self._made.kind = "setting"
        settings = []
        while self.token.kind == "word":
            key = self.take().text
            self.expect("=")
            sign = "-" if self.accept("-") else ""
            settings.append(f"{key}={sign}{self.take().text}")
        if not settings:
            raise self.wrong(922, "missing or invalid option")
        self._made.details = tuple(settings)
        return []

    def _alter_system(self) -> list[str]:
        for word in ("KILL", "SESSION"):
            self.expect(word)
        session = self.take().text
        self.accept("IMMEDIATE")
        return [f"SELECT oracle_sys.kill_session({literal(session)})"]

    def _alter_table(self) -> list[str]:
        self._table = self.table_name()
        head = f"ALTER TABLE {self._table}"
        if self.accept("RENAME", "TO"):
            return [f"{head} RENAME TO {self.name()}"]
        if self.accept("RENAME", "COLUMN"):
            old = self.name()
            if not self.accept("TO"):
                raise self.wrong(905, "missing keyword")
            return [f"{head} RENAME COLUMN {old} TO {self.name()}"]
        if self.accept("DROP"):
            return [f"{head} {self._dropped()}"]
        if self.accept("MODIFY"):
            return [f"{head} {', '.join(self._listed(self._modified))}"]
        if not self.accept("ADD"):
            raise self.wrong(1735, "invalid ALTER TABLE option")
        if self.see("CONSTRAINT") or (
            self.token.is_("PRIMARY", "UNIQUE", "CHECK", "FOREIGN") and self._is_constraint()
        ):
            return [f"{head} ADD {self._table_constraint()}"]
        return [f"{head} {', '.join(self._listed(self._added))}"]

    def _listed(self, item: Callable[[], list[str]]) -> list[str]:
        inside = self.accept("(")
        found = item()
        while inside and self.accept(","):
            found += item()
        if inside:
            self.expect(")")
        return found

    def _added(self) -> list[str]:
        column, *checks = self._column_definition()
        return [f"ADD COLUMN {column}", *(f"ADD {check}" for check in checks)]

    def _modified(self) -> list[str]:
        bare = self.bare_name()
        name = name_in_postgresql(bare)
        found = []
        if not self.token.is_("NOT", "NULL", "DEFAULT"):
            type_ = self.data_type()
            own = name_in_postgresql(f"~{zlib.crc32(self._table.encode()):08x}~{bare}")
            found = [f"ALTER COLUMN {name} TYPE {type_}", f"DROP CONSTRAINT IF EXISTS {own}"]
            found += [f"ADD {self._check_of_type(check, bare, name)}" for check in self.checks]
        if self.accept("DEFAULT"):
            found.append(f"ALTER COLUMN {name} SET DEFAULT {self.sum()}")
        if self.accept("NOT", "NULL"):
            found.append(f"ALTER COLUMN {name} SET NOT NULL")
        elif self.accept("NULL"):
            found.append(f"ALTER COLUMN {name} DROP NOT NULL")
        return found

    def _dropped(self) -> str:
        if self.accept("CONSTRAINT"):
            return f"DROP CONSTRAINT {self.name()}"
        if self.accept("COLUMN"):
            return f"DROP COLUMN {self.name()}"
        return ", ".join(f"DROP COLUMN {column}" for column in self.names())

    def _truncate(self) -> list[str]:
        self.expect("TRUNCATE")
        self.expect("TABLE")
        text = f"TRUNCATE TABLE {self.table_name()}"
        if self.accept("CASCADE"):
            text += " CASCADE"
        while self.one_of("DROP", "REUSE", "STORAGE", "ALL"):
            pass
        return [text]

    def _comment(self) -> list[str]:
        self.expect("COMMENT")
        self.expect("ON")
        kind = self.one_of("TABLE", "COLUMN")
        if kind is None:
            raise self.wrong(905, "missing keyword")
        name = self.table_name() if kind == "TABLE" else self.column()
        self.expect("IS")
        text = self.take().text.replace("'", "''")
        return [f"COMMENT ON {kind} {name} IS '{text}'"]
