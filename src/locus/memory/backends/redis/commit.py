"""A save: the arguments of the script that commits, and what its answer means.

To change how a save decides a conflict, open `lua/commit.lua`: the decision is made there, inside Redis, so that a
save is one round trip however long the thread is. It must agree with `decide` in `memory/model/commit_rules.py`:
`tests/backends/test_commit_rules.py` holds the two against each other on random and directed courses, and
`tests/backends/test_commit_shortcuts.py` shows that these courses notice if a condition is missing.

A save that replaces a checkpoint also removes the old one. That removal is planned beforehand (see `remove`), and the
script answers MOVED if the thread has changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.redis.schema import (
    entry_text,
    index_field,
    metadata_pairs,
    milliseconds,
    payload_text,
    run_text,
)
from locus.memory.model.ids import shown_thread
from locus.memory.model.manifest import wanted
from locus.memory.model.records import Commit, Outcome, TaskWrites, Unset, Verdict

_UNDECIDED = Outcome(Verdict.COMMITTED)
"""The script chooses the sequence number and the parent, so the entry that it gets has neither."""


def commit_arguments(commit: Commit, removal: Sequence[Any] = (), version: str | bytes = "") -> list[Any]:
    """The arguments of COMMIT. To replace a checkpoint, give a `removal` and the `version` that it was planned for."""
    namespace, base, parent, latest = commit.namespace, commit.base, commit.parent_id, commit.if_latest
    runs = (*commit.runs, *commit.values)
    return [
        commit.thread_id,
        namespace,
        commit.checkpoint_id,
        index_field(namespace, commit.checkpoint_id),
        commit.rev,
        index_field(namespace, base.checkpoint_id) if base else "",
        base.rev if base else "",
        *_mode_and_id(parent, "~" if commit.parent_as_named else "!" if commit.parent_required else "="),
        index_field(namespace, parent) if isinstance(parent, str) else "",
        *_mode_and_id(latest, "="),
        commit.replaces or "",
        milliseconds(commit.expires_at),
        entry_text(commit.entry(_UNDECIDED)),
        metadata_pairs(commit.metadata),
        payload_text(commit.rev, commit.extents or wanted(commit.manifest), commit.head, commit.manifest),
        version,
        len(runs),
        *chain.from_iterable((run.branch, run.number, run_text(run)) for run in runs),
        *removal,
    ]


def _mode_and_id(value: str | None | Unset, if_named: str) -> tuple[str, str]:
    """`*` for any checkpoint, `-` for none, or the mode `if_named` for this one."""
    if isinstance(value, str):
        return if_named, value
    return ("-" if value is None else "*"), ""


_VERDICTS = {verdict.name.encode(): verdict for verdict in Verdict}


def commit_outcome(commit: Commit, answer: Any) -> Outcome:
    """The outcome that COMMIT has answered."""
    if type(answer) is int:
        assert isinstance(commit.parent_id, str), "the script has saved it with the parent that was named"
        return Outcome(Verdict.COMMITTED, answer, commit.parent_id)
    try:
        return _decided(*answer)
    except ValueError:
        raise CorruptCheckpointError(f"what is stored of {shown_thread(commit.thread_id)} is damaged") from None


def _decided(verdict: bytes, *rest: Any) -> Outcome:
    if verdict in (b"COMMITTED", b"REPEATED"):
        seq, parent = rest
        parent_id = None if parent is None else parent.decode()
        return Outcome(Verdict.COMMITTED, int(seq), parent_id, repeated=verdict == b"REPEATED")
    latest = rest[0].decode() if rest and rest[0] is not None else None
    return Outcome(_VERDICTS[verdict], latest=latest)


def outcome_together(member: Commit | TaskWrites, answer: Any) -> Outcome | None:
    """The outcome of a step that was sent with others, by the answer of COMMIT or PUT_WRITES. None if it failed."""
    if isinstance(answer, Exception) or answer in ([b"DAMAGED"], [b"BROKEN"]):
        return None
    return commit_outcome(member, answer) if isinstance(member, Commit) else Outcome(Verdict.COMMITTED)
