"""CREATE TABLE: SQL Language Reference, "CREATE TABLE" and "constraint"."""

from __future__ import annotations

import zlib

from tests.servers.oracle.changes import Changes
from tests.servers.oracle.parser import Translated, literal, name_in_postgresql

STORAGE_WITH_VALUE = {"TABLESPACE", "PCTFREE", "PCTUSED", "INITRANS"}
STORAGE = {
    "LOGGING", "NOLOGGING", "COMPRESS", "NOCOMPRESS", "CACHE", "NOCACHE", "PARALLEL", "NOPARALLEL", "ONLINE",
    "INVISIBLE", "REVERSE", "LOCAL", "SECUREFILE", "ENABLE", "VALIDATE",
}  # fmt: skip


class Tables(Changes):
    _table: str
    _unnamed: int
    _sequences: list[str]
    _made: Translated

    def start_definition(self) -> Translated:
        self._table, self._unnamed, self._sequences = "", 0, []
        self._made = Translated("definition", verb=self.token.text)
        return self._made

    def _if_not_exists(self) -> str:
        """Since release 23."""
        return "IF NOT EXISTS " if self.accept("IF", "NOT", "EXISTS") else ""

    def _create_table(self) -> list[str]:
        missing = self._if_not_exists()
        self._table = self.table_name()
        if self.accept("AS"):
            return [f"CREATE TABLE {missing}{self._table} AS {self._query(top=True)[0]}"]
        self.expect("(")
        items = self._table_item()
        while self.accept(","):
            items += self._table_item()
        self.expect(")")
        self._storage()
        created = [f"CREATE SEQUENCE IF NOT EXISTS {sequence}" for sequence in self._sequences]
        owned = [f"SELECT oracle_sys.own_sequence({literal(name)}, {literal(self._table)})" for name in self._sequences]
        return [*created, f"CREATE TABLE {missing}{self._table} ({', '.join(items)})", *owned]

    def _table_item(self) -> list[str]:
        if self.see("CONSTRAINT") or (
            self.token.is_("PRIMARY", "UNIQUE", "CHECK", "FOREIGN") and self._is_constraint()
        ):
            return [self._table_constraint()]
        return self._column_definition()

    def _is_constraint(self) -> bool:
        return self.ahead().is_("KEY", "(")

    def _constraint_name(self) -> str:
        """Without a name, it gets one of the system's: SYS_C and a number."""
        if self.accept("CONSTRAINT"):
            return self.name()
        self._unnamed += 1
        number = zlib.crc32(f"{self._table} {self._unnamed} {self.token.position}".encode()) % 10**7
        return name_in_postgresql(f"SYS_C{number:07}")

    def _table_constraint(self) -> str:
        text = f"CONSTRAINT {self._constraint_name()} "
        if self.accept("PRIMARY"):
            self.expect("KEY")
            text += f"PRIMARY KEY ({', '.join(self.names())})"
        elif self.accept("UNIQUE"):
            text += f"UNIQUE ({', '.join(self.names())})"
        elif self.accept("CHECK"):
            text += f"CHECK ({self.in_parentheses()})"
        elif self.accept("FOREIGN"):
            self.expect("KEY")
            columns = ", ".join(self.names())
            if not self.accept("REFERENCES"):
                raise self.wrong(905, "missing keyword")
            text += f"FOREIGN KEY ({columns}) {self._references()}"
        else:
            raise self.wrong(904, "invalid identifier")
        return text + self._constraint_state()

    def _constraint_state(self) -> str:
        if self.accept("USING", "INDEX"):
            self._storage()
        text = ""
        if self.accept("DEFERRABLE"):
            text = " DEFERRABLE"
        if self.accept("INITIALLY"):
            text += f" INITIALLY {self.one_of('DEFERRED', 'IMMEDIATE')}"
        while self.one_of("ENABLE", "VALIDATE", "RELY"):
            pass
        return text

    def _references(self) -> str:
        text = f"REFERENCES {self.table_name()}"
        if self.see("("):
            text += f" ({', '.join(self.names())})"
        if self.accept("ON", "DELETE"):
            if self.accept("CASCADE"):
                text += " ON DELETE CASCADE"
            elif self.accept("SET", "NULL"):
                text += " ON DELETE SET NULL"
            else:
                # There is no ON UPDATE and no RESTRICT.
                raise self.wrong(905, "missing keyword")
        return text

    def _column_definition(self) -> list[str]:
        bare = self.bare_name()
        name = name_in_postgresql(bare)
        if self.token.is_(",", ")"):
            raise self.wrong(2263, "need to specify the datatype for this column")
        type_ = self.data_type()
        checks = [self._check_of_type(check, bare, name) for check in self.checks]
        text = f"{name} {type_}{self._default()}"
        while (found := self._column_constraint(name)) is not None:
            text += found
        return [text, *checks]

    def _check_of_type(self, check: str, bare: str, name: str) -> str:
        own = name_in_postgresql(f"~{zlib.crc32(self._table.encode()):08x}~{bare}")
        return f"CONSTRAINT {own} CHECK ({check.format(name, bare.replace(chr(39), chr(39) * 2))})"

    def _default(self) -> str:
        if self.accept("DEFAULT"):
            self.accept("ON", "NULL")
            return f" DEFAULT {self.sum()}"
        if not self.accept("GENERATED"):
            return ""
        always = self.accept("ALWAYS")
        if not always and not self.accept("BY", "DEFAULT"):
            raise self.wrong(905, "missing keyword")
        self.accept("ON", "NULL")
        if not self.accept("AS"):
            raise self.wrong(905, "missing keyword")
        if self.accept("IDENTITY"):
            if self.see("("):
                self.skip_parentheses()
            return f" DEFAULT nextval({self._identity_sequence()})"
        expression = self.in_parentheses()
        self.accept("VIRTUAL")
        return f" GENERATED ALWAYS AS ({expression}) STORED"

    def _identity_sequence(self) -> str:
        """An identity is a NUMBER, where PostgreSQL's are integers: numbers are drawn from a sequence of its own."""
        schema = f"{self._table.rpartition('.')[0]}." if "." in self._table else ""
        number = zlib.crc32(f"{self._table} {self.token.position}".encode())
        sequence = f"{schema}{name_in_postgresql(f'ISEQ$$_{number}')}"
        self._sequences.append(sequence)
        return literal(sequence)

    def _column_constraint(self, column: str) -> str | None:
        if self.accept("NOT", "NULL"):
            return " NOT NULL" + self._constraint_state()
        if self.accept("NULL"):
            return ""
        if not self.token.is_("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES"):
            return None
        name = self._constraint_name()
        if self.accept("NOT", "NULL"):
            return " NOT NULL" + self._constraint_state()
        if self.accept("PRIMARY"):
            self.expect("KEY")
            text = "PRIMARY KEY"
        elif self.accept("UNIQUE"):
            text = "UNIQUE"
        elif self.accept("CHECK"):
            text = f"CHECK ({self.in_parentheses()})"
        elif self.accept("REFERENCES"):
            text = self._references()
        else:
            raise self.wrong(904, "invalid identifier")
        return f" CONSTRAINT {name} {text}{self._constraint_state()}"

    def _storage(self) -> None:
        """Where and how it is stored, which nothing here depends on."""
        while self.token.kind == "word":
            word = self.token.text
            if word in STORAGE_WITH_VALUE or word in STORAGE:
                self.take()
                if word in STORAGE_WITH_VALUE:
                    self.take()
            elif self.accept("LOB") or self.accept("STORE", "AS") or self.accept("STORAGE"):
                self.accept("SECUREFILE")
                if self.see("("):
                    self.skip_parentheses()
            elif not self.accept("ORGANIZATION", "INDEX"):
                return
