"""Reads and checks a commit that a client has planned, before it reaches the store.

All stored text is written here, from values that were parsed here. A client can use any names inside the thread of its
request. It cannot open a branch that is not named after its own rev, store something else under the digest of a value,
or describe a state that grows when it is read.
"""

from __future__ import annotations

import re
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.model.codec import decode, encode, encode_trusted
from locus.memory.model.ids import check_id, digest
from locus.memory.model.records import ANY, Base, Commit, Run, Unset
from locus.server import fields
from locus.wire.problems import Problem

MOST_CUTS = 100_000
MOST_EXTENTS = 64
"""Of one list. `HTTPCheckpointer` writes eight at most."""

_FIELDS = frozenset(
    [
        "checkpoint_id",
        "rev",
        "created_at",
        "metadata",
        "head",
        "manifest",
        "runs",
        "values",
        "base",
        "parent_id",
        "parent_required",
        "parent_as_named",
        "replaces",
        "expires_at",
    ]
)
_REV = re.compile(r"[A-Za-z0-9_-]{8,64}")
_BRANCH = re.compile(r"[A-Za-z0-9_-]{8,80}")
_VALUE = re.compile(r"#[0-9a-f]{32}")


def commit_from(thread_id: str, namespace: str, data: dict[str, Any], if_latest: str | None | Unset) -> Commit:
    """The commit in a request body, with every part checked."""
    fields.only(data, _FIELDS)
    rev = _matching(fields.text(data, "rev"), _REV, "rev")
    head = fields.mapping(data, "head")
    manifest = _manifest(fields.sequence(data, "manifest"), head)
    return Commit(
        thread_id=thread_id,
        namespace=namespace,
        checkpoint_id=check_id(fields.text(data, "checkpoint_id"), "checkpoint_id"),
        rev=rev,
        created_at=fields.moment(data, "created_at"),
        metadata=encode(fields.mapping(data, "metadata"), ("metadata",)),
        head=_head_text(head),
        manifest=manifest,
        runs=tuple(_run(row, rev) for row in fields.sequence(data, "runs")) if "runs" in data else (),
        values=tuple(_value(row) for row in fields.sequence(data, "values")) if "values" in data else (),
        base=_base(data.get("base")),
        parent_id=_parent(data),
        parent_required=fields.flag(data, "parent_required"),
        parent_as_named=fields.flag(data, "parent_as_named"),
        if_latest=if_latest,
        replaces=fields.optional_text(data, "replaces"),
        # The store itself checks whether the id is new.
        fresh_id=False,
        expires_at=fields.moment(data, "expires_at") if data.get("expires_at") is not None else None,
    )


def _matching(value: Any, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise fields.invalid(what, "a name as HTTPCheckpointer makes it")
    return value


def _head_text(head: dict[str, Any]) -> str:
    """Encoded field by field: each value may be as deep as the codec allows, and the head adds one level."""
    return "{" + ",".join(f"{encode(name)}:{encode(value, (name,))}" for name, value in head.items()) + "}"


def _row(row: Any, length: int, what: str) -> list[Any]:
    if not isinstance(row, list) or len(row) != length:
        raise fields.invalid(what, f"lists of {length}")
    return row


def _run(row: Any, rev: str) -> Run:
    branch, number, start, items = _row(row, 4, "runs")
    _matching(branch, _BRANCH, "the branch of a run")
    number, start = fields.number(number, "the number of a run"), fields.number(start, "the start of a run")
    if not isinstance(items, list) or not items:
        raise fields.invalid("the items of a run", "a list with something in it")
    if number == 0 and not (branch.startswith(rev) and start == 0):
        raise fields.invalid("a run that opens a branch", "named after the rev of its checkpoint, and start at 0")
    texts = (encode(item, ("runs", branch, index)) for index, item in enumerate(items))
    return Run(branch, number, start, len(items), "[" + "\n,".join(texts) + "]")


def _value(row: Any) -> Run:
    branch, text = _row(row, 2, "values")
    _matching(branch, _VALUE, "the name of a value")
    if not isinstance(text, str):
        raise fields.invalid("a value", "JSON as text")
    encode(text)  # refuses lone surrogates
    if branch != f"#{digest(text)}":
        raise fields.invalid("the name of a value", "the digest of its text")
    try:
        value = decode(text)
    except CorruptCheckpointError as error:
        raise fields.invalid("a value", "JSON as text") from error
    encode(value, ("values",))
    return Run(branch, 0, 0, 1, f"[{text}]")


def _base(value: Any) -> Base | None:
    if value is None:
        return None
    checkpoint_id, rev = _row(value, 2, "base")
    if not isinstance(rev, str):
        raise fields.invalid("base", "an id and a rev")
    return Base(check_id(checkpoint_id, "base"), check_id(rev, "base"))


def _parent(data: dict[str, Any]) -> str | None | Unset:
    if "parent_id" not in data:
        return ANY
    return None if data["parent_id"] is None else check_id(data["parent_id"], "parent_id")


def _manifest(lines: list[Any], head: dict[str, Any]) -> str:
    """The manifest, checked: it fits the head, and no branch is part of two lists."""
    if len(lines) > MOST_CUTS:
        raise Problem(422, "invalid_request", f"a manifest has at most {MOST_CUTS} lines")
    cuts: dict[tuple[str, ...], Any] = {}
    homes: dict[str, tuple[str, ...]] = {}
    for line in lines:
        path, cut = _row(line, 2, "manifest")
        if not isinstance(path, list) or not path or not all(isinstance(step, str) for step in path):
            raise fields.invalid("a path in the manifest", "a list of keys")
        key = tuple(path)
        if key in cuts:
            raise fields.invalid("a path in the manifest", "there once")
        cuts[key] = _cut(cut, key, homes)
    for key in cuts:
        _check_path(key, head, cuts)
    return encode_trusted([[path, cut] for path, cut in cuts.items()])


def _cut(cut: Any, path: tuple[str, ...], homes: dict[str, tuple[str, ...]]) -> Any:
    if isinstance(cut, str):
        return _matching(cut, _VALUE, "the name of a value")
    if not isinstance(cut, list) or not 1 <= len(cut) <= MOST_EXTENTS:
        raise fields.invalid("the extents of a list", f"a list of 1 to {MOST_EXTENTS}")
    extents = []
    for extent in cut:
        branch, *numbers = _row(extent, 4, "extents")
        _matching(branch, _BRANCH, "the branch of an extent")
        if homes.setdefault(branch, path) != path:
            raise fields.invalid("a branch", "part of one list only")
        extents.append([branch, *(fields.number(value, "an extent") for value in numbers)])
    return extents


def _check_path(path: tuple[str, ...], head: dict[str, Any], cuts: dict[tuple[str, ...], Any]) -> None:
    """Check that a path leads to an empty place in the head, or into a large value."""
    node: Any = head
    for depth, step in enumerate(path):
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(cuts.get(path[:depth]), str):
            return
        else:
            raise fields.invalid("a path in the manifest", "a place in the head")
    if node not in ([], None):
        raise fields.invalid("what stands in the head for something cut out", "[] or null")
