"""llmfy's contract for checkpointers, on the stores that need no server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from llmfy.flow_engine.checkpointer.base_checkpointer import BaseCheckpointer, Checkpoint, CheckpointMetadata

from locus.core.state import AgentState
from locus.errors import CapabilityError, ConfigurationError, CorruptCheckpointError, SerializationError
from locus.integrations.llmfy import LlmfyCheckpointer
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import TestStore
from tests.backends.strangers import AsyncStore

NOW = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
STATE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "emoji 🧵 and NUL \0"}] * 3,
    "count": 2**70,
    "scores": [0.1, -0.0, 1e22],
    "nothing": None,
    "": {"__type__": "app.Order", "data": {"id": 5}},
    "empty": [[], {}, ""],
}


def checkpoint(name: str, session: str = "s", **changes: Any) -> Checkpoint:
    state = changes.pop("state", {"of": name})
    about = CheckpointMetadata(name, session, "run-1", NOW, "node", "__start__", 0, ["of"], 1, None)
    return Checkpoint(replace(about, **changes), state)


def ids(found: list[Checkpoint]) -> list[str]:
    return [one.metadata.checkpoint_id for one in found]


@pytest.fixture
def kept(handle: Checkpointer) -> LlmfyCheckpointer:
    return LlmfyCheckpointer(handle)


async def test_it_is_one_of_llmfys_and_gives_back_what_it_got(kept: LlmfyCheckpointer) -> None:
    assert isinstance(kept, BaseCheckpointer)
    assert kept.requires_serialization
    saved = checkpoint("a", state=STATE, node="ask", step=3, attempt=None, dispatch_id="d", updated_fields=[])
    await kept.save(saved)
    loaded = await kept.load("s")
    assert loaded == saved
    assert type(loaded) is Checkpoint
    assert await kept.load("s", "a") == saved
    assert str(loaded.state["scores"][1]) == "-0.0"


async def test_what_is_not_there_is_none_or_nothing(kept: LlmfyCheckpointer) -> None:
    assert await kept.load("s") is None
    assert await kept.load("s", "a") is None
    assert await kept.list("s") == []
    assert await kept.history("s") == []
    await kept.delete("s")
    await kept.clear_all()


async def test_order_is_the_order_of_saves_whatever_the_clock_says(kept: LlmfyCheckpointer) -> None:
    for name, at in (("b", NOW), ("a", NOW), ("c", NOW - timedelta(hours=1))):
        await kept.save(checkpoint(name, created_at=at))
    newest = await kept.load("s")
    assert newest is not None
    assert newest.metadata.checkpoint_id == "c"
    assert newest.metadata.created_at == NOW - timedelta(hours=1)
    assert ids(await kept.list("s")) == ["c", "a", "b"]
    assert ids(await kept.list("s", limit=2)) == ["c", "a"]


async def test_a_repeated_save_changes_nothing_and_a_different_one_is_the_newest(kept: LlmfyCheckpointer) -> None:
    for name in ("a", "b", "c"):
        await kept.save(checkpoint(name))
    await kept.save(checkpoint("a"))
    assert ids(await kept.list("s")) == ["c", "b", "a"]
    await kept.save(checkpoint("b", state={"of": "another"}, step=5))
    found = await kept.list("s")
    assert ids(found) == ["b", "c", "a"]
    assert (found[0].state, found[0].metadata.step) == ({"of": "another"}, 5)


async def test_an_id_belongs_to_its_session(kept: LlmfyCheckpointer) -> None:
    names = ["one", "One", "one.a", "one:a", "one-"]
    for name in names:
        await kept.save(checkpoint("same", name, state={"of": name}))
    await kept.delete("One", "same")
    assert await kept.load("One") is None
    left = [await kept.load(name, "same") for name in names if name != "One"]
    assert [one.state["of"] for one in left if one is not None] == ["one", "one.a", "one:a", "one-"]


async def test_deleting_the_newest_makes_the_one_before_it_the_newest(kept: LlmfyCheckpointer) -> None:
    for name in ("a", "b", "c"):
        await kept.save(checkpoint(name, state={"items": [{"n": n} for n in range(ord(name))]}))
    await kept.delete("s", "c")
    newest = await kept.load("s")
    assert newest is not None
    assert (newest.metadata.checkpoint_id, len(newest.state["items"])) == ("b", ord("b"))
    await kept.delete("s")
    assert await kept.list("s") == []


async def test_clearing_leaves_what_is_not_llmfys(kept: LlmfyCheckpointer, handle: Checkpointer) -> None:
    await handle.save(AgentState(agent_id="other"), "s")
    for session in ("s", "t"):
        await kept.save(checkpoint("a", session))
    await kept.clear_all()
    assert await kept.load("s") is None
    assert await kept.load("t") is None
    state = await handle.load("s")
    assert state is not None
    assert state.agent_id == "other"


async def test_runs_and_metadata_can_be_listed(kept: LlmfyCheckpointer, handle: Checkpointer) -> None:
    for number in range(4):
        await kept.save(checkpoint(f"c{number}", run_id=f"run-{number % 2}", step=number))
    assert ids(await kept.list_by_run("s", "run-1")) == ["c3", "c1"]
    assert ids(await kept.list_by_run("s", "run-1", limit=1)) == ["c3"]
    assert await kept.list_by_run("s", "run-7") == []
    assert [about.step for about in await kept.history("s", limit=3)] == [3, 2, 1]
    found = await handle.query_by_metadata("run_id", "run-0")
    assert sorted(entry["checkpoint_id"] for entry in found) == ["c0", "c2"]


async def test_saves_at_once_all_survive(store: TestStore) -> None:
    async with store.open() as one, store.open() as another:
        kept = [LlmfyCheckpointer(handle) for handle in (one, another)]
        await asyncio.gather(*(kept[n % 2].save(checkpoint(f"c{n}", state={"n": n})) for n in range(12)))
        found = await kept[0].list("s", limit=20)
        assert {(one.metadata.checkpoint_id, one.state["n"]) for one in found} == {(f"c{n}", n) for n in range(12)}


async def test_what_cannot_be_kept_is_refused_with_its_place(kept: LlmfyCheckpointer) -> None:
    with pytest.raises(SerializationError) as caught:
        await kept.save(checkpoint("a", state={"scores": [1.0, float("nan")]}))
    assert caught.value.path == "scores[1]"
    with pytest.raises(SerializationError, match="no datetime"):
        await kept.save(checkpoint("a", created_at="yesterday"))
    assert await kept.list("s") == []


async def test_what_no_flow_has_saved_is_an_error_and_not_a_checkpoint(
    kept: LlmfyCheckpointer, handle: Checkpointer
) -> None:
    await handle.save(AgentState(), "s", namespace="llmfy")
    with pytest.raises(CorruptCheckpointError, match="was not saved by a flow"):
        await kept.load("s")


async def test_a_url_is_opened_and_closed_and_a_store_is_left_open(tmp_path: Path) -> None:
    async with LlmfyCheckpointer(f"sqlite:{tmp_path / 'locus.db'}") as kept:
        await kept.save(checkpoint("a"))
    async with sqlite_checkpointer(tmp_path / "locus.db") as handle:
        async with LlmfyCheckpointer(handle) as kept:
            assert await kept.load("s") == checkpoint("a")
        assert handle.store.ready
    assert repr(kept) == "LlmfyCheckpointer(SQLiteEngine)"
    with pytest.raises(ConfigurationError):
        LlmfyCheckpointer(None)


async def test_a_store_of_another_kind_keeps_flows_in_the_namespace_it_has() -> None:
    with pytest.raises(CapabilityError, match="no namespaces"):
        await LlmfyCheckpointer(AsyncStore()).save(checkpoint("a"))
    kept = LlmfyCheckpointer(AsyncStore(), namespace="default")
    await kept.save(checkpoint("a"))
    await kept.save(checkpoint("b"))
    assert await kept.load("s") == checkpoint("b")
    assert ids(await kept.list("s")) == ["b", "a"]


async def test_a_url_takes_the_options_of_its_store(tmp_path: Path) -> None:
    async with LlmfyCheckpointer(f"sqlite:{tmp_path / 'flows.db'}", ttl_seconds=1e-6) as kept:
        await kept.save(checkpoint("a"))
        assert await kept.load("s") is None
    with pytest.raises(ConfigurationError, match="did you mean 'ttl_seconds'"):
        LlmfyCheckpointer(f"sqlite:{tmp_path / 'flows.db'}", ttl_second=1)


async def test_a_session_keeps_as_many_checkpoints_as_it_is_told(handle: Checkpointer) -> None:
    kept = LlmfyCheckpointer(handle, max_checkpoints_per_session=2)
    before = LlmfyCheckpointer(handle)
    for name in "abc":
        await before.save(checkpoint(name))
        await before.save(checkpoint(name, "other"))
    await kept.save(checkpoint("d"))
    assert ids(await kept.list("s")) == ["d", "c"]
    await kept.save(checkpoint("e"))
    await kept.save(checkpoint("e"))
    assert ids(await kept.list("s")) == ["e", "d"]
    assert ids(await kept.list("other")) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("options", "text"), [({"max_checkpoints_per_session": 0}, "from 1 on"), ({"encryption_key": "k"}, "Encrypt the")]
)
def test_an_option_that_cannot_be_kept_is_refused(options: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=text):
        LlmfyCheckpointer(f"sqlite:{tmp_path / 'flows.db'}", **options)
