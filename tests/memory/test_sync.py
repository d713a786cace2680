"""The blocking face: from any thread, over one loop that lives on."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.runtime.portal import PORTAL, Portal
from locus.memory.storage import StorageBackend
from locus.memory.sync import SyncBackend, SyncCheckpointer
from tests.samples import run_script


def test_every_verb_works_without_a_loop() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState(agent_id="a").with_message(Message.user("hello there"))
    with checkpointer.sync as cp:
        assert cp.capabilities == checkpointer.capabilities
        first = cp.save(state, "t", metadata={"user": "eve"}, if_latest=None)
        second = cp.save(state.next_iteration(), "t", "second", parent=first)
        assert cp.load("t", first) == state
        assert cp.list_checkpoints("t") == [second, first]
        assert [entry.parent_id for entry in cp.history("t", before=second)] == [None]
        assert cp.exists("t", first)
        assert cp.get_metadata("t", first) == {"user": "eve"}
        assert [found["checkpoint_id"] for found in cp.query_by_metadata("user", "eve")] == [first]
        assert [found["thread_id"] for found in cp.search("hello")] == ["t"]
        assert set(cp.diff("t", first, second).fields) == {"iteration", "updated_at"}
        cp.put_writes("t", first, "task", [("channel", 1)])
        assert [write.value for write in cp.get_writes("t", first)] == [1]
        assert cp.copy_thread("t", "copy", first)
        assert cp.list_threads() == ["copy", "t"]
        assert len(cp.list_with_metadata()) == 3
        assert cp.vacuum(keep_last=1, dry_run=True) == 1
        assert cp.delete("t")
        assert not cp.exists("t")


def test_a_storage_backend_has_one_too(tmp_path: Path) -> None:
    with SQLiteBackend(tmp_path / "a.db").sync as backend:
        first = backend.save("t", {"n": 1})
        assert backend.load("t") == {"n": 1}
        with pytest.raises(ConflictError):
            backend.save("t", {"n": 2}, if_latest=None)
        assert backend.load("t", first) == {"n": 1}
        assert backend.load("none") is None


@pytest.mark.parametrize(("face", "blocking"), [(Checkpointer, SyncCheckpointer), (StorageBackend, SyncBackend)])
def test_the_two_faces_have_the_same_verbs(face: type[Any], blocking: type[Any]) -> None:
    verbs = {name for name, _ in inspect.getmembers(face, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert verbs >= {"save", "load", "delete", "vacuum", "close"}
    for verb in verbs:
        awaited, blocked = (inspect.signature(getattr(kind, verb)) for kind in (face, blocking))
        assert list(awaited.parameters.values()) == list(blocked.parameters.values()), verb
        assert not inspect.iscoroutinefunction(getattr(blocking, verb))


def test_the_face_is_one_object() -> None:
    checkpointer = MemoryCheckpointer()
    assert checkpointer.sync is checkpointer.sync


def test_many_threads_at_once(tmp_path: Path) -> None:
    with sqlite_checkpointer(tmp_path / "a.db", durability="normal").sync as cp, ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda number: cp.save(AgentState(iteration=number), "t"), range(24)))
        assert sorted(cp.list_checkpoints("t", limit=100)) == sorted(ids)
        found = pool.map(lambda checkpoint_id: cp.load("t", checkpoint_id), ids)
        assert [state.iteration for state in found if state is not None] == list(range(24))


async def test_inside_a_running_loop(tmp_path: Path) -> None:
    checkpointer = FileCheckpointer(tmp_path)
    saved = checkpointer.sync.save(AgentState(agent_id="a"), "t")
    state = await checkpointer.load("t", saved)
    assert state is not None
    assert checkpointer.sync.load("t") == state
    await checkpointer.close()


def test_calls_share_one_loop_on_a_thread_of_its_own() -> None:
    async def where() -> tuple[int, threading.Thread]:
        return id(asyncio.get_running_loop()), threading.current_thread()

    with ThreadPoolExecutor(3) as pool:
        places = {PORTAL.run(where()), *pool.map(lambda _: PORTAL.run(where()), range(6))}
    ((_, thread),) = places
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_a_call_from_inside_the_portal_is_refused_and_not_a_deadlock() -> None:
    checkpointer = MemoryCheckpointer()

    async def inside() -> str:
        with pytest.raises(RuntimeError, match="await it instead"):
            checkpointer.sync.list_threads()
        return "alive"

    assert PORTAL.run(inside()) == "alive"


def test_what_is_raised_comes_out() -> None:
    async def fail() -> None:
        raise ConflictError("no", expected="a", latest="b")

    with pytest.raises(ConflictError) as caught:
        Portal().run(fail())
    assert (caught.value.expected, caught.value.latest) == ("a", "b")


def test_a_forked_process_has_a_portal_of_its_own() -> None:
    code = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer

cp = MemoryCheckpointer().sync
cp.save(AgentState(), "t")
child = os.fork()
if child == 0:
    cp.save(AgentState(), "u")
    os._exit(0 if cp.list_threads() == ["t", "u"] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cp.list_threads())
"""
    assert run_script(code).strip() == "0 ['t']"


def test_the_origin_of_a_state_is_told_without_waiting() -> None:
    with MemoryCheckpointer().sync as cp:
        state = AgentState()
        assert cp.origin(state, "t") is None
        saved = cp.save(state, "t")
        assert cp.origin(state.next_iteration(), "t") == saved
        assert cp.save(state.next_iteration(), "t", if_latest=cp.origin(state, "t")) != saved
