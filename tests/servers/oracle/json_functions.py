"""SQL/JSON: JSON Developer's Guide, "Oracle SQL/JSON Path Expressions" and "SQL/JSON Functions and Conditions"."""

from __future__ import annotations

from tests.servers.oracle.conditions import Conditions
from tests.servers.oracle.datatypes import DataTypes
from tests.servers.oracle.parser import literal


class JsonFunctions(DataTypes, Conditions):
    def path(self) -> str:
        """A literal that begins with $: paths can't be binds."""
        if self.token.kind != "string":
            raise self.wrong(40454, "path expression not a literal")
        text = self.token.text
        if not text.startswith("$"):
            raise self.wrong(40442, f"JSON path expression syntax error ('{text}')")
        return literal(self.take().text)

    def _subject(self) -> str:
        """What a function of JSON looks at: a JSON column, or text that holds JSON."""
        found = f"oracle_sys.as_json({self.expression()})"
        self.accept("FORMAT", "JSON")
        return found

    def _passing(self) -> str:
        if not self.accept("PASSING"):
            return ""
        items = [self._passed()]
        while self.accept(","):
            items.append(self._passed())
        return f" PASSING {', '.join(items)}"

    def _passed(self) -> str:
        value = self.typed(self.expression())
        self.expect("AS")
        return f"{value} AS {self.name()}"

    def _on_conditions(self, allowed: tuple[str, ...]) -> str:
        """NULL ON ERROR and the like, for errors and for what is not there."""
        said = []
        while self.token.is_(*allowed) and (self.ahead().is_("ON") or self.token.is_("DEFAULT", "EMPTY")):
            word = self.take().text
            if word == "DEFAULT":
                word = f"DEFAULT {self.expression()}"
            elif word == "EMPTY" and (kind := self.one_of("ARRAY", "OBJECT")):
                word = f"EMPTY {kind}"
            self.expect("ON")
            place = self.one_of("ERROR", "EMPTY", "MISMATCH")
            if place is None:
                raise self.wrong(905, "missing keyword")
            said.append((place, f"{word} ON {place}"))
        return "".join(f" {text}" for _, text in sorted(said))

    def _returning(self, default: str) -> str:
        if not self.accept("RETURNING"):
            return default
        if self.see("VARCHAR2") and not self.ahead().is_("("):
            self.take()
            return "text"
        return self.data_type()

    def json_value(self) -> str:
        subject = self._subject()
        self.expect(",")
        path = self.path()
        passing = self._passing()
        type_ = self._returning("text")
        conditions = self._on_conditions(("NULL", "ERROR", "DEFAULT"))
        self.expect(")")
        if type_ in ("oracle_sys.clob", "oracle_sys.blob"):
            return f"JSON_VALUE({subject}, {path}{passing} RETURNING text{conditions})::{type_}"
        return f"JSON_VALUE({subject}, {path}{passing} RETURNING {type_}{conditions})"

    def json_query(self) -> str:
        subject = self._subject()
        self.expect(",")
        path = self.path()
        passing = self._passing()
        type_ = self._returning("text")
        self.accept("PRETTY")
        wrapper = self._wrapper()
        conditions = self._on_conditions(("NULL", "ERROR", "EMPTY"))
        self.expect(")")
        made = f"JSON_QUERY({subject}, {path}{passing} RETURNING jsonb{wrapper}{conditions})"
        return made if type_ == "jsonb" else f"({made})::text::{type_}"

    def _wrapper(self) -> str:
        if self.accept("WITHOUT"):
            self.accept("ARRAY")
            self.expect("WRAPPER")
            return ""
        if not self.accept("WITH"):
            return ""
        kind = " CONDITIONAL" if self.accept("CONDITIONAL") else ""
        self.accept("UNCONDITIONAL")
        self.accept("ARRAY")
        self.expect("WRAPPER")
        return f" WITH{kind} WRAPPER"

    def json_exists(self) -> str:
        subject = self._subject()
        self.expect(",")
        path = self.path()
        passing = self._passing()
        conditions = self._on_conditions(("TRUE", "FALSE", "ERROR"))
        self.expect(")")
        return f"JSON_EXISTS({subject}, {path}{passing}{conditions})"

    def json_serialize(self) -> str:
        subject = self._subject()
        type_ = self._returning("text")
        while self.one_of("PRETTY", "ASCII", "ORDERED"):
            pass
        self._on_conditions(("NULL", "ERROR"))
        self.expect(")")
        return f"oracle_sys.serialised({subject})::{type_}"

    def json_textcontains(self) -> str:
        """Needs a JSON search index, and a text that stands in the statement (ORA-40483)."""
        column = self.column()
        self.expect(",")
        path = self.path()
        self.expect(",")
        if self.token.kind != "string":
            raise self.wrong(40483, "The third argument of JSON_TEXTCONTAINS must be a compile time constant.")
        words = literal(self.take().text)
        self.expect(")")
        table = f"{column.rpartition('.')[0]}." if "." in column else ""
        plain = column.rpartition(".")[2].strip('"').replace("'", "''")
        return f"oracle_sys.json_textcontains({table}tableoid, '{plain}', {column}, {path}, {words})"

    def json_object(self) -> str:
        items, absent = [], False
        if not self.see(")"):
            items.append(self._member())
            while self.accept(","):
                items.append(self._member())
        if word := self.one_of("NULL", "ABSENT"):
            self.expect("ON")
            self.expect("NULL")
            absent = word == "ABSENT"
        type_ = self._returning("text")
        self.expect(")")
        made = f"jsonb_build_object({', '.join(items)})"
        if absent:
            made = f"jsonb_strip_nulls({made})"
        return made if type_ == "jsonb" else f"({made})::text::{type_}"

    def _member(self) -> str:
        self.accept("KEY")
        key = self.typed(self.sum())
        if not self.accept("VALUE"):
            self.expect("IS")
        value = self.typed(self.expression())
        if self.accept("FORMAT", "JSON"):
            value = f"oracle_sys.as_json({value})"
        return f"{key}, {value}"

    def json_array(self) -> str:
        items = (
            []
            if self.see(
                ")",
            )
            else [self.typed(self.expression())]
        )
        while self.accept(","):
            items.append(self.typed(self.expression()))
        type_ = self._returning("text")
        self.expect(")")
        made = f"jsonb_build_array({', '.join(items)})"
        return made if type_ == "jsonb" else f"({made})::text::{type_}"

    def json_arrayagg(self) -> str:
        item = self.expression()
        order = f" {self.order_by()}" if self.see("ORDER") else ""
        type_ = self._returning("text")
        self.expect(")")
        made = f"jsonb_agg({item}{order})"
        return made if type_ == "jsonb" else f"({made})::text::{type_}"

    def json_mergepatch(self) -> str:
        subject = self._subject()
        self.expect(",")
        patch = self._subject()
        type_ = self._returning("jsonb")
        self.expect(")")
        made = f"oracle_sys.json_mergepatch({subject}, {patch})"
        return made if type_ == "jsonb" else f"({made})::text::{type_}"

    def json(self) -> str:
        found = self._subject()
        self.expect(")")
        return found

    def json_scalar(self) -> str:
        found = self.typed(self.expression())
        self.expect(")")
        return f"to_jsonb({found})"

    def json_equal(self) -> str:
        left = self._subject()
        self.expect(",")
        right = self._subject()
        self.expect(")")
        return f"({left} = {right})"


JSON = {
    "JSON_VALUE": JsonFunctions.json_value,
    "JSON_QUERY": JsonFunctions.json_query,
    "JSON_EXISTS": JsonFunctions.json_exists,
    "JSON_SERIALIZE": JsonFunctions.json_serialize,
    "JSON_TEXTCONTAINS": JsonFunctions.json_textcontains,
    "JSON_OBJECT": JsonFunctions.json_object,
    "JSON_ARRAY": JsonFunctions.json_array,
    "JSON_ARRAYAGG": JsonFunctions.json_arrayagg,
    "JSON_MERGEPATCH": JsonFunctions.json_mergepatch,
    "JSON_SCALAR": JsonFunctions.json_scalar,
    "JSON_EQUAL": JsonFunctions.json_equal,
    "JSON": JsonFunctions.json,
}
