"""Conditions: SQL Language Reference, "Conditions"."""

from __future__ import annotations

from tests.servers.oracle.expressions import Expressions

LONGEST_LIST = 65535
COMPARISONS = {"=": "=", "!=": "<>", "<>": "<>", "^=": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">="}


class Conditions(Expressions):
    def expression(self) -> str:
        left = self._and()
        while self.accept("OR"):
            left = f"({left} OR {self._and()})"
        return left

    def _and(self) -> str:
        left = self._not()
        while self.accept("AND"):
            left = f"({left} AND {self._not()})"
        return left

    def _not(self) -> str:
        if self.accept("NOT"):
            return f"(NOT {self._not()})"
        return self._condition()

    def _condition(self) -> str:
        if self.see("EXISTS", "("):
            self.take()
            return f"EXISTS {self.subquery()}"
        is_row = self._sees_row()
        left = self.row() if is_row else self.sum()
        while True:
            found = self._comparison(left, is_row)
            if found is None:
                return left
            left = found

    def _sees_row(self) -> bool:
        """Whether a parenthesis holds a list and no single expression."""
        if not self.see("("):
            return False
        depth, offset = 0, 0
        while (token := self.ahead(offset)).kind != "end":
            depth += token.is_("(") - token.is_(")")
            if depth == 1 and token.is_("SELECT", "WITH"):
                return False
            if depth == 1 and token.is_(","):
                return True
            if depth == 0:
                return False
            offset += 1
        return False

    def row(self) -> str:
        self.expect("(")
        items = [self.sum()]
        while self.accept(","):
            items.append(self.sum())
        self.expect(")")
        return f"({', '.join(items)})"

    def _comparison(self, left: str, is_row: bool) -> str | None:
        if self.token.text in COMPARISONS and self.token.kind == "operator":
            return self._compared(left, is_row)
        if self.accept("IS"):
            return self._is(left)
        negative = "NOT " if self.ahead().is_("IN", "LIKE", "BETWEEN") and self.accept("NOT") else ""
        if self.accept("IN"):
            return f"({left} {negative}IN {self._list(is_row)})"
        if self.accept("BETWEEN"):
            low = self.sum()
            self.expect("AND")
            return f"({left} {negative}BETWEEN {low} AND {self.sum()})"
        if self.accept("LIKE"):
            pattern = self.sum()
            # Without ESCAPE there is no escape character in Oracle, where PostgreSQL would take the backslash.
            escape = self.sum() if self.accept("ESCAPE") else "''"
            return f"({left} {negative}LIKE {pattern} ESCAPE {escape})"
        return None

    def _compared(self, left: str, is_row: bool) -> str:
        operator = COMPARISONS[self.take().text]
        if is_row and operator not in ("=", "<>"):
            # SQL Language Reference, "Comparison Conditions": lists are compared for (in)equality only.
            raise self.wrong(1796, "this operator cannot be used with lists")
        if many := self.one_of("ANY", "SOME", "ALL"):
            return f"({left} {operator} {many} {self.subquery()})"
        right = self.row() if is_row and self._sees_row() else self.sum()
        return f"({left} {operator} {right})"

    def _is(self, left: str) -> str:
        negative = "NOT " if self.accept("NOT") else ""
        if self.accept("NULL"):
            return f"({self.typed(left)} IS {negative}NULL)"
        if self.accept("JSON"):
            while self.one_of("STRICT", "LAX", "WITH", "WITHOUT", "UNIQUE", "KEYS"):
                pass
            return f"({left}::text IS {negative}JSON)"
        if value := self.one_of("TRUE", "FALSE"):
            return f"({left} IS {negative}{value})"
        raise self.wrong(908, "missing NULL keyword")

    def _list(self, is_row: bool) -> str:
        if self.see("(", "SELECT") or self.see("(", "WITH"):
            return self.subquery()
        self.expect("(")
        item = self.row if is_row else self.expression
        items = [item()]
        while self.accept(","):
            items.append(item())
        self.expect(")")
        if len(items) > LONGEST_LIST:
            # Error Messages, ORA-01795: 1000 before release 23, 65535 since.
            raise self.wrong(1795, "maximum number of expressions in a list is 65535")
        return f"({', '.join(items)})"
