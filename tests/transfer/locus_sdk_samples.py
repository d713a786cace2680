"""What locus-sdk 3 has written, and what has to have become of it; see `samples`.

All of them were written by locus-sdk 3.0.1 itself: `folder` by its `FileCheckpointer`, `keys.json` by its
`StorageBackendAdapter`; and `s3.json`, `oci.json`, `opensearch.json` and `oracle.json` are what clients of those
servers have found there after it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from locus.core.messages import Message
from locus.memory import get_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.laws.base import exact
from locus.transfer import Report, import_store

SAMPLES = Path(__file__).parent / "samples" / "locus_sdk_3"
KEYS: dict[str, dict[str, Any]] = json.loads((SAMPLES / "keys.json").read_text())
OURS = ("_checkpoint_id", "_checkpoint_timestamp", "_metadata")


def opened(url: str) -> Checkpointer:
    handle = get_checkpointer(url)
    assert isinstance(handle, Checkpointer)
    return handle


async def moved(source: str, url: str, **options: Any) -> Report:
    return await import_store("locus-sdk", source, url, **options)


async def check(url: str, old: dict[str, dict[str, Any]], thread_id: str = "t-1") -> None:
    """What is there now is what was in the old store, by checkpoint id; and it can be gone on with."""
    async with opened(url) as handle:
        history = (await handle.history(thread_id, None))[::-1]
        assert [entry.checkpoint_id for entry in history] == list(old)
        assert [entry.parent_id for entry in history] == [None, *list(old)[:-1]]
        for entry in history:
            state = await handle.load(thread_id, entry.checkpoint_id)
            assert state is not None
            loaded, before = state.to_checkpoint(), old[entry.checkpoint_id]["state"]
            assert loaded.keys() >= before.keys()
            assert exact(type(state).from_checkpoint(before).to_checkpoint()) == exact(loaded)
            assert loaded["reasoning_steps"] == before["reasoning_steps"]
            assert entry.metadata == old[entry.checkpoint_id]["metadata"]
            assert entry.created_at.isoformat() == old[entry.checkpoint_id]["created_at"]
        state = await handle.load(thread_id)
        assert state is not None
        assert state.messages[0].text == "Where is my order? 😀"
        await handle.save(state.with_message(Message.user("Thanks!")), thread_id)


def by_key(thread_id: str = "t-1", keys: dict[str, dict[str, Any]] = KEYS) -> dict[str, dict[str, Any]]:
    """The checkpoints under the keys of a thread, in the order of their times."""
    found = {
        data["_checkpoint_id"]: {
            "state": {name: value for name, value in data.items() if name not in OURS},
            "metadata": data["_metadata"],
            "created_at": data["_checkpoint_timestamp"],
        }
        for key, data in keys.items()
        if key.startswith(f"{thread_id}:") and "_checkpoint_id" in data
    }
    return dict(sorted(found.items(), key=lambda item: item[1]["created_at"]))
