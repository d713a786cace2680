"""Sessions that are documents: their points tell the change and the count, and a log reads and continues their list."""

from __future__ import annotations

from typing import Any

import pytest

from locus.errors import ConflictError
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog, logged_change
from locus.memory.model.codec import decode, encode
from locus.threads import Document, Kept, ThreadStore, Version, point_metadata, session_points
from locus.transfer.content import comparable_metadata, metadata_for
from tests.backends.every_store import handle, store

__all__ = ["handle", "store"]

LARGE = "x" * 2_000


async def _added(
    document: Document, items: list[Any], fields: dict[str, Any], after: Version | None, change: str = "add"
) -> Version:
    kept = 0 if after is None else after.counts["items"]
    return await document.save(
        fields,
        lists={"items": Kept(kept, items)},
        after=after,
        metadata=point_metadata(change, kept + len(items)),
        if_latest=None if after is None else after.checkpoint_id,
    )


async def test_points_tell_the_change_and_the_count(handle: Checkpointer) -> None:
    threads = ThreadStore.open(handle)
    document = threads.document("t", "n", ("items",))
    first = await _added(document, [], {"state": {"n": 0, "big": LARGE}}, None, "create")
    second = await _added(document, [{"a": 1}, {"a": 2}], {"state": {"n": 1, "big": LARGE}}, first)
    third = await _added(document, [{"a": 3}], {"list": [1, [2]]}, second)
    points = await session_points(threads, "t", "n")
    assert [(point.checkpoint_id, point.change, point.items) for point in points] == [
        (third.checkpoint_id, "add", 3),
        (second.checkpoint_id, "add", 2),
        (first.checkpoint_id, "create", 0),
    ]
    again = await ThreadStore.open(handle).document("t", "n", ("items",)).read(newest=1)
    assert again is not None
    assert (again.fields, again.counts, again.lists) == ({"list": [1, [2]]}, {"items": 3}, {"items": [{"a": 3}]})
    with pytest.raises(ConflictError):
        await _added(document, [{"a": 4}], {}, second)
    assert await ItemLog(handle.store, "t", "n").read() == [{"a": 1}, {"a": 2}, {"a": 3}]


async def test_metadata_say_how_many_items_there_are(handle: Checkpointer) -> None:
    """And not where they are, which the manifest says: databases store metadata twice."""
    document = ThreadStore.open(handle).document("t", "n", ("items",))
    first = await _added(document, [{"a": 1}, {"a": 2}], {"v": 1}, None)
    (entry,) = await handle.store.history("t", None, None, "n")
    assert decode(entry.metadata) == {"log": '["add",2]'}
    await _added(document, [{"a": 3}], {"v": 2}, first)
    await ItemLog(handle.store, "t", "n").append([4])  # a handle that knows nothing has to find the place
    assert await ItemLog(handle.store, "t", "n").pop() == 4
    assert await ItemLog(handle.store, "t", "n").read() == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert metadata_for(entry.metadata, "[]", "[]") == entry.metadata, "it holds in every store"
    assert comparable_metadata(entry.metadata) == {"log": ["add", 2]}
    for count in ("-1", "2.5", "true", "1e400", str(10**30)):
        assert logged_change(encode({"log": f'["add",{count}]'})) is None
