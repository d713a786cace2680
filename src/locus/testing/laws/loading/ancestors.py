"""The line of checkpoints that one was made from, with what tasks wrote on the way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import decode
from locus.memory.model.plan import Payload
from locus.memory.model.records import Ancestor
from locus.testing.data import HOSTILE_IDS
from locus.testing.laws.base import Laws, OpenHandle, dicts

MANY = 10_000


async def _line(
    handle: Checkpointer,
    checkpoint_id: str,
    channels: Collection[str] = (),
    *,
    limit: int = MANY,
    thread_id: str = "t",
    namespace: str = "default",
    known: Collection[str] = (),
) -> list[Ancestor]:
    return await handle.store.ancestors(thread_id, checkpoint_id, namespace, limit, channels, known)


def _names(line: list[Ancestor]) -> list[str]:
    return [ancestor.checkpoint_id for ancestor in line]


def _values(line: list[Ancestor]) -> list[list[Any]]:
    return [[decode(write.value) for write in ancestor.writes] for ancestor in line]


async def _save_as_named(handle: Checkpointer, checkpoint_id: str, parent: str, number: int) -> None:
    """Save a checkpoint whose parent need not be there."""
    await handle.store.save(
        "t",
        Payload({}, {"number": number}, frozen=False),
        namespace="default",
        checkpoint_id=checkpoint_id,
        parent=parent,
        parent_as_named=True,
    )


class AncestorLaws(Laws):
    """A line leads from a checkpoint to its parent, and on, as of one instant. It reads no lists."""

    async def test_a_line_has_the_parents_and_their_writes(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        backend = dicts(checkpointer)
        items = [{"text": "x" * 200, "n": number} for number in range(6)]
        for number, name in enumerate("abc"):
            await backend.save("t", {"items": items[: 2 * number + 1], "n": number}, name)
        await backend.save("t", {"items": items[:1]}, "beside", parent="a")
        await backend.save("t", {"items": items}, "d", parent="c", metadata={"k": 1})
        await backend.save("t", {"items": []}, "c", namespace="other")
        for name in ("a", "b", "beside", "c", "d"):
            await backend.put_writes("t", name, "task 2", [("x", name), ("y", {"of": name})], task_path="1")
            await backend.put_writes("t", name, "task 1", [("z", 0), ("x", 1)], task_path="2")
            await backend.put_writes("t", name, "task 3", [("x", "w" * 3_000), ("__error__", "e")], task_path="1")
        await backend.put_writes("t", "c", "task", [("x", "other")], namespace="other")
        for handle in (checkpointer, open_handle()):
            line = await _line(handle, "d", ["x", "é"])
            assert _names(line) == ["c", "b", "a"]
            assert _values(line) == [[name, "w" * 3_000, 1] for name in "cba"]
            assert [write.channel for write in (await _line(handle, "b", ["y", "__error__"]))[0].writes] == [
                "y",
                "__error__",
            ]
            assert _values(await _line(handle, "beside")) == [[]]
            for name, rev, stored, _ in line:
                alone = await handle.store.read("t", name, "default")
                assert stored is not None
                assert alone is not None
                assert (rev, stored.entry, stored.head) == (alone.entry.rev, alone.entry, alone.head)
                assert stored.manifest == alone.manifest
                assert not stored.runs

    async def test_a_line_tells_what_a_reader_does_not_know(self, checkpointer: Checkpointer) -> None:
        for name in "abcd":
            await dicts(checkpointer).save("t", {"name": name}, name)
            await dicts(checkpointer).put_writes("t", name, "task", [("x", name)])
        revs = {ancestor.checkpoint_id: ancestor.rev for ancestor in await _line(checkpointer, "d")}
        line = await _line(checkpointer, "d", ["x"], known=[revs["c"], revs["a"], "of no checkpoint"])
        assert _names(line) == ["c", "b", "a"]
        assert _values(line) == [["c"], ["b"], ["a"]]
        assert {ancestor.checkpoint_id: ancestor.rev for ancestor in line} == revs
        for name, _, stored, _ in line:
            assert name != "b" or stored is not None
            assert stored is None or decode(stored.head) == {"name": name}

    async def test_a_line_is_as_long_as_is_asked_for(self, checkpointer: Checkpointer) -> None:
        names = [f"{number:02}" for number in range(12)]
        for name in names:
            await dicts(checkpointer).save("t", {"name": name}, name)
        for limit in (1, 2, 11, 12, MANY):
            assert _names(await _line(checkpointer, "11", limit=limit)) == names[10::-1][:limit]
        assert await _line(checkpointer, "00") == []
        assert await _line(checkpointer, "12") == []
        assert await _line(checkpointer, "11", namespace="other") == []
        assert await _line(checkpointer, "11", thread_id="u") == []

    async def test_a_line_goes_on_where_a_checkpoint_was_removed(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        for name in "abcd":
            await backend.save("t", {"name": name}, name)
            await backend.put_writes("t", name, "task", [("x", name)])
        await backend.delete("t", "b")
        assert _values(await _line(checkpointer, "d", ["x"])) == [["c"], ["a"]]
        await backend.put_writes("t", "b", "task", [("x", "nobody has it for a parent")])
        assert _values(await _line(checkpointer, "d", ["x"])) == [["c"], ["a"]]

    async def test_a_line_ends_where_a_parent_is_missing(self, checkpointer: Checkpointer) -> None:
        for number, (name, parent) in enumerate((("c", "b"), ("d", "c"))):
            await _save_as_named(checkpointer, name, parent, number)
        await dicts(checkpointer).put_writes("t", "b", "task", [("x", "of one that is not there yet")])
        assert _names(await _line(checkpointer, "d", ["x"])) == ["c"]
        await _save_as_named(checkpointer, "b", "a", 2)  # it is newer than its children
        line = await _line(checkpointer, "d", ["x"])
        assert _names(line) == ["c", "b"]
        assert _values(line) == [[], ["of one that is not there yet"]]

    async def test_a_line_that_is_a_circle_ends(self, checkpointer: Checkpointer) -> None:
        for number, (name, parent) in enumerate((("a", "c"), ("b", "a"), ("c", "b"))):
            await _save_as_named(checkpointer, name, parent, number)
        assert _names(await _line(checkpointer, "c")) == ["b", "a"]
        await dicts(checkpointer).save("t", {"name": "d"}, "d", parent="c")
        assert _names(await _line(checkpointer, "d")) == ["c", "b", "a"]

    async def test_any_name_may_be_in_a_line(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        for name in HOSTILE_IDS[:6]:
            await backend.save("t", {}, name, namespace=name)
            await backend.put_writes("t", name, name, [(name, name)], task_path=name, namespace=name)
            await backend.save("t", {}, "child", namespace=name)
            line = await _line(checkpointer, "child", [name], namespace=name)
            assert (_names(line), _values(line)) == ([name], [[name]])
