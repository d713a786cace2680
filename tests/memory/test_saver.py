"""The versioned saver as a class: what it is made of, its signatures, and its blocking twin."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError, ConflictError
from locus.memory import BaseCheckpointer, CheckpointSaver, SyncCheckpointSaver
from locus.memory.backends import MemoryCheckpointer, SQLiteBackend, StorageBackendAdapter, sqlite_checkpointer
from locus.memory.store import SPECIAL_CHANNELS

NO_DEFAULT = inspect.Parameter.empty
SIGNATURES: dict[str, dict[str, Any]] = {
    "put": {
        "thread_id": NO_DEFAULT,
        "checkpoint_id": NO_DEFAULT,
        "checkpoint_data": NO_DEFAULT,
        "checkpoint_ns": "default",
        "parent_checkpoint_id": None,
        "metadata": None,
    },
    "get": {"thread_id": NO_DEFAULT, "checkpoint_id": None, "checkpoint_ns": "default"},
    "list_checkpoints": {"thread_id": NO_DEFAULT, "checkpoint_ns": "default", "limit": 10, "before": None},
    "put_writes": {
        "thread_id": NO_DEFAULT,
        "checkpoint_id": NO_DEFAULT,
        "task_id": NO_DEFAULT,
        "writes": NO_DEFAULT,
        "checkpoint_ns": "default",
    },
    "get_writes": {
        "thread_id": NO_DEFAULT,
        "checkpoint_id": NO_DEFAULT,
        "checkpoint_ns": "default",
        "task_id": None,
    },
    "delete_thread": {"thread_id": NO_DEFAULT},
}


@pytest.mark.parametrize("verb", SIGNATURES)
def test_the_signatures_are_those_that_others_rely_on(verb: str) -> None:
    found = inspect.signature(getattr(CheckpointSaver, verb)).parameters
    assert {name: found[name].default for name in SIGNATURES[verb]} == SIGNATURES[verb]
    added = found.keys() - SIGNATURES[verb].keys() - {"self"}
    assert all(found[name].default is not NO_DEFAULT for name in added)
    assert {each.kind for name, each in found.items() if name != "self"} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_blocking_one_has_the_same_verbs() -> None:
    verbs = {
        name for name, _ in inspect.getmembers(CheckpointSaver, inspect.iscoroutinefunction) if not name.startswith("_")
    }
    assert verbs >= {*SIGNATURES, "close", "delete_checkpoint", "copy_thread", "list_threads", "list_namespaces"}
    for verb in verbs:
        awaited, blocked = (inspect.signature(getattr(kind, verb)) for kind in (CheckpointSaver, SyncCheckpointSaver))
        assert awaited == blocked, verb
        assert not inspect.iscoroutinefunction(getattr(SyncCheckpointSaver, verb))


async def test_it_is_made_of_whatever_keeps_threads(tmp_path: Path) -> None:
    backend = SQLiteBackend(tmp_path / "a.db")
    stores: list[Any] = [
        backend,
        StorageBackendAdapter(backend),
        sqlite_checkpointer(tmp_path / "a.db"),
        f"sqlite:{tmp_path / 'a.db'}",
        CheckpointSaver(backend),
    ]
    await CheckpointSaver(backend).put(thread_id="t", checkpoint_id="c", checkpoint_data={"n": 1})
    for store in stores:
        async with CheckpointSaver(store) as saver:
            found = await saver.get(thread_id="t")
            assert found is not None
            assert found["checkpoint"] == {"n": 1}
            assert saver.capabilities == backend.capabilities


class Plain(dict[str, Any]):
    """A store that somebody had already."""

    async def save(self, key: str, data: Any) -> None:
        self[key] = data

    async def load(self, key: str) -> Any:
        return self.get(key)

    async def delete(self, key: str) -> bool:
        return self.pop(key, None) is not None

    async def exists(self, key: str) -> bool:
        return key in self


async def test_an_object_with_the_plain_methods_will_do() -> None:
    saver = CheckpointSaver(Plain())
    await saver.put(thread_id="t", checkpoint_id="a", checkpoint_data={"n": 1}, parent_checkpoint_id="not there")
    found = await saver.get(thread_id="t")
    assert found is not None
    assert (found["checkpoint"], found["parent_checkpoint_id"]) == ({"n": 1}, "not there")


class StatesOnly(BaseCheckpointer):
    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        raise NotImplementedError

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        raise NotImplementedError

    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("store", "said"), [(StatesOnly(), "StatesOnly"), (None, "pass a checkpointer"), ("nonsense:x", "nonsense")]
)
def test_what_cannot_keep_versions_is_refused(store: Any, said: str) -> None:
    for kind in (CheckpointSaver, SyncCheckpointSaver):
        with pytest.raises(ConfigurationError, match=said):
            kind(store)


class Mine(CheckpointSaver):
    """A saver with a constructor of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(SQLiteBackend(path))


class MineBlocking(SyncCheckpointSaver):
    def __init__(self, path: Path) -> None:
        super().__init__(Mine(path))


def test_a_subclass_needs_only_a_constructor(tmp_path: Path) -> None:
    with MineBlocking(tmp_path / "a.db") as saver:
        saver.put(thread_id="t", checkpoint_id="c", checkpoint_data={"n": 1}, if_latest=None)
        assert repr(saver) == "MineBlocking(SQLiteEngine)"
        assert repr(Mine(tmp_path / "a.db")) == "Mine(SQLiteEngine)"
        with pytest.raises(ConflictError):
            saver.put(thread_id="t", checkpoint_id="d", checkpoint_data={}, if_latest=None)


def test_every_verb_works_without_a_loop() -> None:
    checkpointer = MemoryCheckpointer()
    with SyncCheckpointSaver(checkpointer) as saver:
        assert saver.capabilities == checkpointer.capabilities
        place: dict[str, Any] = {"thread_id": "t", "checkpoint_ns": ""}
        saver.put(**place, checkpoint_id="a", checkpoint_data={"n": 1}, metadata={"user": "eve"})
        saver.put(**place, checkpoint_id="b", checkpoint_data={"n": 2}, parent_checkpoint_id="a", if_latest="a")
        latest = saver.get(**place)
        assert latest is not None
        assert (latest["checkpoint"], latest["parent_checkpoint_id"]) == ({"n": 2}, "a")
        assert saver.list_checkpoints(**place, limit=1) == [latest]
        assert [info["metadata"] for info in saver.history(**place, before="b")] == [{"user": "eve"}]
        saver.put_writes(**place, checkpoint_id="b", task_id="task", writes=[("x", 1)], task_path="p")
        (write,) = saver.get_writes(**place, checkpoint_id="b", task_id="task")
        assert write == {"task_id": "task", "idx": 0, "channel": "x", "value": 1, "task_path": "p"}
        assert saver.copy_thread(source_thread_id="t", dest_thread_id="copy")
        assert saver.list_threads(pattern="c*") == ["copy"]
        assert saver.list_namespaces(thread_id="copy") == [""]
        assert saver.delete_checkpoints(**place, checkpoint_ids=["a"]) == 1
        assert saver.delete_checkpoint(**place, checkpoint_id="b")
        saver.delete_thread(thread_id="copy")
        assert saver.list_threads() == []
        assert saver.backend.load("t") is None


def test_many_threads_at_once(tmp_path: Path) -> None:
    with SyncCheckpointSaver(f"sqlite:{tmp_path / 'a.db'}") as saver, ThreadPoolExecutor(8) as pool:

        def put(number: int) -> str:
            saver.put(thread_id="t", checkpoint_id=f"c{number}", checkpoint_data={"n": number})
            return f"c{number}"

        names = list(pool.map(put, range(24)))
        found = saver.list_checkpoints(thread_id="t", limit=None)
        assert sorted(each["checkpoint_id"] for each in found) == sorted(names)


async def test_it_can_be_used_again_after_close(tmp_path: Path) -> None:
    saver = CheckpointSaver(f"sqlite:{tmp_path / 'a.db'}")
    for number in range(2):
        await saver.put(thread_id="t", checkpoint_id=f"c{number}", checkpoint_data={"n": number})
        await saver.close()
        await saver.close()
    assert len(await saver.history(thread_id="t")) == 2
    await saver.close()


def test_the_special_channels_are_those_of_langgraph() -> None:
    from langgraph.checkpoint.base import WRITES_IDX_MAP

    assert dict(SPECIAL_CHANNELS) == dict(WRITES_IDX_MAP)
