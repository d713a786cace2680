"""Locks during a fork: a child never inherits one in the hands of a thread that it does not have."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from locus.integrations.llmfy.in_memory import InMemoryCheckpointer
from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.oci_bucket.client import signing
from locus.memory.runtime.forks import fork_safe_lock
from locus.memory.runtime.once import made_once
from locus.memory.store import CheckpointStore
from tests.backends.objects.in_memory import MemoryObjectStore
from tests.samples import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

forking, forked = threading.Event(), threading.Event()
# Hooks before a fork run from the last to the first, so this one is ahead of those of the package.
os.register_at_fork(before=forking.set, after_in_parent=forked.set)


@pytest.fixture(autouse=True)
def _no_fork_yet() -> None:
    forking.clear()
    forked.clear()


def store_of(checkpointer: Any) -> CheckpointStore:
    store = checkpointer.store
    assert isinstance(store, CheckpointStore)
    return store


def object_engine() -> ObjectEngine:
    return ObjectEngine(MemoryObjectStore())


LOCKS: dict[str, Callable[[], Any]] = {
    "a lock": fork_safe_lock,
    "the traces of a store": lambda: store_of(MemoryCheckpointer())._traces._lock,
    "the memory backend": lambda: store_of(MemoryCheckpointer()).engine._lock,  # type: ignore[attr-defined]
    "an object store": lambda: object_engine()._lock,
    "a thread in an object store": lambda: object_engine()._log("t")._lock,
    "the signatures of OCI": lambda: signing,
    "the states of llmfy": lambda: InMemoryCheckpointer()._lock,
}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("make", LOCKS.values(), ids=LOCKS)
def test_a_fork_waits_for_whoever_holds_a_lock(make: Callable[[], Any]) -> None:
    lock = make()
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            forking.wait()
            # A fork that does not wait for this lock happens now, and its child has the lock for ever.
            forked.wait(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    thread.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lock.acquire(blocking=False), "and it is free in the parent, too"
    lock.release()  # the next fork waits for it, if it is still there by then


def test_a_fork_while_another_thread_makes_a_value_once_leaves_the_child_free() -> None:
    making, go_on = threading.Event(), threading.Event()

    class Owner:
        @made_once
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                making.set()
                go_on.wait(30)
            return 1

    thread = threading.Thread(target=lambda: Owner().value)
    thread.start()
    assert making.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if Owner().value == 1 else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_value_is_made_once() -> None:
    class Owner:
        @made_once
        def value(self) -> object:
            return object()

    owner = Owner()
    assert owner.value is owner.value
    assert Owner().value is not owner.value


def test_a_fork_while_another_thread_opens_the_portal_is_no_deadlock() -> None:
    """A new event loop logs something, and a fork may wait for the portal with the lock of `logging` in its hands."""
    code = """
import os, signal, threading, warnings
import locus.memory.runtime.forks  # its hooks run after those of logging, which is imported later
import asyncio, logging
from locus.memory.runtime.portal import PORTAL

warnings.simplefilter("ignore", DeprecationWarning)
opening, forking, new_event_loop = threading.Event(), threading.Event(), asyncio.new_event_loop

def new_event_loop_amid_a_fork():
    opening.set()
    forking.wait(10)
    return new_event_loop()

async def answer():
    return "answer"

asyncio.new_event_loop = new_event_loop_amid_a_fork
answers = []
thread = threading.Thread(target=lambda: answers.append(PORTAL.run(answer())))
thread.start()
opening.wait(10)
signal.alarm(30)
os.register_at_fork(before=forking.set)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
thread.join()
print(*answers)
"""
    assert run_script(code).strip() == "answer"
