"""Paths in a payload: those that people write, `a.b.0`, and those of a manifest, where something was cut out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from locus.errors import CorruptCheckpointError
from locus.memory.model.manifest import Cuts
from locus.memory.model.records import Path

_MOST_DIGITS: Final = 15
_DEEPEST: Final = 100
"""Steps. Nothing that can be saved is nested as deep (see `codec.MAX_DEPTH`)."""


def key_of(value: dict[str, Any], names: Sequence[str]) -> tuple[str, int] | None:
    """The key of an object that a path goes on with, and how many of its names that takes; None if there is none.

    A path was split at its dots, so a key with dots in it takes several names. The shortest one counts.
    """
    name = ""
    for count, part in enumerate(names, 1):
        name = part if count == 1 else f"{name}.{part}"
        if name in value:
            return name, count
    return None


def position_of(name: str, length: int) -> int | None:
    """The position in a list of this length that a name of a path means; a negative one counts from the end."""
    digits = name.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
        return None
    position = int(name)
    return position % length if -length <= position < length else None


def check_cuts(head: Any, cuts: Cuts, value_of: Callable[[str], Any]) -> frozenset[Path]:
    """Refuse a manifest that does not fit its head: each path leads through objects to something that is there.

    `value_of` gives a large value by its name: something may be cut out of that, too. Returns the paths of the large
    values that this is so for.
    """
    tree: dict[str | None, Any] = {}
    for path in cuts:
        if not 0 < len(path) <= _DEEPEST or not all(isinstance(step, str) for step in path):
            raise _unfit()
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        node[None] = path  # no step is None
    opened: set[Path] = set()
    waiting: list[tuple[Any, dict[str | None, Any]]] = [(head, tree)]
    while waiting:
        value, node = waiting.pop()
        path = node.pop(None, None)
        if not node and path is not None:
            continue
        if path is not None:
            cut = cuts[path]
            if not isinstance(cut, str):
                raise _unfit()
            value = value_of(cut)
            opened.add(path)
        if not isinstance(value, dict) or not node.keys() <= value.keys():
            raise _unfit()
        waiting += [(value[step], below) for step, below in node.items() if step is not None]
    return frozenset(opened)


def _unfit() -> CorruptCheckpointError:
    return CorruptCheckpointError("stored head and manifest do not fit together")
