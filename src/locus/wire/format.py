"""The format of requests and answers between `HTTPCheckpointer` and `locus.server`.

A save is one JSON object. The head, the manifest, the metadata and the items of its runs are JSON values in it rather
than quoted text, so that it is hardly longer than the new data. Large values are text, because their names are digests
of exactly that text:

    {"checkpoint_id": "c7", "rev": "c7", "created_at": "…", "metadata": {}, "head": {…},
     "manifest": [[["messages"], [["k3v9…", 6, 0, 28]]]],
     "runs": [["k3v9…", 6, 24, [{…}, {…}, {…}, {…}]]], "values": [["#9f…", "\\"…\\""]],
     "base": ["c6", "r6"], "parent_id": "c6"}

A load returns them as text, because nothing between the database and the caller needs to parse them:

    {"entry": {…}, "head": "{…}", "manifest": "[…]", "runs": [["k3v9…", 6, 24, 4, "[…]"]], "passed": false}

The query of a load can ask for less. `window=[50,[["messages"]]]` asks for the last 50 items of some lists, and all of
everything else. `held=["c6","r6"]` names a checkpoint that the client has, whose runs need not be sent again. If the
server leaves them out, the answer names that checkpoint as `since`.

An id in a path is written unchanged if no proxy would alter it, or else as `~` and base64:
`/threads/~dGVuYW50L2E/latest` is the thread `tenant/a`.

For each record there is a pair of functions: `…_text` or `…_data` writes it, and `…_from` reads it back.
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from locus.errors import CorruptCheckpointError, InvalidIdError
from locus.memory.model import table
from locus.memory.model.changes import ItemChange, ListDiff, PayloadDiff, ValueChange
from locus.memory.model.codec import decode, encode, encode_trusted
from locus.memory.model.manifest import by_branch
from locus.memory.model.parts import Window
from locus.memory.model.records import (
    ANY,
    Base,
    Commit,
    Contents,
    Entry,
    Exported,
    Hit,
    Known,
    NewestThreads,
    Outcome,
    Path,
    Run,
    Stored,
    TaskWrites,
    Unset,
    Verdict,
    Write,
)
from locus.memory.model.sizes import Freed, ListSize, ThreadSizes

PROTOCOL = 1
PROTOCOL_HEADER = "Locus-Protocol"
SERVICE = "locus"
SPACES = "/spaces"
"""The path below which a server has its other key spaces, each with the routes of a store."""
MOST_LISTS = 64
"""How many lists a window may name. A state has only a handful of lists that can be long."""

_SAFE_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_ETAG = re.compile(r'"([\x21\x23-\x7e]*)"')
_VERDICT_NAMES = {
    Verdict.COMMITTED: "committed",
    Verdict.EXISTS: "exists",
    Verdict.STALE_BASE: "stale_base",
    Verdict.BRANCH_TAKEN: "branch_taken",
}
_VERDICTS = {name: verdict for verdict, name in _VERDICT_NAMES.items()}


def segment(value: str) -> str:
    """An id as a path segment that no proxy alters."""
    if _SAFE_SEGMENT.fullmatch(value):
        return value
    return "~" + urlsafe_b64encode(value.encode()).decode().rstrip("=")


def from_segment(text: str) -> str:
    """The id in a path segment: `~` and base64, or any text, percent-encoded."""
    try:
        if text.startswith("~"):
            padded = text[1:] + "=" * (-len(text[1:]) % 4)
            return b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode()
        return unquote_to_bytes(text).decode()
    except ValueError as error:
        raise InvalidIdError(f"{text!r:.80} in the path is no id: percent-encode it, as UTF-8") from error


def etag(checkpoint_id: str) -> str:
    """A checkpoint's id as an entity tag."""
    return f'"{quote(checkpoint_id, safe="")}"'


def from_etag(text: str) -> str:
    match = _ETAG.fullmatch(text.strip())
    try:
        return unquote_to_bytes(match[1]).decode() if match else ""
    except ValueError:
        return ""


def conditions(if_latest: str | None | Unset) -> dict[str, str]:
    """The headers that carry `if_latest`."""
    if isinstance(if_latest, Unset):
        return {}
    return {"If-None-Match": "*"} if if_latest is None else {"If-Match": etag(if_latest)}


def commit_text(commit: Commit, *, before: bool = True) -> str:
    """A commit as JSON. `if_latest` is sent as a header; the thread and the namespace are in the URL.

    `before`: send the digest of the items before each run, which older servers do not know.
    """
    text = encode_trusted
    parts = [
        f'"checkpoint_id":{text(commit.checkpoint_id)},"rev":{text(commit.rev)}',
        f'"created_at":"{commit.created_at.isoformat()}"',
        f'"metadata":{commit.metadata},"head":{commit.head},"manifest":{commit.manifest}',
    ]
    if commit.runs:
        runs = (f"[{text(run.branch)},{run.number},{run.start},{run.items}]" for run in commit.runs)
        parts.append(f'"runs":[{",".join(runs)}]')
        if before and any(run.before is not None for run in commit.runs):
            parts.append(f'"before":{text([run.before for run in commit.runs])}')
    if commit.values:
        parts.append(f'"values":{text([[run.branch, run.items[1:-1]] for run in commit.values])}')
    if commit.base is not None:
        parts.append(f'"base":{text([commit.base.checkpoint_id, commit.base.rev])}')
    if commit.parent_id is not ANY:
        parts.append(f'"parent_id":{text(commit.parent_id)}')
    if commit.parent_required:
        parts.append('"parent_required":true')
    if commit.parent_as_named:
        parts.append('"parent_as_named":true')
    if commit.replaces is not None:
        parts.append(f'"replaces":{text(commit.replaces)}')
    if commit.expires_at is not None:
        parts.append(f'"expires_at":"{commit.expires_at.isoformat()}"')
    return f"{{{','.join(parts)}}}"


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    data: dict[str, Any] = {"verdict": _VERDICT_NAMES[outcome.verdict]}
    if outcome.verdict is Verdict.COMMITTED:
        data |= {"seq": outcome.seq, "parent_id": outcome.parent_id, "repeated": outcome.repeated}
    if outcome.replaced is not None:
        data["replaced"] = [*_named(outcome.replaced).values()]
    return data


def outcome_from(data: Any) -> Outcome:
    replaced = data.get("replaced")
    return Outcome(
        _VERDICTS[data["verdict"]],
        data.get("seq", 0),
        data.get("parent_id"),
        replaced=Known(*replaced) if replaced else None,
        repeated=data.get("repeated", False),
    )


def entry_data(entry: Entry) -> dict[str, Any]:
    metadata = decode(entry.metadata)
    if not isinstance(metadata, dict):
        raise CorruptCheckpointError("stored metadata is no object")
    return _named(entry) | {"created_at": entry.created_at.isoformat(), "metadata": metadata}


def entry_from(data: Any) -> Entry:
    return table.entry_from(data["thread_id"], data)


def hit_data(hit: Hit) -> dict[str, Any]:
    return {**entry_data(hit.entry), "score": hit.score, "snippet": hit.snippet}


def hit_from(data: Any) -> Hit:
    return Hit(entry_from(data), data["score"], data["snippet"])


def thread_data(entry: Entry, title: str | None) -> dict[str, Any]:
    """The newest checkpoint of a thread as an entry in a list of threads."""
    return {**entry_data(entry), "count": entry.seq, "title": title}


def newest_threads_from(data: Any) -> NewestThreads:
    return NewestThreads([entry_from(entry) for entry in data["threads"]], data.get("next"))


def diff_data(diff: PayloadDiff) -> dict[str, Any]:
    lists = [_named(part) | {"changes": [_named(change) for change in part.changes]} for part in diff.lists]
    return _named(diff) | {"values": [_named(change) for change in diff.values], "lists": lists}


def _named(record: PayloadDiff | ListDiff | ItemChange | ValueChange | Entry | Known) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def diff_from(data: Any) -> PayloadDiff:
    return PayloadDiff(
        tuple(ValueChange(**change | {"path": tuple(change["path"])}) for change in data["values"]),
        tuple(_list_diff_from(part) for part in data["lists"]),
        data["total"],
        data["start"],
        data["next"],
    )


def _list_diff_from(data: Any) -> ListDiff:
    changes = tuple(ItemChange(**change) for change in data["changes"])
    return ListDiff(**data | {"path": tuple(data["path"]), "changes": changes})


def path_text(path: Path) -> str:
    """A path to a list, as text for a query."""
    return encode_trusted(path)


def window_text(window: Window) -> str:
    return encode_trusted([window.last, sorted(window.paths)])


def held_text(held: Base) -> str:
    return encode_trusted([held.checkpoint_id, held.rev])


def stored_text(stored: Stored) -> str:
    runs = [run for branch in stored.runs.values() for run in branch]
    since = {} if stored.since is None else {"since": [stored.since.checkpoint_id, stored.since.rev]}
    return encode_trusted(
        {
            "entry": entry_data(stored.entry),
            "head": stored.head,
            "manifest": stored.manifest,
            "passed": stored.passed,
            **since,
            **_runs_data(runs),
        }
    )


def _runs_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Runs, and beside them the digests of the items before each, which older clients do not know."""
    return {"runs": [run[:5] for run in runs], "before": [run.before for run in runs]}


def _runs_from(data: Any) -> list[Run]:
    """Read runs, and the digests of the items before each, which an older server does not send."""
    rows = data["runs"]
    digests = data.get("before") or [None] * len(rows)
    return [
        Run(branch, number, start, length, items, before)
        for (branch, number, start, length, items), before in zip(rows, digests, strict=True)
    ]


def stored_from(data: Any) -> Stored:
    runs = by_branch(_runs_from(data))
    since = data.get("since")
    held = None if since is None else Base(*since)
    return Stored(entry_from(data["entry"]), data["head"], data["manifest"], runs, data["passed"], held)


def contents_text(contents: Contents) -> str:
    about = encode_trusted({"next": contents.next, "damaged": len(contents.damaged)})
    return f'{{"stored":[{",".join(map(stored_text, contents.stored))}],{about[1:]}'


def contents_from(data: Any) -> Contents:
    damage = CorruptCheckpointError("a thread on the server cannot be read")
    return Contents(list(map(stored_from, data["stored"])), data["next"], [damage] * data["damaged"])


def exported_text(exported: Exported) -> str:
    rows = [[stored.head, stored.manifest, entry_data(stored.entry)] for stored in exported.checkpoints]
    writes = [[*checkpoint, list(map(list, writes_of_one))] for checkpoint, writes_of_one in exported.writes.items()]
    data = {"checkpoints": rows, "writes": writes, "more": exported.more, **_runs_data(exported.runs)}
    return encode_trusted(data)


def exported_from(data: Any) -> Exported:
    return Exported(
        [Stored(entry_from(entry), head, manifest) for head, manifest, entry in data["checkpoints"]],
        _runs_from(data),
        {
            (namespace, checkpoint_id): [Write(*row) for row in rows]
            for namespace, checkpoint_id, rows in data["writes"]
        },
        data.get("more") is True,  # older servers do not tell
    )


def writes_text(task: TaskWrites) -> str:
    """The pending writes of a task as JSON, in order. Their indexes follow from the order and the channels."""
    rows = (f"[{encode_trusted(write.channel)},{write.value}]" for write in task.writes)
    task_path = task.writes[0].task_path if task.writes else ""
    names = f'"task_id":{encode_trusted(task.task_id)},"task_path":{encode_trusted(task_path)}'
    numbering = ',"keep_numbered":true' if task.keep_numbered else ""
    return f'{{{names}{numbering},"writes":[{",".join(rows)}]}}'


def write_data(write: Write) -> dict[str, Any]:
    return write._asdict() | {"value": decode(write.value)}


def write_from(data: Any) -> Write:
    return Write(data["task_id"], data["task_path"], data["idx"], data["channel"], encode(data["value"]))


def sizes_data(sizes: ThreadSizes) -> dict[str, Any]:
    """The sizes of a thread. `sizes_from` reads them back; the sum in `bytes` is for other readers."""
    lists = [{**asdict(size), "path": list(size.path)} for size in sizes.lists]
    freed = None if sizes.freed is None else asdict(sizes.freed)
    return {**asdict(sizes), "bytes": sizes.bytes, "lists": lists, "freed": freed}


def sizes_from(data: Any) -> ThreadSizes:
    known = {name: data[name] for name in ThreadSizes.__slots__ if name not in ("lists", "freed")}
    numbers = ("runs", "bytes", "shared_bytes")
    lists = (ListSize(tuple(size["path"]), *(size[name] for name in numbers)) for size in data["lists"])
    freed = data["freed"]
    freed_sizes = None if freed is None else Freed(*(freed[name] for name in Freed.__slots__))
    return ThreadSizes(**known, lists=tuple(lists), freed=freed_sizes)
