"""SELECT: SQL Language Reference, "SELECT"."""

from __future__ import annotations

from tests.servers.oracle.lexer import RESERVED
from tests.servers.oracle.parser import Translated, name_in_postgresql
from tests.servers.oracle.special_functions import SpecialFunctions

SET_OPERATORS = {"UNION": "UNION", "INTERSECT": "INTERSECT", "MINUS": "EXCEPT", "EXCEPT": "EXCEPT"}
JOINS = {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "OUTER"}
NO_ALIAS = {
    *JOINS, *SET_OPERATORS, "ON", "USING", "FETCH", "OFFSET", "WHERE", "GROUP", "HAVING", "ORDER", "WHEN", "SET", "FOR",
    "RETURNING", "RETURN", "LIMIT", "LOG", "VALUES", "CONNECT", "START",
}  # fmt: skip
"""Words that begin the next clause, and so can't be a table's alias here, though some of them could in Oracle."""


class Queries(SpecialFunctions):
    def query_statement(self) -> Translated:
        made = Translated("query", verb="SELECT")
        text, plain = self._query(top=True)
        lock = self._lock(made, plain) if self.accept("FOR", "UPDATE") else ""
        self.end()
        made.commands = [text + lock]
        return made

    def subquery(self) -> str:
        self.expect("(")
        text, _ = self._query(top=False)
        self.expect(")")
        return f"({text})"

    def _query(self, top: bool) -> tuple[str, bool]:
        """The text, and whether its rows are rows of a table, so that they can be locked."""
        ctes = f"{self._ctes()} " if self.accept("WITH") else ""
        text, plain = self._block()
        while self.token.is_(*SET_OPERATORS):
            operator = SET_OPERATORS[self.take().text]
            many = " ALL" if self.accept("ALL") else ""
            text, plain = f"{text} {operator}{many} {self._block()[0]}", False
        if self.see("ORDER"):
            text += f" {self.order_by()}"
        if limit := self._limit():
            text, plain = text + limit, False
        return ctes + text, plain

    def _ctes(self) -> str:
        items = [self._cte()]
        while self.accept(","):
            items.append(self._cte())
        return f"WITH {', '.join(items)}"

    def _cte(self) -> str:
        name = self.name()
        columns = f" ({', '.join(self.names())})" if self.see("(") else ""
        if not self.accept("AS"):
            raise self.wrong(905, "missing keyword")
        return f"{name}{columns} AS {self.subquery()}"

    def _block(self) -> tuple[str, bool]:
        if self.see("("):
            return self.subquery(), False
        if not self.accept("SELECT"):
            raise self.wrong(928, "missing SELECT keyword")
        distinct = bool(self.one_of("DISTINCT", "UNIQUE"))
        self.accept("ALL")
        items = [self._item()]
        while self.accept(","):
            items.append(self._item())
        text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items)}"
        if self.accept("INTO"):
            raise self.wrong(1744, "inappropriate INTO")
        # Without FROM since release 23.
        if self.accept("FROM"):
            text += f" FROM {self._sources()}"
        if self.accept("WHERE"):
            text += f" WHERE {self.expression()}"
        grouped = self.accept("GROUP", "BY")
        if grouped:
            text += f" GROUP BY {self.expression_list()}"
        if self.accept("HAVING"):
            text += f" HAVING {self.expression()}"
        return text, not (distinct or grouped)

    def _item(self) -> str:
        if self.accept("*"):
            return "*"
        start = self.token
        text = self.expression()
        if text.endswith(".*"):
            return text
        if self.accept("AS") or (self.is_name() and not self.token.is_("FROM", "BULK")):
            return f"{text} AS {self.name(923, 'FROM keyword not found where expected')}"
        return f"{text} AS {self._heading(start.position)}" if not text.endswith('"') else text

    def _heading(self, start: int) -> str:
        """SQL Language Reference, "SELECT", c_alias: without one, a column's name is its expression."""
        text = "".join(self.statement.text[start : self.token.position].split()).upper()
        return name_in_postgresql(text.encode()[:60].decode(errors="ignore") or "?")

    def _sources(self) -> str:
        text = self._joined()
        while self.accept(","):
            text += f", {self._joined()}"
        return text

    def _joined(self) -> str:
        text = self._source()
        while self.token.is_(*JOINS):
            text += self._join()
        return text

    def _join(self) -> str:
        natural = "NATURAL " if self.accept("NATURAL") else ""
        if self.accept("CROSS"):
            if self.accept("APPLY"):
                return f" CROSS JOIN LATERAL {self._source()}"
            self.expect("JOIN")
            return f" CROSS JOIN {self._source()}"
        if self.accept("OUTER"):
            self.expect("APPLY")
            return f" LEFT JOIN LATERAL {self._source()} ON TRUE"
        kind = self.one_of("INNER", "LEFT", "RIGHT", "FULL")
        if kind in ("LEFT", "RIGHT", "FULL"):
            self.accept("OUTER")
        self.expect("JOIN")
        text = f" {natural}{kind + ' ' if kind else ''}JOIN {self._source()}"
        if self.accept("ON"):
            return f"{text} ON {self.expression()}"
        if self.accept("USING"):
            return f"{text} USING ({', '.join(self.names())})"
        if not natural:
            raise self.wrong(905, "missing keyword")
        return text

    def _source(self) -> str:
        lateral = "LATERAL " if self.accept("LATERAL") else ""
        if self.see("(", "SELECT") or self.see("(", "WITH") or self.see("(", "("):
            text = lateral + self.subquery()
        elif self.see("("):
            self.take()
            text = f"({self._joined()})"
            self.expect(")")
        elif self.see("JSON_TABLE", "("):
            self.take(), self.take()
            text = self.json_table()
        else:
            text = self.table_name()
        return text + self.alias()

    def alias(self) -> str:
        """SQL Language Reference, "SELECT", t_alias: a table's alias has no AS before it."""
        if self.token.kind == "quoted" or (
            self.token.kind == "word" and self.token.text not in RESERVED and self.token.text not in NO_ALIAS
        ):
            return f" AS {self.name()}"
        return ""

    def _limit(self) -> str:
        """SQL Language Reference, "SELECT", row_limiting_clause. There is no LIMIT."""
        text = ""
        if self.accept("OFFSET"):
            text += f" OFFSET ({self._count()})::bigint"
            if not self.one_of("ROW", "ROWS"):
                raise self.wrong(905, "missing keyword")
        if self.accept("FETCH"):
            if not self.one_of("FIRST", "NEXT"):
                raise self.wrong(905, "missing keyword")
            count = "1" if self.token.is_("ROW", "ROWS") else f"({self._count()})::bigint"
            if not self.one_of("ROW", "ROWS"):
                raise self.wrong(905, "missing keyword")
            ties = self.accept("WITH", "TIES")
            if not ties:
                self.expect("ONLY")
            text += f" FETCH FIRST ({count}) ROWS {'WITH TIES' if ties else 'ONLY'}"
        return text

    def _count(self) -> str:
        return self.sum()

    def _lock(self, made: Translated, plain: bool) -> str:
        if not plain:
            # Error Messages, ORA-02014.
            raise self.wrong(2014, "cannot select FOR UPDATE from view with DISTINCT, GROUP BY, etc.")
        made.locks = True
        text = " FOR UPDATE"
        if self.accept("OF"):
            tables = [self.column().rpartition(".")[0]]
            while self.accept(","):
                tables.append(self.column().rpartition(".")[0])
            text += f" OF {', '.join(dict.fromkeys(table for table in tables if table))}" if any(tables) else ""
        if self.accept("NOWAIT"):
            return f"{text} NOWAIT"
        if self.accept("SKIP"):
            self.expect("LOCKED")
            return f"{text} SKIP LOCKED"
        if self.accept("WAIT"):
            made.wait = self.whole_number()
        return text
