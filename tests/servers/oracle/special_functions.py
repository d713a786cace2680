"""Functions with a syntax of their own: SQL Language Reference, "Functions"."""

from __future__ import annotations

from tests.servers.oracle.json_functions import JSON, JsonFunctions


class SpecialFunctions(JsonFunctions):
    def special_function(self, name: str) -> str | None:
        made = SPECIAL.get(name) or JSON.get(name)
        return made(self) if made else None

    def cast(self) -> str:
        value = self.expression()
        self.expect("AS")
        type_ = self.data_type()
        self.expect(")")
        return f"({value})::{type_}"

    def extract(self) -> str:
        field = self.take().text
        self.expect("FROM")
        value = self.expression()
        self.expect(")")
        return f"extract({field} FROM {value})"

    def trim(self) -> str:
        side = self.one_of("LEADING", "TRAILING", "BOTH") or "BOTH"
        what = "" if self.see("FROM") else self.expression()
        if self.accept("FROM"):
            value = self.expression()
            self.expect(")")
            return f"NULLIF(trim({side} {what} FROM {value}), '')"
        self.expect(")")
        return f"NULLIF(trim({what}), '')"

    def listagg(self) -> str:
        arguments = self.arguments()
        order = ""
        if self.accept("WITHIN"):
            self.expect("GROUP")
            self.expect("(")
            order = f" {self.order_by()}"
            self.expect(")")
        separator = arguments[1] if len(arguments) > 1 else "''"
        return f"string_agg(({arguments[0]})::text, {separator}{order})"

    def json_table(self) -> str:
        """In FROM, after its name and left parenthesis."""
        subject = self._subject()
        path = self.path() if self.accept(",") else "'$'"
        passing = self._passing()
        conditions = self._on_conditions(("NULL", "ERROR"))
        columns = self._table_columns()
        self.expect(")")
        return f"JSON_TABLE({subject}, {path}{passing} {columns}{conditions})"

    def _table_columns(self) -> str:
        self.expect("COLUMNS")
        inside = self.accept("(")
        items = [self._table_column()]
        while self.accept(","):
            items.append(self._table_column())
        if inside:
            self.expect(")")
        return f"COLUMNS ({', '.join(items)})"

    def _table_column(self) -> str:
        if self.accept("NESTED"):
            self.accept("PATH")
            return f"NESTED PATH {self.path()} {self._table_columns()}"
        name = self.name()
        if self.accept("FOR", "ORDINALITY"):
            return f"{name} FOR ORDINALITY"
        type_ = "text" if self.see("EXISTS") or self.see("PATH") or self.see("FORMAT") else self.data_type()
        exists = " EXISTS" if self.accept("EXISTS") else ""
        format_ = " FORMAT JSON" if self.accept("FORMAT", "JSON") else ""
        wrapper = self._wrapper()
        path = f" PATH {self.path()}" if self.accept("PATH") else ""
        conditions = self._on_conditions(("NULL", "ERROR", "DEFAULT", "EMPTY"))
        return f"{name} {type_}{exists}{format_}{path}{wrapper}{conditions}"


SPECIAL = {
    "CAST": SpecialFunctions.cast,
    "EXTRACT": SpecialFunctions.extract,
    "TRIM": SpecialFunctions.trim,
    "LISTAGG": SpecialFunctions.listagg,
}
