"""Repairs a store that `locus.doctor` has examined, and reports which checkpoints were lost.

Readable data is never changed. Damage that cannot be repaired safely is left alone, and reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from locus.doctor import DamagedThread, Examination, content, is_readable, read_through
from locus.errors import BackendUnavailableError, CheckpointError, UnsupportedFormatError
from locus.memory.engine import Maintains, Salvages
from locus.memory.model.records import Finding
from locus.memory.store import CheckpointStore

_AT_ONCE: Final = 1_000
"""How many checkpoints are removed in one step."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A damage that was repaired, would be repaired, or is left alone."""

    what: str
    thread_id: str | None = None
    lost: tuple[tuple[str, str], ...] = ()
    """Namespace and id of each checkpoint that could not be read, and is gone."""
    statement: str = ""
    left_alone: str = ""
    """The reason for leaving the damage alone, and what to do by hand; empty if it is repaired."""


async def repair(store: CheckpointStore, examination: Examination, *, apply: bool) -> list[Repair]:
    """Repair the damage that an examination has found. Without `apply`, only list the repairs."""
    done = [await _mend(store, finding, apply=apply) for finding in examination.findings if finding.repair]
    done += [await _keep_readable(store, damaged, apply=apply) for damaged in examination.damaged]
    for name, space in examination.spaces.items():
        done += await repair(store.key_space(name), space, apply=apply)
    return done


async def _mend(store: CheckpointStore, finding: Finding, *, apply: bool) -> Repair:
    if apply:
        try:
            async with store.using() as engine:
                assert isinstance(engine, Maintains), "it reported the finding"
                await engine.mend(finding)
        except CheckpointError as error:
            return Repair(finding.what, statement=finding.repair, left_alone=f"that failed: {error}")
    return Repair("create a missing index", statement=finding.repair)


async def _keep_readable(store: CheckpointStore, damaged: DamagedThread, *, apply: bool) -> Repair:
    thread_id = damaged.thread_id
    try:
        async with store.using() as engine:
            salvaged = await engine.salvage(thread_id, content, apply=apply) if isinstance(engine, Salvages) else None
        if salvaged is not None:
            what = f"keep {len(salvaged.kept):,} checkpoints, and put the damaged log aside as *.damaged"
            if salvaged.lost_bytes:
                what += f"; {salvaged.lost_bytes:,} bytes do not say what they were"
            return await _proved(store, Repair(what, thread_id, salvaged.lost), apply=apply)
        if not damaged.unreadable:
            return Repair(f"{damaged.what} of a thread", thread_id, left_alone=_BY_HAND)
        if not damaged.readable:
            return Repair("no checkpoint of a thread can be read", thread_id, left_alone=_BY_HAND)
        if apply:
            await _remove(store, damaged)
        what = f"remove {len(damaged.unreadable):,} checkpoints that cannot be read, and keep {damaged.readable:,}"
        return await _proved(store, Repair(what, thread_id, damaged.unreadable), apply=apply)
    except (UnsupportedFormatError, BackendUnavailableError):
        raise
    except CheckpointError as error:
        return Repair(f"{damaged.what} of a thread", thread_id, left_alone=f"that failed: {error}. {_BY_HAND}")


_BY_HAND: Final = "restore the thread from a backup, or delete it with `locus delete`"


async def _remove(store: CheckpointStore, damaged: DamagedThread) -> None:
    """Remove the checkpoints that cannot be read, after one more attempt to read each."""
    doomed: dict[int, str] = {}
    for entry in await store.history(damaged.thread_id, None, None, None):
        named = (entry.namespace, entry.checkpoint_id) in damaged.unreadable
        if named and await is_readable(store, entry) is False:
            doomed[entry.seq] = entry.rev
    async with store.using() as engine:
        for start in range(0, len(doomed), _AT_ONCE):
            await engine.delete(damaged.thread_id, None, dict(list(doomed.items())[start : start + _AT_ONCE]))


async def _proved(store: CheckpointStore, done: Repair, *, apply: bool) -> Repair:
    """Read a repaired thread once more. The result says if a part of it still cannot be read."""
    if not apply or done.thread_id is None:
        return done
    left = await read_through(store, done.thread_id, Examination())
    if left is None:
        return done
    return Repair(done.what, done.thread_id, done.lost, left_alone=f"{left.what} still cannot be read. {_BY_HAND}")
