"""Objects with a lock that survive a fork: one set of hooks for all of them."""

from __future__ import annotations

import os
import threading
import weakref


class ForkGuard:
    """Holds its lock during a fork, so that the child does not inherit it in the hands of a thread it does not have.

    Subclasses extend the two hooks, and call `__init__` last: from then on a fork may come at any time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _guards[id(self)] = self

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        self._lock.release()


_guards: weakref.WeakValueDictionary[int, ForkGuard] = weakref.WeakValueDictionary()
_held: list[ForkGuard] = []


def _before_fork() -> None:
    # A list of references is made in one step; over a set, another thread that adds to it would break the iteration.
    for reference in _guards.valuerefs():
        guard = reference()
        if guard is not None:
            guard.before_fork()
            _held.append(guard)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().after_fork(in_child=False)


def _after_fork_in_child() -> None:
    while _held:
        _held.pop().after_fork(in_child=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
