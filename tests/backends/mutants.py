"""Mutants: the code with one condition taken away, for a test to show that somebody notices.

Conditions of Python are found in the tree of a function, those of SQL in the statements that are sent while a commit
is on its way, and those of Lua in the text of a script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.backends.conditions import conditions_of, take_away


@dataclass(frozen=True)
class Mutant:
    """`apply` takes the condition away, until the patch is undone."""

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]


def python_mutants(*functions: Callable[..., Any]) -> list[Mutant]:
    return [
        Mutant(f"{condition} -> {value}", partial(take_away, condition, value))
        for condition in conditions_of(*functions)
        for value in condition.values
    ]


class Span(NamedTuple):
    """A part of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]


def _operands(text: str, span: Span, word: str) -> list[Span]:
    """The parts between a word, where it stands outside of all parentheses."""
    parts, depth, start = [], 0, span.start
    for token in re.compile(rf"[()]|'[^']*'|\b{word}\b").finditer(text, span.start, span.end):
        depth += (token[0] == "(") - (token[0] == ")")
        if token[0] == word and depth == 0:
            parts.append(Span(start, token.start()))
            start = token.end()
    return [*parts, Span(start, span.end)]


def lua_mutants(text: str, install: Callable[[str, pytest.MonkeyPatch], None]) -> list[Mutant]:
    """Of a script: what each `if` asks, and the operands of that and of the conditions that have a name."""
    mutants: list[Mutant] = []
    seen: Counter[str] = Counter()
    asked = re.compile(r"\b(?:else)?if (?P<test>.+?) then\b|^local \w+ = (?P<named>.+ [~=]= .+)$", re.MULTILINE)
    for line in asked.finditer(text):
        kind = "test" if line["test"] else "named"
        span = Span(*line.span(kind))
        leaves = kind == "test" and re.compile(r"\s*return\b").match(text, line.end())
        changes = [(span, "false")] if leaves else [(span, "true"), (span, "false")]
        for word, neutral in (("or", "false"), ("and", "true")):
            parts = _operands(text, span, word)
            if len(parts) > 1:
                changes += [(part, neutral) for part in parts]
                break
        for part, value in changes:
            name = f"{line[0].strip()}: {part.of(text).strip()} -> {value}"
            seen[name] += 1
            again = f" ({seen[name]})" if seen[name] > 1 else ""
            broken = f"{text[: part.start]} {value} {text[part.end :]}"
            mutants.append(Mutant(f"Lua {name}{again}", partial(install, broken)))
    return mutants


class SQLCondition(NamedTuple):
    """A condition of a statement; `name` says what it is part of, and is the same in all statements like it."""

    name: str
    span: Span


_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|\S")
_ENDS = {"ORDER", "GROUP", "LIMIT", "OFFSET", "FOR", "RETURNING", "FROM", "SET", "UNION", "LEFT", "JOIN", "FETCH"}


def sql_conditions(text: str) -> list[SQLCondition]:
    """What a statement and its subqueries ask in WHERE and ON, taken apart at each AND."""
    tokens = [(match[0].upper(), Span(*match.span())) for match in _TOKEN.finditer(text)]
    return list(_in_clauses(text, tokens, 0, len(tokens), ""))


def _in_clauses(
    text: str, tokens: list[tuple[str, Span]], first: int, last: int, around: str
) -> Iterator[SQLCondition]:
    """Those of the tokens from `first` to `last`, which are a statement or what stands in parentheses."""
    within = around or _origin(text, tokens, first, last)
    clause: int | None = None
    at = first
    while at <= last:
        word = tokens[at][0] if at < last else ""
        ends = at == last or word in _ENDS or word in ("WHERE", "ON")
        if clause is not None and (ends or word == "AND"):
            span = Span(tokens[clause][1].start, tokens[at - 1][1].end)
            name = f"{within} | {_normal(span.of(text))}"
            yield SQLCondition(name, span)
            yield from _in_parentheses(text, tokens, clause, at, name)
            clause = None if ends else at + 1
        if word in ("WHERE", "ON") and tokens[at + 1][0] not in ("CONFLICT", "DUPLICATE"):
            clause = at + 1
        if word == "(":
            close = _closing(tokens, at)
            if clause is None:
                is_query = tokens[at + 1][0] in ("SELECT", "UPDATE", "INSERT", "DELETE")
                yield from _in_clauses(text, tokens, at + 1, close, "" if is_query else within)
            at = close
        at += 1


def _in_parentheses(
    text: str, tokens: list[tuple[str, Span]], first: int, last: int, around: str
) -> Iterator[SQLCondition]:
    at = first
    while at < last:
        if tokens[at][0] == "(":
            close = _closing(tokens, at)
            yield from _in_clauses(text, tokens, at + 1, close, around)
            at = close
        at += 1


def _origin(text: str, tokens: list[tuple[str, Span]], first: int, last: int) -> str:
    """What tells a query from others: what it does to which tables, the column if it asks for one, and an order."""
    words, at = [], first
    while at < last:
        if tokens[at][0] == "(":
            at = _closing(tokens, at)
        elif tokens[at][0] == "SELECT" and tokens[at + 1][0].isidentifier() and tokens[at + 2][0] == "FROM":
            words.append(f"SELECT {tokens[at + 1][1].of(text)}")
        elif tokens[at][0] in ("SELECT", "INSERT", "DELETE"):
            words.append(tokens[at][0])
        elif tokens[at][0] in ("FROM", "JOIN", "UPDATE", "INTO"):
            found = re.compile(r"\S+ [\w\"`.]+").match(text, tokens[at][1].start)
            words.append(found[0] if found else "")
        elif tokens[at][0] == "ORDER":
            words.append("in order")
        at += 1
    return _normal(" ".join(words))


def _closing(tokens: list[tuple[str, Span]], at: int) -> int:
    depth = 0
    while True:
        depth += (tokens[at][0] == "(") - (tokens[at][0] == ")")
        if depth == 0:
            return at
        at += 1


def _normal(text: str) -> str:
    """Without what differs between statements for the same purpose: names of tables, and numbers of values."""
    text = re.sub(r"(?:locus_)?\"?t_?[0-9a-f]{12}\"?[._]", "", text.replace("`", ""), flags=re.IGNORECASE)
    text = re.sub(r"\$\d+(?:::\w+)?|:\d+", "?", text)
    return re.sub(r"\(\?(?:, \?)*\)", "(?)", re.sub(r"\s+", " ", text)).strip()


_CARRIES_OUT = re.compile(
    r"(?:WITH \w+ AS \()?(?:INSERT INTO|UPDATE|DELETE(?: \w+)? FROM) (?!\S*threads\b)|SELECT.*\bmanifest\b",
    re.IGNORECASE,
)
"""Nothing is decided by what changes anything but the row of the thread, or looks at what a checkpoint holds."""


@dataclass
class _Commit:
    """A commit that is under way."""

    is_decided: bool = False


_commit: ContextVar[_Commit | None] = ContextVar("the commit of this task", default=None)


class Statements:
    """What is sent to a database to decide on a commit; one condition may be taken away."""

    def __init__(self) -> None:
        self.taken_away: str | None = None
        self._seen: dict[str, None] = {}
        self._newest: _Commit | None = None

    @contextmanager
    def committing(self) -> Iterator[None]:
        self._newest = _Commit()
        token = _commit.set(self._newest)
        try:
            yield
        finally:
            _commit.reset(token)
            self._newest = None

    def changed(self, text: str) -> str:
        """The statement as this task is to send it."""
        return self._changed(text, _commit.get())

    def changed_in_thread(self, text: str) -> str:
        """The same in a thread that works for one commit after another."""
        return self._changed(text, self._newest)

    def _changed(self, text: str, commit: _Commit | None) -> str:
        if commit is None:
            return text
        if text.startswith("BEGIN"):
            # Not the first attempt.
            commit.is_decided = False
        elif _CARRIES_OUT.match(text):
            commit.is_decided = True
        if commit.is_decided:
            return text
        found = sql_conditions(text)
        self._seen.update(dict.fromkeys(condition.name for condition in found))
        for condition in sorted(found, key=lambda condition: -condition.span.start):
            if condition.name == self.taken_away:
                start, end = condition.span
                text = f"{text[:start]}({text[start:end]} OR 1 = 1){text[end:]}"
        return text

    def mutants(self) -> list[Mutant]:
        """One for each condition that was seen so far."""

        def apply(name: str, patch: pytest.MonkeyPatch) -> None:
            patch.setattr(self, "taken_away", name)

        return [Mutant(f"SQL {name}", partial(apply, name)) for name in self._seen]
