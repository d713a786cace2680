"""What the framework asks of a checkpoint storage, and what ours adds: the contract of its docstrings and storages."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agent_framework import CheckpointStorage, FileCheckpointStorage, InMemoryCheckpointStorage, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

from locus.errors import CheckpointNotFoundError, ConflictError, InvalidIdError, SerializationError
from locus.integrations.agent_framework import ClosedError, LocusCheckpointStorage
from locus.memory.checkpointer import Checkpointer

MINE = f"{__name__}:Order"


@dataclass
class Order:
    number: int


def checkpoint(name: str, workflow: str = "flow", previous: str | None = None, **state: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(
        workflow, "hash", checkpoint_id=name, previous_checkpoint_id=previous, state=state, iteration_count=len(name)
    )


@pytest.fixture(params=["memory", "file", "ours"])
def storage(request: pytest.FixtureRequest, store: Checkpointer, tmp_path: Path) -> CheckpointStorage:
    """The framework's own, to see that the contract is theirs, and ours."""
    made: dict[str, Any] = {
        "memory": InMemoryCheckpointStorage,
        "file": lambda: FileCheckpointStorage(tmp_path / "checkpoints", allowed_checkpoint_types=[MINE]),
        "ours": lambda: LocusCheckpointStorage(store, allowed_checkpoint_types=[MINE]),
    }
    made_one: CheckpointStorage = made[request.param]()
    return made_one


async def test_a_checkpoint_comes_back_as_it_was(storage: CheckpointStorage) -> None:
    values: dict[str, Any] = {
        "text": "ä\n",
        "set": {1, 2},
        "when": datetime(2026, 1, 1, tzinfo=UTC),
        "order": Order(7),
        "deep": [[1]],
    }
    saved = checkpoint("c1", **values, keys={1: "a", "1": "b"})
    assert await storage.save(saved) == "c1"
    values["deep"].append("changed since")
    found = await storage.load("c1")
    assert found.state["order"] == Order(7)
    assert found.state["deep"] == [[1]]
    assert found.state["keys"] == {1: "a", "1": "b"}
    assert (found.workflow_name, found.timestamp, found.iteration_count) == ("flow", saved.timestamp, 2)
    found.state["text"] = "changed"
    assert (await storage.load("c1")).state["text"] == "ä\n"


async def test_lists_and_the_latest_are_those_of_a_workflow(storage: CheckpointStorage) -> None:
    assert await storage.get_latest(workflow_name="flow") is None
    assert await storage.list_checkpoints(workflow_name="flow") == []
    for name, workflow in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")]:
        await storage.save(checkpoint(name, workflow))
    assert sorted(await storage.list_checkpoint_ids(workflow_name="a")) == ["a1", "a2"]
    assert sorted(each.checkpoint_id for each in await storage.list_checkpoints(workflow_name="b")) == ["b1", "b2"]
    for workflow in ("a", "b"):
        latest = await storage.get_latest(workflow_name=workflow)
        assert latest is not None
        assert latest.checkpoint_id == f"{workflow}2"
    assert await storage.get_latest(workflow_name="c") is None
    assert await storage.delete("b2")
    assert not await storage.delete("b2")
    assert not await storage.delete("never")
    latest = await storage.get_latest(workflow_name="b")
    assert latest is not None
    assert latest.checkpoint_id == "b1"
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("b2")


async def test_a_checkpoint_that_is_saved_again_is_there_once(storage: CheckpointStorage) -> None:
    for number in (1, 1, 2):
        await storage.save(checkpoint("c1", n=number))
    assert await storage.list_checkpoint_ids(workflow_name="flow") == ["c1"]
    assert (await storage.load("c1")).state == {"n": 2}


async def test_a_type_that_is_not_allowed_is_refused_when_it_is_saved(store: Checkpointer) -> None:
    storage = LocusCheckpointStorage(store)
    with pytest.raises(WorkflowCheckpointException, match="Order"):
        await storage.save(checkpoint("c1", order=Order(1)))
    with pytest.raises(WorkflowCheckpointException):
        await storage.save(checkpoint("c1", odd=lambda: None))
    with pytest.raises(SerializationError):
        await storage.save(checkpoint("c1", odd=float("nan")))
    assert await storage.list_checkpoint_ids(workflow_name="flow") == []


async def test_what_was_saved_with_another_list_is_not_made_and_not_hidden(store: Checkpointer) -> None:
    await LocusCheckpointStorage(store, allowed_checkpoint_types=[MINE]).save(checkpoint("c1", order=Order(1)))
    storage = LocusCheckpointStorage(store)
    assert await storage.list_checkpoint_ids(workflow_name="flow") == ["c1"]
    for call in (storage.load("c1"), storage.get_latest(workflow_name="flow")):
        with pytest.raises(WorkflowCheckpointException, match="Order"):
            await call
    with pytest.raises(WorkflowCheckpointException, match="Order"):
        await storage.list_checkpoints(workflow_name="flow")


async def test_locus_never_unpickles(store: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, histories and forks work on what is stored as it is; only the framework looks into it."""
    storage = LocusCheckpointStorage(store, allowed_checkpoint_types=[MINE])
    await storage.save(checkpoint("c1", order=Order(1)))

    def never(*_given: Any, **_asked: Any) -> Any:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(pickle, "loads", never)
    monkeypatch.setattr("agent_framework._workflows._checkpoint_encoding._base64_to_unpickle", never)
    assert [point.checkpoint_id for point in await storage.history()] == ["c1"]
    assert await storage.list_checkpoint_ids(workflow_name="flow") == ["c1"]
    await storage.fork("another")
    assert len(await store.history("another", namespace=storage.namespace)) == 1
    await storage.clear()


async def test_the_latest_is_the_one_that_was_saved_last_whatever_the_clocks_say(store: Checkpointer) -> None:
    storage = LocusCheckpointStorage(store)
    now = datetime.now(UTC)
    for name, ahead in [("first", 60), ("second", 0), ("third", -60)]:
        saved = checkpoint(name)
        saved.timestamp = (now + timedelta(seconds=ahead)).isoformat()
        await storage.save(saved)
    latest = await storage.get_latest(workflow_name="flow")
    assert latest is not None
    assert latest.checkpoint_id == "third"
    assert await storage.list_checkpoint_ids(workflow_name="flow") == ["first", "second", "third"]


async def test_the_latest_is_found_behind_many_of_others(store: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locus.integrations.agent_framework.checkpoints._PAGE", 3)
    storage = LocusCheckpointStorage(store)
    await storage.save(checkpoint("mine", "mine"))
    for number in range(7):
        await storage.save(checkpoint(f"other {number}", "other"))
    latest = await storage.get_latest(workflow_name="mine")
    assert latest is not None
    assert latest.checkpoint_id == "mine"
    assert await storage.get_latest(workflow_name="nobody's") is None


@pytest.mark.parametrize("odd", ["../up", "a/b", "", "x" * 300, "\ud800", "a\x00b", "con"])
async def test_ids_are_data(store: Checkpointer, odd: str) -> None:
    storage = LocusCheckpointStorage(store)
    with pytest.raises(WorkflowCheckpointException, match="there is no checkpoint with this id"):
        await storage.load(odd)
    assert not await storage.delete(odd)
    try:
        await storage.save(checkpoint(odd))
    except InvalidIdError:
        assert odd in ("", "x" * 300, "\ud800")
        return
    assert (await storage.load(odd)).checkpoint_id == odd


async def test_lines_of_a_workflow_stay_beside_each_other(store: Checkpointer) -> None:
    storage = LocusCheckpointStorage(store, "orders", allowed_checkpoint_types=[MINE])
    await storage.save(checkpoint("c1", order=Order(1)))
    await storage.save(checkpoint("c2", previous="c1"))
    await storage.save(checkpoint("c3", previous="c1"))
    await storage.save(checkpoint("c4", previous="gone"))
    points = await storage.history(None)
    assert [(point.checkpoint_id, point.previous_checkpoint_id) for point in points] == [
        ("c4", "gone"),
        ("c3", "c1"),
        ("c2", "c1"),
        ("c1", None),
    ]
    assert (points[0].workflow_name, points[0].iteration_count) == ("flow", 2)
    forked = await storage.fork("orders-2", "c2")
    assert await forked.list_checkpoint_ids(workflow_name="flow") == ["c1", "c2"]
    assert (await forked.load("c1")).state["order"] == Order(1)
    await forked.save(checkpoint("c5", previous="c2"))
    await storage.clear()
    assert await storage.list_checkpoint_ids(workflow_name="flow") == []
    assert await forked.list_checkpoint_ids(workflow_name="flow") == ["c1", "c2", "c5"]
    with pytest.raises(ConflictError):
        await forked.fork("orders-2")
    with pytest.raises(CheckpointNotFoundError):
        await forked.fork("orders-3", "c3")


async def test_a_fork_ends_with_the_storage_that_opened_the_store(tmp_path: Path) -> None:
    async with LocusCheckpointStorage(f"sqlite:{tmp_path / 'a.db'}") as storage:
        await storage.save(checkpoint("c1"))
        forked = await (await storage.fork("two")).fork("three")
        assert await forked.list_checkpoint_ids(workflow_name="flow") == ["c1"]
    for closed in (storage, forked):
        with pytest.raises(ClosedError):
            await closed.load("c1")


async def test_a_state_that_grows_is_stored_once(store: Checkpointer) -> None:
    storage = LocusCheckpointStorage(store)
    said: list[Any] = []
    for number in range(40):
        said.append({"text": f"{number} " + "x" * 1_000})
        await storage.save(checkpoint(f"c{number}", previous=f"c{number - 1}" if number else None, said=list(said)))
    sizes = await store.sizes("workflows")
    assert sizes is not None
    assert sizes.bytes < 3 * 40 * 1_000, "the framework's file storage has 820,000 bytes of it"
