"""Locks that survive a fork, and a base class for objects with such a lock. All share one set of fork hooks."""

from __future__ import annotations

import os
import threading
import weakref


class ForkGuard:
    """Base class for objects whose lock is held during a fork, so that the child never inherits it locked.

    Without that, a thread that does not exist in the child might hold the lock there for ever. Subclasses extend the
    two hooks, and call `__init__` last, because a fork may come at any time after it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _guards[id(self)] = self

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self, *, in_child: bool) -> None:
        self._lock.release()


def fork_safe_lock() -> threading.Lock:
    """Make a lock that a fork waits for: the child inherits it free, and the data that it protects complete.

    A thread that holds it must not wait for another lock, nor for a `ForkGuard`.
    """
    lock = threading.Lock()
    _locks[id(lock)] = lock
    return lock


_guards: weakref.WeakValueDictionary[int, ForkGuard] = weakref.WeakValueDictionary()
_locks: weakref.WeakValueDictionary[int, threading.Lock] = weakref.WeakValueDictionary()
_held: list[ForkGuard] = []
_held_locks: list[threading.Lock] = []


def _before_fork() -> None:
    # `valuerefs` copies in one step. Another thread that adds a guard would break an iteration over the original.
    for reference in _guards.valuerefs():
        guard = reference()
        if guard is not None:
            guard.before_fork()
            _held.append(guard)
    # Locks come after guards, because work that a guard finishes before the fork may need a lock.
    for lock_reference in _locks.valuerefs():
        lock = lock_reference()
        if lock is not None:
            lock.acquire()
            _held_locks.append(lock)


def _after_fork_in_parent() -> None:
    _after_fork(in_child=False)


def _after_fork_in_child() -> None:
    _after_fork(in_child=True)


def _after_fork(*, in_child: bool) -> None:
    while _held_locks:
        _held_locks.pop().release()
    while _held:
        _held.pop().after_fork(in_child=in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
