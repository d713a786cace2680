"""INSERT, UPDATE, DELETE and MERGE: SQL Language Reference, "SQL Statements"."""

from __future__ import annotations

from itertools import pairwise

from tests.servers.oracle.parser import Translated, literal
from tests.servers.oracle.queries import Queries


class Changes(Queries):
    def change_statement(self) -> Translated:
        verb = self.take().text
        self._check: str | None = None
        make = {"INSERT": self._insert, "UPDATE": self._update, "DELETE": self._delete, "MERGE": self._merge}
        text = make[verb]()
        made = Translated("change", [text + self._returned()], verb=verb, check=self._check)
        self.end()
        return made

    def _returned(self) -> str:
        """SQL Language Reference, "INSERT", returning_clause: what is returned goes INTO binds, always."""
        if not self.one_of("RETURNING", "RETURN"):
            return ""
        items = [self.expression()]
        while self.accept(","):
            items.append(self.expression())
        self.expect("INTO")
        count = 0
        while self.token.kind == "bind":
            self.take()
            count += 1
            if not self.accept(","):
                break
        if count != len(items):
            raise self.wrong(
                947 if count > len(items) else 913, "not enough values" if count > len(items) else "too many values"
            )
        return f" RETURNING {', '.join(items)}"

    def _value(self) -> str:
        """The value of one column: the only place for a LONG one (ORA-01461)."""
        if self.accept("DEFAULT"):
            return "DEFAULT"
        if self.token.kind == "bind" and self.ahead().is_(",", ")", "WHERE", "RETURNING", "", "WHEN", "RETURN"):
            return self.bind(takes_long=True)
        return self.expression()

    def _values(self) -> list[str]:
        self.expect("(")
        items = [self._value()]
        while self.accept(","):
            items.append(self._value())
        self.expect(")")
        return items

    def _insert(self) -> str:
        self.expect("INTO")
        table = self.table_name()
        alias = self.alias()
        columns = self._columns() if self.see("(") and not self.ahead().is_("SELECT", "WITH") else []
        text = f"INSERT INTO {table}{alias}" + (f" ({', '.join(columns)})" if columns else "")
        if self.accept("VALUES"):
            rows = [self._values()]
            while self.accept(","):
                rows.append(self._values())
            for row in rows:
                self._check_count(columns, row)
            if not columns:
                self._check = f"SELECT oracle_sys.check_count({literal(table)}, {min(map(len, rows))})"
            return f"{text} VALUES " + ", ".join(f"({', '.join(row)})" for row in rows)
        if self.see("SELECT") or self.see("WITH") or self.see("("):
            return f"{text} {self._query(top=False)[0]}"
        raise self.wrong(926, "missing VALUES keyword")

    def _check_count(self, columns: list[str], row: list[str]) -> None:
        if columns and len(row) != len(columns):
            few = len(row) < len(columns)
            raise self.wrong(947 if few else 913, "not enough values" if few else "too many values")

    def _columns(self) -> list[str]:
        self.expect("(")
        found = [self._own_column()]
        while self.accept(","):
            found.append(self._own_column())
        self.expect(")")
        return found

    def _own_column(self) -> str:
        """Oracle takes the table's alias before it; PostgreSQL does not."""
        return self.column().rpartition(".")[2] if self.ahead().is_(".") else self.name()

    def _update(self) -> str:
        table = self.table_name() + self.alias()
        self.expect("SET")
        text = f"UPDATE {table} SET {self._assignments()}"
        return f"{text} WHERE {self.expression()}" if self.accept("WHERE") else text

    def _assignments(self) -> str:
        items = [self._assignment()]
        while self.accept(","):
            items.append(self._assignment())
        return ", ".join(items)

    def _assignment(self) -> str:
        if self.see("("):
            columns = self._columns()
            self.expect("=")
            return f"({', '.join(columns)}) = {self.subquery()}"
        column = self._own_column()
        self.expect("=")
        return f"{column} = {self._value()}"

    def _delete(self) -> str:
        self.accept("FROM")
        text = f"DELETE FROM {self.table_name()}{self.alias()}"
        return f"{text} WHERE {self.expression()}" if self.accept("WHERE") else text

    def _merge(self) -> str:
        self.expect("INTO")
        text = f"MERGE INTO {self.table_name()}{self.alias()}"
        if not self.accept("USING"):
            raise self.wrong(905, "missing keyword")
        source = self.subquery() if self.see("(") else self.table_name()
        text += f" USING {source}{self.alias()}"
        self.expect("ON")
        start = self._at
        condition = self.in_parentheses()
        joined = {token.text for token in self._tokens[start : self._at] if token.kind in ("word", "quoted")}
        text += f" ON ({condition})"
        if not self.see("WHEN"):
            raise self.wrong(905, "missing keyword")
        while self.accept("WHEN"):
            text += self._merge_matched(joined) if self.accept("MATCHED") else self._merge_missing()
        return text

    def _merge_matched(self, joined: set[str]) -> str:
        self.expect("THEN")
        if not self.accept("UPDATE", "SET"):
            raise self.wrong(905, "missing keyword")
        start = self._at
        assignments = self._assignments()
        self._check_joined(start, joined)
        condition = f" AND {self.expression()}" if self.accept("WHERE") else ""
        if self.accept("DELETE"):
            raise self.wrong(3001, "unimplemented feature: DELETE in MERGE")
        return f" WHEN MATCHED{condition} THEN UPDATE SET {assignments}"

    def _check_joined(self, start: int, joined: set[str]) -> None:
        """SQL Language Reference, "MERGE": a column of the ON condition can't be updated (ORA-38104)."""
        tokens = self._tokens[start : self._at]
        depth = 0
        for token, after in pairwise(tokens):
            depth += token.is_("(") - token.is_(")")
            if depth == 0 and after.is_("=") and token.text in joined:
                raise self.wrong(38104, f'Columns referenced in the ON Clause cannot be updated: "{token.text}"')

    def _merge_missing(self) -> str:
        self.expect("NOT")
        self.expect("MATCHED")
        self.expect("THEN")
        self.expect("INSERT")
        columns = self._columns() if self.see("(") else []
        self.expect("VALUES")
        row = self._values()
        self._check_count(columns, row)
        condition = f" AND {self.expression()}" if self.accept("WHERE") else ""
        listed = f" ({', '.join(columns)})" if columns else ""
        return f" WHEN NOT MATCHED{condition} THEN INSERT{listed} VALUES ({', '.join(row)})"
