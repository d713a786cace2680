"""Waiting for tasks of an event loop to end, whatever happens to the caller.

A caller may be cancelled again and again while it waits: anyio does that, and so does every web framework that is
built on it. `asyncio.gather` would pass each cancellation on to the tasks that it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finished(step: Coroutine[Any, Any, T]) -> T:
    """Run a step to its end even if the caller is cancelled meanwhile; the cancellation takes effect afterwards.

    A save that went on after its run was cancelled would surprise whoever resumes the thread.
    """
    task = asyncio.ensure_future(step)
    await _all_done(task)
    return task.result()


async def ended(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks once, and wait until they have ended, also if the caller is cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    await _all_done(*tasks)


async def _all_done(*tasks: asyncio.Future[Any]) -> None:
    cancelled: asyncio.CancelledError | None = None
    for task in tasks:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if not task.cancelled():
            task.exception()  # marks an error as seen, so that asyncio does not report it as lost
    if cancelled is not None:
        raise cancelled
