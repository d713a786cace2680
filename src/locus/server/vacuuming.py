"""Vacuums in portions: each request removes old checkpoints for some seconds, and returns where to continue."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

from locus.errors import CorruptCheckpointError
from locus.memory.engine import Expires
from locus.memory.model.retention import Retention, VacuumProgress
from locus.memory.store import CheckpointStore, remove_outlived


async def vacuum_portion(
    store: CheckpointStore,
    retention: Retention,
    after: str,
    prefix: str,
    *,
    dry_run: bool,
    seconds: float,
    at_once: int = 16,
) -> tuple[VacuumProgress, str | None, CorruptCheckpointError | None]:
    """Vacuum for some seconds. Returns the progress, the id to continue after (None at the end), and the first damage.

    It checks the clock after every `at_once` threads.
    """
    done, damage = VacuumProgress(), None
    until = time.monotonic() + seconds
    async with store.using() as engine, aclosing(engine.outlived(retention, after, prefix)) as pages:
        async for page in pages:
            damaged = len(page.damaged)
            damage = damage or next(iter(page.damaged), None)
            for start in range(0, len(page.threads), at_once):
                group = replace(page, looked_at=0, damaged=(), threads=page.threads[start : start + at_once])
                removed, error = await remove_outlived(engine, group, dry_run)
                done += replace(removed, damaged=0)
                damage, damaged = damage or error, damaged + removed.damaged
                changed = not dry_run and removed.checkpoints + removed.writes > 0
                if changed and time.monotonic() > until:
                    return done, after, damage  # the next portion finds the rest of this page again
            done += VacuumProgress(threads=page.looked_at, damaged=damaged)
            after = page.after
            if time.monotonic() > until:
                return done, after, damage
        if not dry_run:
            # An earlier vacuum may have removed checkpoints that this one does not find any more.
            await store.confirm_deletions()
    return done, None, damage


async def expire(store: CheckpointStore) -> int:
    """Delete expired threads, which are already invisible, and return how many checkpoints they had."""
    async with store.using() as engine:
        return await engine.expire(datetime.now(UTC)) if isinstance(engine, Expires) else 0
