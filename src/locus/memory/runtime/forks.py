"""Objects that survive a fork: one set of hooks for all of them."""

from __future__ import annotations

import os
import threading
import weakref


class ForkAware:
    """Hears of forks. Subclasses extend the hooks, and call `__init__` last: from then on a fork may come any time."""

    def __init__(self) -> None:
        _aware.add(self)

    def before_fork(self) -> None:
        """Called in the process that is about to fork."""

    def after_fork(self, *, in_child: bool) -> None:
        """Called in both processes."""


class ForkGuard(ForkAware):
    """Holds its lock during a fork, so that the child does not inherit it in the hands of a thread it does not have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        super().__init__()

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        self._lock.release()


_aware: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_held: list[ForkAware] = []


def _before_fork() -> None:
    for each in list(_aware):
        each.before_fork()
        _held.append(each)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().after_fork(in_child=False)


def _after_fork_in_child() -> None:
    while _held:
        _held.pop().after_fork(in_child=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
