"""What tasks of an event loop need."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finished(step: Coroutine[Any, Any, T]) -> T:
    """Carry a step through even if the caller is cancelled meanwhile, and let it go only then.

    A save that goes on behind the back of a cancelled run would surprise whoever resumes the thread.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
