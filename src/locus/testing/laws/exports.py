"""Exports, as a transfer reads them: in the order of commits, complete, each checkpoint as it is when read alone."""

from __future__ import annotations

from typing import Any

import pytest

from locus.memory.checkpointer import Checkpointer
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import ANY
from locus.memory.storage import StorageBackend
from locus.testing.laws.base import Laws, OpenHandle, dicts
from locus.transfer import read as transfer_read
from locus.transfer.digests import value_digest, writes_digest


def _payload(items: list[Any], **fields: Any) -> dict[str, Any]:
    return {"values": {"items": items, "text": "t" * 1_500}, **fields}


async def _story(backend: StorageBackend) -> None:
    """A thread that was appended to, edited, trimmed, forked, replaced in and deleted from; two namespaces."""
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
    """A thread is read whole."""

    async def test_a_thread_read_whole_is_what_it_is_one_by_one(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transfer_read, "PAGE", 3)
        await _story(dicts(checkpointer))
        store = open_handle().store
        found = [checkpoint async for checkpoint in transfer_read.checkpoints(store, "t")]
        entries = (await store.history("t", None, None, None))[::-1]
        assert [(one.namespace, one.checkpoint_id, one.parent_id, one.created_at) for one in found] == [
            (entry.namespace, entry.checkpoint_id, entry.parent_id, entry.created_at) for entry in entries
        ]
        assert [entry.checkpoint_id for entry in entries] == ["c", "d", "e", "a", "f", "g", "a"]
        for one in found:
            stored = await store.read("t", one.checkpoint_id, one.namespace)
            assert stored is not None
            assert one.content.digest == value_digest(dict_from(stored))
            writes = await store.get_writes("t", one.checkpoint_id, task_id=None, namespace=one.namespace)
            assert one.writes_digest == writes_digest(writes)
        assert [len(one.writes) for one in found] == [4, 0, 0, 0, 0, 0, 0]

    async def test_a_thread_that_is_not_there_has_nothing_to_read(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {"n": 1}, parent=ANY)
        assert [one async for one in transfer_read.checkpoints(checkpointer.store, "u")] == []
