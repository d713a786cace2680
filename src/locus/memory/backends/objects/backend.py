"""The store of checkpoints that the backends on object stores share."""

from __future__ import annotations

from datetime import timedelta

from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.remove import GRACE
from locus.memory.store import CheckpointStore


class ObjectCheckpointStore(CheckpointStore):
    """A `CheckpointStore` over objects: its vacuum also sweeps."""

    def __init__(self, engine: ObjectEngine, *, ttl_seconds: float | None = None) -> None:
        super().__init__(engine, ttl_seconds=ttl_seconds)
        self._engine = engine

    async def vacuum(self, older_than_days: float | None, keep_last: int | None, dry_run: bool) -> int:
        removed = await super().vacuum(older_than_days, keep_last, dry_run)
        if not dry_run:
            await self.sweep()
        return removed

    async def sweep(self, grace: timedelta = GRACE) -> int:
        """See `ObjectEngine.sweep`."""
        async with self.using():
            return await self._engine.sweep(grace)
