"""locus.memory.backends.redis.commit"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from locus.memory.backends.redis.schema import (
    entry_text,
    index_field,
    metadata_pairs,
    milliseconds,
    payload_text,
    run_text,
)
from locus.memory.model.manifest import wanted
from locus.memory.model.records import (
    Commit,
    Outcome,
    Unset,
    Verdict,
)
from locus.memory.model.table import entry_of

NOTHING = Outcome(Verdict.COMMITTED)


def commit_arguments(commit: Commit, removal: Sequence[Any] = (), version: str | bytes = "") -> list[Any]:
    """What COMMIT takes. `removal` is what goes with the checkpoint that this one takes the place of."""
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
        *_named(parent, "~" if commit.parent_as_named else "!" if commit.parent_required else "="),
        index_field(namespace, parent) if isinstance(parent, str) else "",
        *_named(latest, "="),
        commit.replaces or "",
        milliseconds(commit.expires_at),
        entry_text(entry_of(commit, NOTHING)),
        metadata_pairs(commit.metadata),
        payload_text(wanted(commit.manifest), commit.head, commit.manifest),
        version,
        len(runs),
        *chain.from_iterable((run.branch, run.number, run_text(run)) for run in runs),
        *removal,
    ]


def _named(value: str | None | Unset, given: str) -> tuple[str, str]:
    """A mode and an id: any, none, or this one."""
    if isinstance(value, str):
        return given, value
    return ("-" if value is None else "*"), ""
