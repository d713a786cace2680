"""A log whose checksums fit, and whose seals say what cannot be: that is damage, and nothing else comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.backends import FileCheckpointer
from locus.testing.data import message
from tests.fuzz.targets.file_log import mended

CHANGES: dict[str, tuple[bytes, bytes]] = {
    "no JSON": (b'"seq":2', b'"seq":'),
    "a fact is missing": (b'"rev":', b'"rex":'),
    "a number is a text": (b'"seq":2', b'"seq":"2"'),
    "the last number is missing": (b'"last_seq":2', b'"last_sex":2'),
    "no time": (b'"created_at":"2', b'"created_at":"x'),
    "a time without a zone": (b'+00:00","metadata"', b'","metadata"'),
    "metadata are a list": (b'"metadata":{}', b'"metadata":[]'),
    "the manifest is a text": (b'"manifest":[', b'"manifest":"x","old":['),
    "runs are numbers": (b'"runs":[', b'"runs":[7,'),
    "places are texts": (b'"at":[[', b'"at":["x",['),
    "an unknown kind": (b'"seal":"checkpoint"', b'"seal":"checkpoinx"'),
    "no UTF-8": (b'"namespace":"default"', b'"namespace":"d\xff"'),
    "the parent is a number": (b'"parent_id":"first"', b'"parent_id":7'),
    "a number that is there already": (b'"seq":2', b'"seq":1'),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_what_a_seal_cannot_say_is_damage(tmp_path: Path, name: str) -> None:
    async with FileCheckpointer(tmp_path) as handle:
        state = AgentState().with_message(message(1))
        await handle.save(state, "t", "first")
        await handle.save(state.with_message(message(2)), "t", "second")
    (path,) = tmp_path.glob("*.jsonl")
    old, new = CHANGES[name]
    before, found, after = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(mended(before + new + after))
    async with FileCheckpointer(tmp_path) as handle:
        calls: list[Callable[[], object]] = [
            lambda: handle.load("t"),
            lambda: handle.load("t", "second"),
            lambda: handle.store.history("t", 10, None, None),
            lambda: handle.copy_thread("t", "u"),
            lambda: handle.vacuum(keep_last=1),
            lambda: handle.store.sizes("t"),
            lambda: handle.save(state, "t"),
        ]
        damaged = 0
        for call in calls:
            try:
                await call()  # type: ignore[misc]
            except CorruptCheckpointError:
                damaged += 1
        assert damaged, "nobody noticed"
