"""The checkpointer that needs no llmfy. This file must not import it."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from locus.errors import ConfigurationError
from locus.integrations.llmfy.in_memory import Checkpoint, CheckpointMetadata, InMemoryCheckpointer

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def checkpoint(name: str, session: str = "s", at: datetime = NOW, **state: Any) -> Checkpoint:
    return Checkpoint(CheckpointMetadata(name, session, "run", at, "node", "__start__", 0, [*state], 1, None), state)


def ids(found: list[Checkpoint]) -> list[str]:
    return [one.metadata.checkpoint_id for one in found]


class Live:
    """Something that JSON has no word for."""

    def __init__(self) -> None:
        self.inner = [1]


async def test_the_newest_is_what_was_saved_last_whatever_the_clock_says() -> None:
    kept = InMemoryCheckpointer()
    for name, at in (("b", NOW), ("a", NOW), ("c", NOW - timedelta(hours=1))):
        await kept.save(checkpoint(name, at=at, of=name))
    newest = await kept.load("s")
    assert newest == checkpoint("c", at=NOW - timedelta(hours=1), of="c")
    assert ids(await kept.list("s")) == ["c", "a", "b"]
    assert ids(await kept.list("s", limit=2)) == ["c", "a"]
    assert await kept.list("s", limit=0) == []


async def test_what_is_not_there_is_none_or_nothing() -> None:
    kept = InMemoryCheckpointer()
    await kept.save(checkpoint("a", "one"))
    assert await kept.load("two") is None
    assert await kept.load("two", "a") is None
    assert await kept.load("one", "b") is None
    assert await kept.list("two") == []
    await kept.delete("two")
    await kept.delete("one", "b")
    assert ids(await kept.list("one")) == ["a"]


async def test_an_id_belongs_to_its_session() -> None:
    kept = InMemoryCheckpointer()
    await kept.save(checkpoint("a", "one", n=1))
    await kept.save(checkpoint("a", "two", n=2))
    await kept.delete("two", "a")
    found = await kept.load("one", "a")
    assert found is not None
    assert found.state == {"n": 1}
    assert kept.get_stats() == {
        "total_sessions": 1,
        "total_checkpoints": 1,
        "checkpoints_per_session": {"one": 1},
    }


async def test_a_save_that_is_repeated_keeps_its_place_and_a_different_one_does_not() -> None:
    kept = InMemoryCheckpointer()
    for name in ("a", "b", "c"):
        await kept.save(checkpoint(name, n=1))
    await kept.save(checkpoint("a", n=1))
    assert ids(await kept.list("s")) == ["c", "b", "a"]
    await kept.save(checkpoint("b", at=NOW + timedelta(seconds=1), n=2))
    assert ids(await kept.list("s")) == ["b", "c", "a"]
    assert kept.get_stats()["total_checkpoints"] == 3
    newest = await kept.load("s")
    assert newest is not None
    assert newest.state == {"n": 2}


async def test_objects_stay_objects_and_nobody_changes_what_is_kept() -> None:
    kept = InMemoryCheckpointer()
    live = Live()
    await kept.save(checkpoint("a", live=live))
    live.inner.append(2)
    (listed,) = await kept.list("s")
    listed.state["live"].inner.append(3)
    loaded = await kept.load("s")
    assert loaded is not None
    assert isinstance(loaded.state["live"], Live)
    assert loaded.state["live"].inner == [1]
    assert not kept.requires_serialization


async def test_deleting_the_newest_makes_the_one_before_it_the_newest() -> None:
    kept = InMemoryCheckpointer()
    for name in ("a", "b"):
        await kept.save(checkpoint(name))
    await kept.delete("s", "b")
    assert ids(await kept.list("s")) == ["a"]
    await kept.delete("s", "a")
    assert kept.get_stats()["total_sessions"] == 0
    await kept.save(checkpoint("c"))
    await kept.delete("s")
    assert await kept.load("s") is None


async def test_statistics_are_no_coroutine_and_everything_can_be_cleared() -> None:
    kept = InMemoryCheckpointer()
    await asyncio.gather(*(kept.save(checkpoint(f"c{n}", f"s{n % 2}")) for n in range(5)))
    stats = kept.get_stats()
    assert not inspect.isawaitable(stats)
    assert stats == {
        "total_sessions": 2,
        "total_checkpoints": 5,
        "checkpoints_per_session": {"s0": 3, "s1": 2},
    }
    await kept.clear_all()
    assert kept.get_stats() == {"total_sessions": 0, "total_checkpoints": 0, "checkpoints_per_session": {}}


async def test_only_so_many_and_only_the_young_are_kept() -> None:
    kept = InMemoryCheckpointer(max_checkpoints_per_session=2)
    for name in ("a", "b", "c"):
        await kept.save(checkpoint(name))
    assert ids(await kept.list("s")) == ["c", "b"]
    young = InMemoryCheckpointer(ttl_seconds=60)
    await young.save(checkpoint("old", at=datetime.now(UTC) - timedelta(seconds=61)))
    assert young.get_stats()["total_sessions"] == 0
    await young.save(checkpoint("naive", at=datetime.now(UTC).replace(tzinfo=None)))
    await young.save(checkpoint("old", at=datetime.now(UTC) - timedelta(seconds=61)))
    assert ids(await young.list("s")) == ["naive"]


@pytest.mark.parametrize("options", [{"max_checkpoints_per_session": 0}, {"ttl_seconds": 0}, {"ttl_seconds": -1}])
def test_settings_that_would_keep_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        InMemoryCheckpointer(**options)


def test_a_checkpoint_as_a_dict_and_back() -> None:
    one = checkpoint("a", n=[1, {"x": None}])
    assert one.to_dict()["created_at"] == "2026-01-01T00:00:00+00:00"
    assert Checkpoint.from_dict(one.to_dict()) == one


WITHOUT_LLMFY = """
import asyncio, sys
sys.modules["llmfy"] = None
from datetime import UTC, datetime
from locus.integrations.llmfy import Checkpoint, CheckpointMetadata, LlmfyCheckpointer

async def main():
    about = CheckpointMetadata("a", "s", "run", datetime.now(UTC), "node", "__start__", 0, ["n"], 1, None)
    async with LlmfyCheckpointer("memory") as kept:
        await kept.save(Checkpoint(about, {"n": [1, 2]}))
        assert await kept.load("s") == Checkpoint(about, {"n": [1, 2]})
        assert await kept.history("s") == [about]

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("llmfy.")]
"""


def test_everything_works_where_llmfy_is_not_installed() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_LLMFY], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_light_names_do_not_import_llmfy() -> None:
    program = "import sys, locus.integrations.llmfy as m; m.InMemoryCheckpointer; assert 'llmfy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    import locus.integrations.llmfy as module

    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing
