"""Reads and checks a commit that a client has planned, before it reaches the store.

All stored text is written here, from values that were parsed here. A client may use any names inside the thread of its
request. It cannot open a branch that is not named after its own rev, store other text under the digest of a value, or
describe a state that grows when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from locus.encryption.data_key import MARK
from locus.memory.model.codec import MAX_DEPTH, SEALED_BEGINNING, check, encode, encode_trusted
from locus.memory.model.ids import digest
from locus.memory.model.price import check_places, check_runs
from locus.memory.model.records import ANY, Base, Commit, Cuts, Extent, Path, Run, Unset
from locus.server.bodies import Limits
from locus.server.parsing import ValueCounter
from locus.server.requests import ID_ERROR, ROW, Body, Id, Many, Moment, Name, Number, Text, invalid

MOST_CUTS = 20_000
"""The most lists and large values that are looked at (see `price`)."""
MOST_EXTENTS = 64
"""The most extents of one list. `HTTPCheckpointer` writes eight at most."""

Rev = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Branch = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,80}$")]
ValueName = Annotated[str, Field(pattern=r"^#[0-9a-f]{32}$")]
PathNames = Annotated[Many[Text], Field(min_length=1, max_length=MAX_DEPTH)]
ExtentRow = Annotated[tuple[Branch, Number, Number, Number], ROW]
Cut = ValueName | Annotated[Many[ExtentRow], Field(min_length=1, max_length=MOST_EXTENTS)]
SomeItems = Annotated[list[Any], Field(min_length=1)]
Digest = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{22}$")]


class CommitBody(Body):
    """A save that the client has planned, as a commit of its new runs."""

    checkpoint_id: Id
    rev: Rev
    created_at: Moment
    metadata: dict[Any, Any]
    head: dict[Any, Any]
    manifest: Annotated[Many[Annotated[tuple[PathNames, Cut], ROW]], Field(max_length=MOST_CUTS)]
    runs: Many[Annotated[tuple[Branch, Number, Number, SomeItems], ROW]] = Field(default_factory=list)
    before: Many[Digest | None] = Field(default_factory=list)
    values: Many[Annotated[tuple[ValueName, str], ROW]] = Field(default_factory=list)
    base: Annotated[tuple[Id, Id], ROW] | None = None
    parent_id: Annotated[Id, ID_ERROR] | None = None
    parent_required: bool = False
    parent_as_named: bool = False
    replaces: Name | None = None
    expires_at: Moment | None = None


def commit_from(
    thread_id: str,
    namespace: str,
    data: dict[str, Any],
    if_latest: str | None | Unset,
    counter: ValueCounter | None = None,
) -> Commit:
    """Read the commit in a request body, and check each part. `counter` has counted the values of the body so far."""
    counter = counter or ValueCounter(Limits.body_values)
    body = CommitBody.check(data)
    digests = body.before or [None] * len(body.runs)
    if len(digests) != len(body.runs):
        raise invalid("`before`", "as long as `runs`")
    values = {name: _parsed(name, text, counter) for name, text in body.values}
    manifest = _manifest(body, values)
    runs = tuple(_run(body.rev, *row, before) for row, before in zip(body.runs, digests, strict=True))
    check_runs(runs)
    return Commit(
        thread_id=thread_id,
        namespace=namespace,
        checkpoint_id=body.checkpoint_id,
        rev=body.rev,
        created_at=body.created_at,
        metadata=encode(body.metadata, ("metadata",)),
        head=_head_text(body.head),
        manifest=manifest,
        extents=tuple(extent for _, cut in body.manifest for extent in _extents(cut)),
        runs=runs,
        values=tuple(Run(name, 0, 0, 1, f"[{text}]") for name, text in body.values),
        base=None if body.base is None else Base(*body.base),
        parent_id=body.parent_id if "parent_id" in data else ANY,
        parent_required=body.parent_required,
        parent_as_named=body.parent_as_named,
        if_latest=if_latest,
        replaces=body.replaces,
        # The store itself checks whether the id is new.
        fresh_id=False,
        expires_at=body.expires_at,
    )


def _head_text(head: dict[str, Any]) -> str:
    """The head as JSON, encoded field by field: the codec limits depth, and the head itself adds a level."""
    return "{" + ",".join(f"{encode(name)}:{encode(value, (name,))}" for name, value in head.items()) + "}"


def _run(rev: str, branch: str, number: int, start: int, items: list[Any], before: str | None) -> Run:
    if number == 0 and not (branch.startswith(rev) and start == 0):
        raise invalid("a run that opens a branch", "named after the rev of its checkpoint, and start at 0")
    texts = (encode(item, ("runs", branch, index)) for index, item in enumerate(items))
    return Run(branch, number, start, len(items), "[" + "\n,".join(texts) + "]", before if start else None)


_SEALED = f'"{MARK}', f"{{{SEALED_BEGINNING}"
"""What the text of a large value begins with if a client has sealed it."""


def _parsed(branch: str, text: str, counter: ValueCounter) -> Any:
    """A large value, which the client has sent as text."""
    encode(text)  # refuses lone surrogates
    if branch != f"#{digest(text)}" and not text.startswith(_SEALED):  # then the name is sealed as well
        raise invalid("the name of a value", "the digest of its text")
    try:
        value = counter.parse(text)
    except (ValueError, RecursionError) as error:
        raise invalid("a value", "JSON as text") from error
    encode(value, ("values",))
    return value


def _manifest(body: CommitBody, values: Mapping[str, Any]) -> str:
    """The manifest as JSON. Raises if it does not fit what the commit brings, or a branch is part of two lists."""
    cuts: dict[Path, tuple[Extent, ...] | str] = {}
    homes: dict[str, Path] = {}
    for names, cut in body.manifest:
        path = tuple(names)
        if path in cuts:
            raise invalid("a path in the manifest", "there once")
        cuts[path] = cut if isinstance(cut, str) else tuple(map(Extent._make, cut))
        for branch, *_ in () if isinstance(cut, str) else cut:
            if homes.setdefault(branch, path) != path:
                raise invalid("a branch", "part of one list only")
    for _ in check_places(body.head, cuts, values):
        pass  # inside of a value that the base has: see `extents`
    _check_depth(body, cuts, homes, values)
    return encode_trusted(body.manifest)


def _check_depth(body: CommitBody, cuts: Cuts, homes: Mapping[str, Path], values: Mapping[str, Any]) -> None:
    """Refuse what is nested too deeply where it belongs, and what belongs nowhere."""
    for branch, _, _, items in body.runs:
        path = homes.get(branch)
        if path is None:
            raise invalid("a run", "of a branch that the manifest names")
        if len(path) > 1:
            check(items, path, MAX_DEPTH + 2 - len(path))
    for path, cut in cuts.items():
        if isinstance(cut, str) and cut in values and len(path) > 1:
            check(values[cut], path, MAX_DEPTH + 1 - len(path))
    for name in values.keys() - {cut for cut in cuts.values() if isinstance(cut, str)}:
        raise invalid(f"the value {name}", "named by the manifest")


def _extents(cut: str | Iterable[tuple[str, int, int, int]]) -> Iterable[Extent]:
    """The extents in one entry of the manifest."""
    return [Extent(cut, 0, 0, 1)] if isinstance(cut, str) else map(Extent._make, cut)
