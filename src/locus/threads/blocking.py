"""Calls of the store from code that is not async, and locks that survive a fork."""

from locus.memory.runtime.forks import fork_safe_lock
from locus.memory.runtime.portal import PORTAL

__all__ = ["awaited", "fork_safe_lock", "run"]

run = PORTAL.run
"""Run a coroutine to its end on an event loop of its own thread, and return its result. It blocks."""
awaited = PORTAL.awaited
"""Await a coroutine on that event loop, for a caller whose own loop may end soon."""
