"""Base classes of the public backends on object stores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import cast

from locus.errors import CorruptCheckpointError
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.remove import GRACE
from locus.memory.checkpointer import StoreVerbs
from locus.memory.model.arguments import CACHE_MB
from locus.memory.model.retention import VacuumProgress
from locus.memory.store import CheckpointStore


class ObjectCheckpointStore(CheckpointStore):
    """A `CheckpointStore` over objects. Its vacuum also sweeps."""

    def __init__(self, engine: ObjectEngine, *, ttl_seconds: float | None = None, cache_mb: float = CACHE_MB) -> None:
        super().__init__(engine, ttl_seconds=ttl_seconds, cache_mb=cache_mb)
        self._engine = engine

    async def vacuum(
        self,
        older_than_days: float | None,
        keep_last: int | None,
        dry_run: bool,
        progress: Callable[[VacuumProgress], None] | None = None,
    ) -> int:
        try:
            removed = await super().vacuum(older_than_days, keep_last, dry_run, progress)
        except CorruptCheckpointError:
            if not dry_run:
                with suppress(CorruptCheckpointError):  # that was told already
                    await self.sweep()
            raise
        if not dry_run:
            await self.sweep()
        return removed

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Sweep the store: call `ObjectEngine.sweep`."""
        async with self.using():
            return await self._engine.sweep(grace)


class ObjectVerbs(StoreVerbs):
    """The methods that a backend on an object store has beyond the common verbs."""

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """Remove what deletions, merges and crashes have left; return how many objects were removed.

        `vacuum` does it, too. Objects younger than `grace` that a running program may rely on stay until a later
        sweep. Interrupting it does no harm, and neither do two of them at once.
        """
        return await cast(ObjectCheckpointStore, self.store).sweep(grace)
