"""The conditions of Python functions: watched, to know which ways were gone, or taken away, to see who notices.

They are found in the source of a module, and the function gets another code object for a while. So methods, closures,
generators and decorated functions are all the same.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

_WATCHER = "_watched_by_locus_tests"


@dataclass(frozen=True)
class Condition:
    """A condition of a function, and what it may be replaced by.

    That is the value which lets the others decide, if it is an operand of an `and` or an `or`, and the one which lets
    the function go on, if it leaves where the condition is met; else both.
    """

    function: FunctionType
    place: int
    """Its position among all expressions of the function."""
    text: str
    values: tuple[bool, ...]

    def __str__(self) -> str:
        return f"{self.function.__qualname__}: {self.text}"


def conditions_of(*functions: Callable[..., Any]) -> list[Condition]:
    """What `if`, conditional expressions and filters ask, each operand of `and` and `or`, and each comparison."""
    return [condition for function in functions for condition in _found(_plain(function))]


def _plain(function: Callable[..., Any]) -> FunctionType:
    found = inspect.unwrap(function)
    found = getattr(found, "__func__", found)
    assert isinstance(found, FunctionType)
    return found


def _found(function: FunctionType) -> Iterator[Condition]:
    seen: Counter[str] = Counter()
    for place, (parent, _, _, node) in enumerate(_expressions(_definition(function))):
        values = _values(parent, node)
        if values:
            text = ast.unparse(node)
            seen[text] += 1
            again = f" ({seen[text]})" if seen[text] > 1 else ""
            yield Condition(function, place, f"{text}{again}", values)


def _values(parent: ast.AST, node: ast.expr) -> tuple[bool, ...]:
    if isinstance(parent, ast.BoolOp):
        return (isinstance(parent.op, ast.And),)
    if isinstance(parent, ast.If) and node is parent.test and _leaves(parent):
        return (False,)
    is_test = isinstance(parent, ast.If | ast.IfExp) and node is parent.test
    is_filter = isinstance(parent, ast.comprehension) and node in parent.ifs
    is_said = isinstance(node, ast.Compare) and not isinstance(parent, ast.Assert)
    return (True, False) if is_test or is_filter or is_said else ()


def _leaves(statement: ast.If) -> bool:
    return not statement.orelse and isinstance(statement.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _expressions(definition: ast.AST) -> list[tuple[ast.AST, str, int | None, ast.expr]]:
    """All expressions with the node, the field and the index where each stands."""
    found: list[tuple[ast.AST, str, int | None, ast.expr]] = []
    for node in ast.walk(definition):
        for name, value in ast.iter_fields(node):
            members = value if isinstance(value, list) else [value]
            for index, member in enumerate(members):
                if isinstance(member, ast.expr):
                    found.append((node, name, index if isinstance(value, list) else None, member))
    return found


def _definition(function: FunctionType) -> ast.AST:
    """The function in a fresh tree of its module, which is the first of what is returned there."""
    return _in_module(function)[1]


@cache
def _source(path: str) -> str:
    return Path(path).read_text()


def _in_module(function: FunctionType) -> tuple[ast.Module, ast.AST]:
    code = function.__code__
    tree = ast.parse(_source(code.co_filename))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return tree, node
    raise LookupError(f"{function.__qualname__} is not in {code.co_filename}")


def _changed(function: FunctionType, change: Callable[[int, ast.expr], ast.expr]) -> CodeType:
    """The code of a function after each of its expressions was changed."""
    tree, definition = _in_module(function)
    for place, (parent, name, index, node) in enumerate(_expressions(definition)):
        changed = change(place, node)
        if index is None:
            setattr(parent, name, changed)
        else:
            getattr(parent, name)[index] = changed
    ast.fix_missing_locations(tree)
    return _code_of(compile(tree, function.__code__.co_filename, "exec"), function.__code__)


def _code_of(module: CodeType, wanted: CodeType) -> CodeType:
    waiting = [module]
    while waiting:
        code = waiting.pop()
        if (code.co_qualname, code.co_firstlineno) == (wanted.co_qualname, wanted.co_firstlineno):
            return code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    raise LookupError(wanted.co_qualname)


def take_away(condition: Condition, value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a condition have this value, whatever it asks. It is not asked any more, but its names stay in use."""

    def change(place: int, node: ast.expr) -> ast.expr:
        if place != condition.place:
            return node
        return ast.BoolOp(ast.Or() if value else ast.And(), [ast.Constant(value), node])

    monkeypatch.setattr(condition.function, "__code__", _changed(condition.function, change))


def watch(monkeypatch: pytest.MonkeyPatch, *functions: Callable[..., Any]) -> Counter[str]:
    """Count how often each condition of these functions was met, and how often it was not."""
    seen: Counter[str] = Counter()
    found = conditions_of(*functions)
    for condition in found:
        seen.update({f"{condition}: {value}": 0 for value in (True, False)})

    def noted(name: str, value: Any) -> Any:
        seen[f"{name}: {bool(value)}"] += 1
        return value

    # A module's names are its own; the builtins are there for all.
    monkeypatch.setattr(builtins, _WATCHER, noted, raising=False)
    for function in map(_plain, functions):
        places = {condition.place: str(condition) for condition in found if condition.function is function}

        def change(place: int, node: ast.expr, places: dict[int, str] = places) -> ast.expr:
            if place not in places:
                return node
            name = ast.Constant(places[place])
            return ast.Call(ast.Name(_WATCHER, ast.Load()), [name, node], [])

        monkeypatch.setattr(function, "__code__", _changed(function, change))
    return seen
