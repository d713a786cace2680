"""What older versions wrote is read, and carried on, by this one; what newer ones wrote is refused."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import UnsupportedFormatError
from locus.memory import get_checkpointer
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from tests.format.story import DATA, EMPTIED, HOSTILE, PLAIN, Told, repeatable, tell

STORES = sorted(path for path in DATA.iterdir() if path.suffix not in (".sql", ".json"))


@pytest.fixture(params=STORES, ids=lambda path: path.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what an older version wrote."""
    old: Path = request.param
    copied = tmp_path / old.name
    if old.is_dir():
        shutil.copytree(old, copied)
    else:
        shutil.copy(old, copied)
    return copied


def opened(place: Path) -> Checkpointer:
    checkpointer = get_checkpointer(f"{'file' if place.is_dir() else 'sqlite'}:{place}")
    assert isinstance(checkpointer, Checkpointer)
    return checkpointer


async def told() -> Told:
    with repeatable():
        return await tell(MemoryCheckpointer())


async def test_every_checkpoint_is_there(place: Path) -> None:
    async with opened(place) as cp:
        for (thread_id, namespace, checkpoint_id), state in (await told()).items():
            assert await cp.load(thread_id, checkpoint_id, namespace=namespace) == state
        assert await cp.list_threads() == sorted([PLAIN, HOSTILE])
        assert not await cp.exists(EMPTIED)
        assert await cp.load(HOSTILE, "gone") is None


async def test_the_history_is_there(place: Path) -> None:
    async with opened(place) as cp:
        found = [(entry.checkpoint_id, entry.parent_id, entry.seq) for entry in await cp.history(PLAIN)]
        assert found == [("fork", "one", 4), ("three", "two", 3), ("two", "one", 2), ("one", None, 1)]
        assert [entry.seq for entry in await cp.history(HOSTILE)] == [4, 2]
        assert await cp.list_checkpoints(PLAIN, namespace="") == ["trimmed"]
        assert await cp.get_metadata(PLAIN, "one") == {"user": "eve", "n": 1, "nested": {"a": [True, None, 1.5]}}
        writes = [
            (write.idx, write.channel, write.value, write.task_path) for write in await cp.get_writes(PLAIN, "two")
        ]
        assert writes == [(-1, "__error__", "no", "a/b"), (0, "channel", {"x": [1]}, "a/b")]


async def test_it_can_be_searched(place: Path) -> None:
    async with opened(place) as cp:
        assert [hit["checkpoint_id"] for hit in await cp.search("another way")] == ["fork"]
        assert [hit["checkpoint_id"] for hit in await cp.query_by_metadata("old", False)] == ["replaced"]


async def test_it_can_be_carried_on(place: Path) -> None:
    async with opened(place) as cp:
        state = await cp.load(PLAIN, "three")
        assert state is not None
        new = await cp.save(state.with_message(Message.user("more")), PLAIN)
        assert [(entry.parent_id, entry.seq) for entry in await cp.history(PLAIN, limit=1)] == [("three", 6)]
        await cp.delete(PLAIN, "two")
    async with opened(place) as cp:
        again = await cp.load(PLAIN, new)
        assert again is not None
        assert again.messages == (*state.messages, Message.user("more"))
        for (thread_id, namespace, checkpoint_id), expected in (await told()).items():
            if checkpoint_id != "two":
                assert await cp.load(thread_id, checkpoint_id, namespace=namespace) == expected


CALLS: list[Callable[[Checkpointer], Awaitable[Any]]] = [
    lambda cp: cp.load(PLAIN),
    lambda cp: cp.load(PLAIN, "one"),
    lambda cp: cp.save(AgentState(), PLAIN),
    lambda cp: cp.history(PLAIN, limit=1),
    lambda cp: cp.exists(PLAIN),
    lambda cp: cp.delete(PLAIN, "one"),
    lambda cp: cp.put_writes(PLAIN, "one", "task", [("channel", 1)]),
    lambda cp: cp.search("coffee"),
]


def make_newer(place: Path) -> dict[Path, bytes]:
    """Give what is stored a number of the future; the files as they are then."""
    if place.is_dir():
        for log in place.glob("*.jsonl"):
            log.write_bytes(re.sub(rb'"locus":\d', b'"locus":9', log.read_bytes(), count=1))
    else:
        with closing(sqlite3.connect(place)) as connection, connection:
            names = {row[1] for row in connection.execute("PRAGMA table_info(locus_format)")}
            for name in names & {"version", "min_reader", "min_writer"}:
                connection.execute(f"UPDATE locus_format SET {name} = 9")
    return contents(place)


def contents(place: Path) -> dict[Path, bytes]:
    files = place.glob("*.jsonl") if place.is_dir() else [place]
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "call", CALLS, ids=["load", "load one", "save", "history", "exists", "delete", "put_writes", "search"]
)
async def test_what_a_newer_version_wrote_is_refused_and_left_alone(
    place: Path, call: Callable[[Checkpointer], Awaitable[Any]]
) -> None:
    before = make_newer(place)
    cp = opened(place)
    with pytest.raises(UnsupportedFormatError, match=r"format 9.*upgrade locus-state"):
        await call(cp)
    await cp.close()
    assert contents(place) == before
