"""A handle that is measured, by whatever the program has set for OpenTelemetry: nothing, here.

python -m tests.versions.smoke.otel
"""

from __future__ import annotations

import asyncio

from locus.memory.telemetry import ObservedStore, instrument
from tests.versions.smoke import store


async def check() -> None:
    async with instrument(store.opened("memory")) as checkpointer:
        assert isinstance(checkpointer.store, ObservedStore)
        await store.check_checkpoints(checkpointer)
        await store.check_capabilities(checkpointer)


if __name__ == "__main__":
    asyncio.run(check())
