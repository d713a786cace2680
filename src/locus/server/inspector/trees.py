"""A JSON value as a tree that can be folded, however large it is. Pure functions.

Trees are bounded: long texts are cut, long lists end with the number of items that are left out, and so do deep
values. Base64 is named by its size: nobody reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST: Final = 2_000
"""The most characters of one text."""
MOST: Final = 600
"""The most nodes of one tree."""
DEEPEST: Final = 12
ENCODED: Final = 1_024
"""The length from which on base64 is folded."""
_SHORT: Final = 80

_BASE64 = re.compile(r"(?:data:[\w.+-]+/[\w.+-]+;base64,)?[A-Za-z0-9+/_-]+={0,2}")


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A value in a tree, with the name or number that it has in its parent."""

    name: str
    kind: str
    """One of `object`, `list`, `text`, `number`, `flag`, `null`, `bytes`."""
    text: str = ""
    more: str = ""
    """A note about the part that is left out."""
    children: tuple[TreeNode, ...] = field(default=())
    path: tuple[str, ...] = field(default=())

    @property
    def size(self) -> int:
        return len(self.children)


def tree(value: Any, name: str = "") -> TreeNode:
    """The tree of a value."""
    return _node(name, value, iter(range(MOST)), 0, ())


def _node(name: str, value: Any, budget: Iterator[int], depth: int, path: tuple[str, ...]) -> TreeNode:
    if isinstance(value, dict):
        if depth >= DEEPEST:
            return TreeNode(name, "object", more=f"{len(value):,} more levels below", path=path)
        children, left = _children(value.items(), budget, depth, path)
        return TreeNode(name, "object", _count(len(value), "field"), left, children, path)
    if isinstance(value, list):
        if depth >= DEEPEST:
            return TreeNode(name, "list", more=f"{len(value):,} items below", path=path)
        children, left = _children(((str(at), item) for at, item in enumerate(value)), budget, depth, path)
        return TreeNode(name, "list", _count(len(value), "item"), left, children, path)
    if isinstance(value, str):
        return _text(name, value, path)
    if isinstance(value, bool):
        return TreeNode(name, "flag", "true" if value else "false", path=path)
    if value is None:
        return TreeNode(name, "null", "null", path=path)
    return TreeNode(name, "number", json.dumps(value), path=path)


def _children(items: Any, budget: Iterator[int], depth: int, path: tuple[str, ...]) -> tuple[tuple[TreeNode, ...], str]:
    nodes: list[TreeNode] = []
    left = 0
    for name, item in items:
        if left or next(budget, None) is None:
            left += 1
            continue
        nodes.append(_node(name, item, budget, depth + 1, (*path, name)))
    return tuple(nodes), f"{left:,} more" if left else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _text(name: str, value: str, path: tuple[str, ...]) -> TreeNode:
    if (encoded := is_encoded(value)) is not None:
        return TreeNode(name, "bytes", encoded, path=path)
    more = f"{len(value) - LONGEST:,} more characters" if len(value) > LONGEST else ""
    return TreeNode(name, "text", value[:LONGEST], more, path=path)


def is_encoded(text: str) -> str | None:
    """The kind and size of a long piece of base64, to show instead of it; None if the text is something else."""
    if len(text) < ENCODED or not _BASE64.fullmatch(text):
        return None
    head, comma, _ = text.partition(",")
    kind = head.removeprefix("data:").removesuffix(";base64") if comma else "base64"
    return f"{kind}, {len(text) * 3 // 4:,} bytes"


def folded(value: Any, most: int = 20_000) -> tuple[str, str]:
    """A value as JSON, with base64 folded, cut to `most` characters, and a note about the part that is left out."""
    text = json.dumps(without_encoded(value), ensure_ascii=False, indent=2)
    return (text, "") if len(text) <= most else (text[:most], f"{len(text) - most:,} more characters")


def without_encoded(value: Any) -> Any:
    """A copy of a value, with a note of kind and size in the place of each long base64 text."""
    if isinstance(value, dict):
        return {key: without_encoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_encoded(item) for item in value]
    if isinstance(value, str):
        encoded = is_encoded(value)
        return value if encoded is None else f"[{encoded}]"
    return value
