"""Exports, which transfers read: complete, in the order of commits, each checkpoint as it is when read alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.looking import reading
from locus.memory.checkpointer import Checkpointer
from locus.memory.model import sizes
from locus.memory.model.manifest import decode_manifest, fits, visible
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.testing.data import conversation
from locus.testing.laws.base import Laws, OpenHandle, dicts, present
from locus.transfer import read as transfer_read
from locus.transfer.content import MovedCheckpoint
from locus.transfer.digests import value_digest, writes_digest


def _payload(items: list[Any], **fields: Any) -> dict[str, Any]:
    return {"values": {"items": items, "text": "t" * 1_500}, **fields}


async def _story(backend: StorageBackend) -> None:
    """A thread with appends, edits, trims, forks, replacements and deletions, in two namespaces."""
    items = [{"n": number, "é": [number, -0.0, 1e22]} for number in range(8)]
    await backend.save("t", _payload(items[:3]), "a", {"k": [1]})
    await backend.save("t", _payload(items[:5], large="x" * 2_000), "b")
    await backend.save("t", _payload([*items[:4], {"edited": True}]), "c")
    await backend.save("t", _payload(items[2:4]), "d")
    await backend.save("t", _payload([*items[:3], {"forked": True}]), "e", parent="a")
    await backend.save("t", {"other": [*items]}, "a", namespace="")
    await backend.save("t", _payload([*items[2:4], *items[6:]]), "f", parent="d")
    await backend.save("t", _payload(items[:1]), "g", parent=None)
    await backend.put_writes("t", "c", "task", [("x", 1), ("__error__", "e"), ("y", {"z": None})], task_path="p")
    await backend.put_writes("t", "c", "another", [("x", [])])
    await backend.delete("t", "b")
    await backend.save("t", _payload(items), "a")


class ExportLaws(Laws):
    """A thread that is read whole is what its checkpoints are one by one."""

    async def test_a_thread_read_whole_is_what_it_is_one_by_one(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await _story(dicts(checkpointer))
        store = open_handle().store
        monkeypatch.setattr(reading, "PAGE", 3)
        checkpoints = [checkpoint async for checkpoint in transfer_read.checkpoints(store, "t")]
        await self._are_one_by_one(checkpoints, store)
        # Pages that end because of their size, with checkpoint checkpoint or a few.
        monkeypatch.setattr(reading, "PAGE", 100)
        for most in (1, 2_000, 4_000):
            monkeypatch.setattr(sizes, "EXPORT_BYTES", most)
            checkpoints = [checkpoint async for checkpoint in transfer_read.checkpoints(store, "t")]
            await self._are_one_by_one(checkpoints, store)
        told = [(checkpoint.checkpoint_id, len(checkpoint.writes)) for checkpoint in checkpoints]
        assert told == [("c", 4), ("d", 0), ("e", 0), ("a", 0), ("f", 0), ("g", 0), ("a", 0)]

    async def test_a_thread_without_what_an_edit_and_a_deletion_made_superfluous_is_read_whole(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The numbers of runs have gaps then, and the runs on both sides of a gap have to fit together."""
        backend = dicts(checkpointer)
        lists = {"1": ["a", "b"], "2": ["a", "b", "c"], "3": ["a", "b", "d"], "4": ["a", "b", "d", "e"]}
        for name, items in lists.items():
            await backend.save("t", {"list": [{"text": item * 100} for item in items]}, name)
        assert await backend.delete("t", "2")
        store = open_handle().store
        await self._are_one_by_one([checkpoint async for checkpoint in transfer_read.checkpoints(store, "t")], store)

    async def _are_one_by_one(self, checkpoints: Sequence[MovedCheckpoint], store: CheckpointStore) -> None:
        entries = (await store.history("t", None, None, None))[::-1]
        assert [
            (checkpoint.namespace, checkpoint.checkpoint_id, checkpoint.parent_id, checkpoint.created_at)
            for checkpoint in checkpoints
        ] == [(entry.namespace, entry.checkpoint_id, entry.parent_id, entry.created_at) for entry in entries]
        for checkpoint in checkpoints:
            stored = present(await store.read("t", checkpoint.checkpoint_id, checkpoint.namespace))
            assert checkpoint.content.digest == value_digest(dict_from(stored))
            writes = await store.get_writes("t", checkpoint.checkpoint_id, task_id=None, namespace=checkpoint.namespace)
            assert checkpoint.writes_digest == writes_digest(writes)

    async def test_a_thread_that_is_not_there_has_nothing_to_read(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"n": 1}, parent=ANY)
        assert [one async for one in transfer_read.checkpoints(checkpointer.store, "u")] == []

    async def test_every_run_says_what_precedes_it(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        """Runs have a digest of their predecessors, whichever handle wrote them, after an edit, and in a copy."""
        if not checkpointer.store.engine.keeps_runs:
            pytest.skip("this store keeps every state whole")
        call = ToolCall(id="call", name="tool", arguments={"b": 1, "a": [1.0, -0.0, 1e22, 10**30], "aa": "\0"})
        state = AgentState(agent_id="a").with_messages(conversation(4))
        await checkpointer.save(state, "t")
        for number in range(3):
            state = state.with_message(Message.assistant(f"warm {number}", [call]))
            await checkpointer.save(state, "t")
        loaded = present(await open_handle().load("t"))
        other = open_handle()
        state = loaded.with_messages_replaced((*loaded.messages[:-1], Message.user("edited")))
        await other.save(state, "t")
        await other.save(state.with_message(Message.user("last")), "t")
        threads = ["t"]
        if self.required.branching:
            assert await checkpointer.copy_thread("t", "copy")
            threads.append("copy")
        for thread_id in threads:
            stored = present(await open_handle().store.read(thread_id, None, DEFAULT_NAMESPACE))
            cut = decode_manifest(stored.manifest)["messages",]
            assert not isinstance(cut, str)
            (extent,) = cut
            pieces = visible(extent, stored.runs[extent.branch])
            assert len(pieces) == 5
            assert all(run.before is not None for run, _, _ in pieces[1:])
            # Each was added to the one before it; for the edit, to what is left of that.
            for (older, _, _), (newer, _, _) in pairwise(pieces):
                assert fits(older, newer)
                assert not fits(older._replace(items=newer.items, length=newer.length), newer)
