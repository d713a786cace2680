"""Runs blocking functions, each in an operating-system thread of its own.

The event loop's thread pool would not do: a tool that hangs would hold one of its few threads for ever, and the
interpreter would wait for that thread at exit. Here the threads are daemons, which do not hold up an exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run `function` in a new thread, with the caller's context variables, and wait for what it returns or raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Callable[[], T]] = loop.create_future()
    context = copy_context()

    def work() -> None:
        outcome = _attempt(lambda: context.run(function))
        try:
            loop.call_soon_threadsafe(_settle, done, outcome)
        except RuntimeError:
            # If the loop was closed meanwhile, nobody waits for the result any more.
            if not loop.is_closed():
                raise

    threading.Thread(target=work, name="locus-tool", daemon=True).start()
    return (await done)()


def _attempt(function: Callable[[], T]) -> Callable[[], T]:
    """Call a function now, and return another that returns or raises the same: a future takes no `StopIteration`."""
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
        caught = error
    else:
        return lambda: value

    def again() -> T:
        raise caught

    return again


def _settle(done: asyncio.Future[Callable[[], T]], outcome: Callable[[], T]) -> None:
    if not done.done():
        done.set_result(outcome)
