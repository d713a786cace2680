"""Reading whole threads from OpenSearch: each record once."""

from __future__ import annotations

from collections.abc import Mapping

from locus.errors import CorruptCheckpointError
from locus.memory.backends.opensearch.client import Failure, give_way
from locus.memory.backends.opensearch.log import Log
from locus.memory.backends.opensearch.remove import PATIENCE, seen, whole
from locus.memory.backends.opensearch.schema import now
from locus.memory.backends.opensearch.writes import all_writes
from locus.memory.model.payloads import newest_runs
from locus.memory.model.records import Exported, Stored


def export(log: Log, after_seq: int, known: Mapping[str, int]) -> Exported:
    """The checkpoints that follow a number, with what they need beside the runs that are known."""
    for attempt in range(PATIENCE):
        state = log.look()
        if not state.there(now()):
            return Exported([], [])
        records = whole(log, light=False)
        found = sorted((r for r in seen(log, records) if r.seq > after_seq), key=lambda record: record.seq)
        if log.look().changes != state.changes:
            give_way(attempt)
            continue
        for record in found:
            if not record.head:
                raise CorruptCheckpointError(f"checkpoint {record.checkpoint_id!r} of {log.thread_id!r} has no head")
        newest = newest_runs(record.manifest for record in found)
        runs = [held.run for record in records for held in record.runs if held.run.items]
        return Exported(
            [Stored(record.entry(log.thread_id), record.head, record.manifest) for record in found],
            [run for run in runs if known.get(run.branch, -1) < run.number <= newest.get(run.branch, -1)],
            all_writes(log),
        )
    raise Failure(409, "too many writers", f"thread {log.thread_id!r} changes faster than it can be read")
