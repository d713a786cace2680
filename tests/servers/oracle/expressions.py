"""Expressions: SQL Language Reference, "Expressions"."""

from __future__ import annotations

from tests.servers.oracle.functions import PLAIN, WINDOWED, WITHOUT_PARENTHESES
from tests.servers.oracle.lexer import RESERVED
from tests.servers.oracle.parser import Parser, literal, name_in_postgresql
from tests.servers.oracle.types import LONGEST_TEXT

FIELDS = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TIMEZONE_HOUR", "TIMEZONE_MINUTE"}


class Expressions(Parser):
    """Each method returns what PostgreSQL is to be told."""

    def special_function(self, name: str) -> str | None:
        """One with a syntax of its own, after its left parenthesis; None if it is no such."""
        raise NotImplementedError

    def data_type(self) -> str:
        raise NotImplementedError

    def typed(self, expression: str) -> str:
        """A parameter that nothing around gives a type to is a text."""
        return f"{expression}::text" if expression.startswith("$") else expression

    def sum(self) -> str:
        left = self._product()
        while operator := self.one_of("+", "-", "||"):
            right = self._product()
            if operator == "||":
                left = f"oracle_sys.joined({left}, {right})"
            else:
                left = f"({left} {operator} {right})"
        return left

    def _product(self) -> str:
        left = self._unary()
        while operator := self.one_of("*", "/"):
            left = f"({left} {operator} {self._unary()})"
        return left

    def _unary(self) -> str:
        if self.accept("-"):
            return f"(- {self._unary()})"
        self.accept("+")
        left = self._primary()
        while self.accept("AT"):
            left = self._at_zone(left)
        return left

    def _at_zone(self, left: str) -> str:
        if self.accept("LOCAL"):
            return f"({left} AT LOCAL)"
        for word in ("TIME", "ZONE"):
            self.expect(word)
        self._primary()
        # The instant is the same, and only instants are kept here.
        return left

    def _primary(self) -> str:
        token = self.token
        if token.kind == "string":
            return self._text()
        if token.kind == "number":
            return self._number()
        if token.kind == "bind":
            return self.bind()
        if token.is_("("):
            if self.ahead().is_("SELECT", "WITH"):
                return self.subquery()
            return f"({self.in_parentheses()})"
        if token.is_("CASE"):
            return self._case()
        if token.kind in ("word", "quoted"):
            return self._named()
        raise self.wrong(936, "missing expression")

    def _text(self) -> str:
        """SQL Language Reference, "Text Literals": as long as a VARCHAR2 may be."""
        if len(self.token.text.encode()) > LONGEST_TEXT:
            raise self.wrong(1704, "string literal too long")
        return literal(self.take().text)

    def _number(self) -> str:
        text = self.take().text
        if text[-1] in "fFdD":
            return f"{text[:-1]}::float8"
        # So that 1 / 2 is a half, as in Oracle, and a bind beside it gets to be a NUMBER.
        return f"{text}::numeric"

    def _case(self) -> str:
        self.expect("CASE")
        parts = ["CASE"]
        if not self.see("WHEN"):
            parts.append(self.expression())
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            parts.append(f"WHEN {condition} THEN {self.expression()}")
        if len(parts) == 1:
            raise self.wrong(905, "missing keyword")
        if self.accept("ELSE"):
            parts.append(f"ELSE {self.expression()}")
        self.expect("END")
        return f"({' '.join(parts)} END)"

    def _named(self) -> str:
        token = self.token
        if token.kind == "word":
            if token.text in WITHOUT_PARENTHESES and not self.ahead().is_("("):
                return WITHOUT_PARENTHESES[self.take().text]
            if found := self._literal_with_type():
                return found
            if self.ahead().is_("(") or (self.ahead().is_(".") and self.ahead(3).is_("(")):
                return self._function()
            if token.text in RESERVED:
                raise self.wrong(936, "missing expression")
        return self.column()

    def _literal_with_type(self) -> str | None:
        """SQL Language Reference, "Literals": DATE '…', TIMESTAMP '…' and INTERVAL '…' DAY."""
        word = self.token.text
        if word not in ("DATE", "TIMESTAMP", "INTERVAL") or self.ahead().kind != "string":
            return None
        self.take()
        text = literal(self.take().text)
        if word == "DATE":
            return f"{text}::timestamp(0)"
        if word == "TIMESTAMP":
            zoned = text.rstrip("'")[-6:-5] in "+-" or text.endswith(("UTC'", "Z'"))
            return f"{text}::timestamp{'tz' if zoned else ''}"
        unit = self._unit()
        if self.accept("TO"):
            return f"INTERVAL {text} {unit} TO {self._unit()}"
        return f"INTERVAL {text} {unit}"

    def _unit(self) -> str:
        unit = self.one_of(*FIELDS)
        if unit is None:
            raise self.wrong(30089, "missing or invalid <datetime field>")
        if self.see("("):
            self.skip_parentheses()
        return unit

    def column(self) -> str:
        """A column, with its table and its schema if they are said; or a sequence's next value."""
        parts = [self.bare_name()]
        while self.accept("."):
            if self.see("*"):
                self.take()
                return ".".join([*map(name_in_postgresql, parts), "*"])
            parts.append(self.bare_name())
        if parts[-1] in ("NEXTVAL", "CURRVAL") and len(parts) > 1:
            sequence = ".".join(map(name_in_postgresql, parts[:-1])).replace("'", "''")
            return f"{parts[-1].lower()}('{sequence}')"
        if len(parts) > 3:
            raise self.wrong(904, f'"{".".join(parts)}": invalid identifier')
        return ".".join(map(name_in_postgresql, parts))

    def _function(self) -> str:
        token = self.take()
        name = token.text
        if self.accept("."):
            name = f"{name}.{self.take().text}"
        self.expect("(")
        if (found := self.special_function(name)) is not None:
            return found
        plain = PLAIN.get(name)
        if plain is None:
            self._at -= 1
            raise self.wrong(904, f'"{name}": invalid identifier')
        arguments = self.arguments()
        if not plain.least <= len(arguments) <= plain.most:
            few = len(arguments) < plain.least
            raise self.wrong(
                938 if few else 939,
                f"not enough arguments for function {name}" if few else "too many arguments for function",
            )
        made = plain.make(*arguments)
        return f"{made} OVER {self._window()}" if name in WINDOWED and self.accept("OVER") else made

    def arguments(self) -> list[str]:
        """Up to the right parenthesis."""
        if self.accept(")"):
            return []
        found = [self._argument()]
        while self.accept(","):
            found.append(self._argument())
        self.expect(")")
        return found

    def _argument(self) -> str:
        if self.accept("*"):
            return "*"
        if self.accept("DISTINCT"):
            return f"DISTINCT {self.expression()}"
        return self.expression()

    def expression_list(self) -> str:
        found = [self.expression()]
        while self.accept(","):
            found.append(self.expression())
        return ", ".join(found)

    def order_by(self) -> str:
        """SQL Language Reference, "SELECT", order_by_clause: NULLs come last, and first if it descends."""
        self.expect("ORDER")
        self.expect("BY")
        items = [self._order_item()]
        while self.accept(","):
            items.append(self._order_item())
        return f"ORDER BY {', '.join(items)}"

    def _order_item(self) -> str:
        item = self.take().text if self.token.kind == "number" else self.expression()
        if direction := self.one_of("ASC", "DESC"):
            item += f" {direction}"
        if self.accept("NULLS"):
            item += f" NULLS {self.one_of('FIRST', 'LAST') or self.fail(905, 'missing keyword')}"
        return item

    def _window(self) -> str:
        self.expect("(")
        parts = []
        if self.accept("PARTITION"):
            self.expect("BY")
            parts.append(f"PARTITION BY {self.expression_list()}")
        if self.see("ORDER"):
            parts.append(self.order_by())
        self.expect(")")
        return f"({' '.join(parts)})"
