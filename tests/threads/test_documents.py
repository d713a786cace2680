"""Documents: what is saved comes back, items are kept unread, and a change never undoes what another writer did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from locus.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConflictError,
    InvalidIdError,
    SerializationError,
)
from locus.memory.backends import sqlite_checkpointer
from locus.memory.model.records import Commit
from locus.memory.store import CheckpointStore
from locus.threads import Change, Document, Kept, ThreadStore, Version, freeze
from tests.threads.stores import NAMESPACE, OpenStore, opened, threads

__all__ = ["opened", "threads"]

LISTS = ("items", "left")
LARGE = "x" * 2_000


def _document(store: ThreadStore, thread_id: str = "t") -> Document:
    return store.document(thread_id, NAMESPACE, LISTS)


def _items(*numbers: int) -> list[Any]:
    return [{"number": number, "text": "y" * 40} for number in numbers]


async def _read(document: Document, checkpoint_id: str | None = None, newest: int | None = None) -> Version:
    version = await document.read(checkpoint_id, newest=newest)
    assert version is not None
    return version


def _numbers(items: Sequence[Any]) -> list[int]:
    return [item["number"] for item in items]


async def test_what_is_saved_comes_back(threads: ThreadStore) -> None:
    document = _document(threads)
    assert await document.read() is None
    fields = {"title": "a", "state": {"n": 0, "big": LARGE, "inner": _items(1, 2)}, "tags": ["a"], "none": None}
    saved = await document.save(fields, lists={"items": _items(0, 1), "left": []}, metadata={"k": 1})
    assert (saved.fields, saved.counts, saved.entry) == (fields, {"items": 2, "left": 0}, None)
    version = await _read(_document(threads))
    assert version.fields == fields
    assert version.counts == {"items": 2, "left": 0}
    assert version.lists == {"items": _items(0, 1), "left": []}
    assert version.checkpoint_id == saved.checkpoint_id
    assert version.entry is not None
    assert version.entry.metadata == '{"k":1}'


@pytest.mark.parametrize("read", ["nothing", "the end", "everything"])
async def test_items_are_kept_whatever_was_read_of_them(opened: OpenStore, read: str) -> None:
    document = _document(opened())
    version = await document.save({"n": 0}, lists={"items": _items(*range(20)), "left": []})
    for number in range(20, 30):
        if read != "nothing":
            version = await _read(_document(opened()), newest=0 if read == "the end" else None)
        version = await document.save(
            {"n": number},
            lists={"items": Kept(number, _items(number)), "left": Kept(max(0, number - 20), _items(-number))},
            after=version,
            if_latest=version.checkpoint_id,
        )
        assert version.counts == {"items": number + 1, "left": number - 19}
    found = await _read(_document(opened()))
    assert _numbers(found.lists["items"]) == list(range(30))
    assert _numbers(found.lists["left"]) == list(range(-20, -30, -1))
    assert found.fields == {"n": 29}


@pytest.mark.parametrize("kept", [0, 1, 7, 20])
async def test_fewer_items_are_kept_and_others_follow(opened: OpenStore, kept: int) -> None:
    document = _document(opened())
    await document.save({}, lists={"items": _items(*range(20))})
    version = await _read(document, newest=0)
    shorter = await document.save({}, lists={"items": Kept(kept, _items(77))}, after=version)
    assert _numbers((await _read(document)).lists["items"]) == [*range(kept), 77]
    await document.save({}, lists={"items": Kept(kept)}, after=shorter)
    assert _numbers((await _read(_document(opened()))).lists["items"]) == [*range(kept)]
    assert _numbers((await _read(document, version.checkpoint_id)).lists["items"]) == list(range(20))


async def test_the_newest_items_are_read_without_the_rest(threads: ThreadStore) -> None:
    document = _document(threads)
    await document.save({"big": LARGE, "inner": _items(*range(50))}, lists={"items": _items(*range(50)), "left": [1]})
    for newest in (0, 1, 3, 50, 70):
        version = await _read(document, newest=newest)
        assert _numbers(version.lists["items"]) == list(range(50))[max(0, 50 - newest) :], newest
        assert version.lists["left"] == [1][: min(newest, 1)]
        assert version.counts == {"items": 50, "left": 1}
        assert version.fields == {"big": LARGE, "inner": _items(*range(50))}


async def test_lists_can_be_told_by_a_function(threads: ThreadStore) -> None:
    document = threads.document("t", NAMESPACE, str.isupper)
    fields = {"who": [{"big": LARGE}], "ids": {"a": list(range(40))}, "note": LARGE}
    version = await document.save(fields, lists={"A": _items(*range(9)), "B": [], "C": ["short"]})
    for _ in range(2):
        version = await document.save(
            version.fields,
            lists={name: Kept(count, _items(5)) for name, count in version.counts.items()},
            after=await _read(document, newest=0),
        )
    version = await _read(document, newest=1)
    assert version.fields == fields
    assert version.counts == {"A": 11, "B": 2, "C": 3}
    assert {name: _numbers(items) for name, items in version.lists.items()} == {"A": [5], "B": [5], "C": [5]}
    assert (await _read(document)).lists["C"] == ["short", *_items(5, 5)]


async def test_a_range_of_a_list(threads: ThreadStore) -> None:
    document = _document(threads)
    await document.save({"state": {"inner": _items(*range(9))}}, lists={"items": _items(*range(9)), "left": []})
    for start, count, expected in ((0, 2, [0, 1]), (7, 9, [7, 8]), (-2, 1, [7]), (-99, 99, [*range(9)]), (9, 1, [])):
        paths: tuple[str | tuple[str, ...], ...] = ("items", ("state", "inner"))
        for path in paths:
            page = await document.items(path, start, count)
            assert page is not None
            assert (_numbers(page.items), page.total) == (expected, 9)
    empty = await document.items("left")
    assert empty is not None
    assert empty.items == []
    nowhere: tuple[str | tuple[str, ...], ...] = ("state", "nothing", ("state", "inner", "deeper"))
    for path in nowhere:
        assert await document.items(path) is None
    assert await document.items("items", checkpoint_id="nothing") is None
    assert await _document(threads, "other").items("items") is None


async def test_a_save_is_refused_if_somebody_was_faster(opened: OpenStore) -> None:
    document, other = _document(opened()), _document(opened())
    with pytest.raises(ConflictError):
        await document.save({}, if_latest="nothing")
    first = await document.save({"n": 1}, lists={"items": _items(1)}, if_latest=None)
    with pytest.raises(ConflictError):
        await other.save({"n": 1}, if_latest=None)
    await other.save({"n": 2}, lists={"items": Kept(1, _items(2))}, after=await _read(other, newest=0))
    with pytest.raises(ConflictError):
        await document.save({}, lists={"items": Kept(1)}, after=first, if_latest=first.checkpoint_id)
    assert (await _read(document)).fields == {"n": 2}


async def test_a_save_that_goes_on_from_an_earlier_version_has_it_as_its_parent(threads: ThreadStore) -> None:
    document = _document(threads)
    first = await document.save({"n": 1}, lists={"items": _items(1)})
    second = await document.save({"n": 2}, lists={"items": Kept(1, _items(2))}, after=first)
    earlier = await _read(document, first.checkpoint_id, newest=0)
    third = await document.save(
        {"n": 3}, lists={"items": Kept(1, _items(3))}, after=earlier, if_latest=second.checkpoint_id
    )
    entry = await threads.entry("t", NAMESPACE)
    assert entry is not None
    assert (entry.checkpoint_id, entry.parent_id) == (third.checkpoint_id, first.checkpoint_id)
    assert _numbers((await _read(document)).lists["items"]) == [1, 3]


async def test_a_save_with_an_id_can_be_repeated(threads: ThreadStore) -> None:
    document = _document(threads)
    lists = {"items": _items(1, 2), "left": []}
    for _ in range(2):
        version = await document.save({"n": 1}, lists=lists, checkpoint_id="one")
        assert (version.checkpoint_id, version.counts) == ("one", {"items": 2, "left": 0})
    assert len(await threads.history("t", NAMESPACE)) == 1
    for _ in range(2):
        later = await document.save(
            {"n": 2}, lists={"items": Kept(1, _items(3)), "left": Kept(0, ["a"])}, after=version, checkpoint_id="two"
        )
    await document.save({"n": 3}, lists={"items": Kept(2, _items(4)), "left": Kept(1, ["b"])}, after=later)
    found = await _read(document)
    assert (_numbers(found.lists["items"]), found.lists["left"]) == ([1, 3, 4], ["a", "b"])
    assert len(await threads.history("t", NAMESPACE)) == 3


async def test_items_that_are_gone_are_a_conflict(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        document = _document(ThreadStore.open(handle))
        version = await document.save({}, lists={"items": _items(1)})
        await document.delete()
        with pytest.raises(ConflictError, match="removed by another writer"):
            await document.save({}, lists={"items": Kept(1, _items(2))}, after=version)
        assert await document.read() is None


async def test_more_items_than_there_are_cannot_be_kept(threads: ThreadStore) -> None:
    document = _document(threads)
    with pytest.raises(ConfigurationError, match="has 0 items to keep, and not 1"):
        await document.save({}, lists={"items": Kept(1)})
    version = await document.save({}, lists={"items": _items(1)})
    for count in (2, -1):
        with pytest.raises(ConfigurationError, match=f"has 1 items to keep, and not {count}"):
            await document.save({}, lists={"items": Kept(count)}, after=version)


async def test_only_what_is_new_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[Commit] = []
    commit = CheckpointStore.commit

    async def noted(self: CheckpointStore, sent: Commit) -> Any:
        commits.append(sent)
        return await commit(self, sent)

    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        document = _document(ThreadStore.open(handle))
        fields = {"who": freeze([{"name": LARGE}]), "inner": _items(*range(99))}
        version = await document.save(fields, lists={"items": _items(*range(99))})
        monkeypatch.setattr(CheckpointStore, "commit", noted)
        for _ in range(2):
            version = await document.save(fields, lists={"items": Kept(99, _items(99))}, after=version)
            (sent,) = commits
            assert [(run.start, run.length) for run in sent.runs] == [(99, 1)]
            assert sent.values == ()
            commits.clear()
        # In the middle, with what stood behind it.
        behind = _items(50, 51, 52, *range(53, 99), 99)
        changed = [*_items(-50), *behind[1:]]
        await document.save(fields, lists={"items": Kept(50, changed, instead_of=behind)}, after=version)
        assert [(run.start, run.length) for run in commits[0].runs] == [(0, 1)]
        assert _numbers((await _read(document)).lists["items"]) == [*range(50), -50, *range(51, 100)]


async def test_a_document_that_was_read_whole_is_a_base_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And may be remembered until the next save, without its content."""
    async with sqlite_checkpointer(tmp_path / "a.db") as handle:
        store = ThreadStore.open(handle)
        document = store.document("t", NAMESPACE)
        first = await document.save({"messages": _items(*range(30))})
        document.remember(await _read(document))
        assert document.remembered("another") is None
        assert document.remembered(first.checkpoint_id) is None, "it was forgotten"
        document.remember(await _read(document))
        base = document.remembered(first.checkpoint_id)
        assert base is not None

        async def none(*_args: object) -> None:
            raise AssertionError("nothing has to be read")

        with monkeypatch.context() as patch:
            for name in ("read", "load", "read_part"):
                patch.setattr(CheckpointStore, name, none)
            await document.save({"messages": _items(*range(31))}, after=base)
        assert _numbers((await _read(document)).fields["messages"]) == list(range(31))


async def test_changes_at_the_same_time_are_all_made(opened: OpenStore) -> None:
    documents = [_document(opened()) for _ in range(2)]

    async def add(document: Document, number: int) -> None:
        async def added(version: Version | None) -> Change:
            if version is None:
                return Change({"seen": [number]}, {"items": _items(number)})
            seen = [*version.fields["seen"], number]
            return Change({"seen": seen}, {"items": Kept(version.counts["items"], _items(number))})

        await document.change(added)

    await asyncio.gather(*(add(documents[number % 2], number) for number in range(24)))
    version = await _read(_document(opened()))
    assert _numbers(version.lists["items"]) == version.fields["seen"]
    assert sorted(version.fields["seen"]) == list(range(24))


async def test_what_a_handle_remembers_may_be_older_than_what_is_there(opened: OpenStore) -> None:
    document, other = _document(opened()), _document(opened())

    async def begun(_version: Version | None) -> Change:
        return Change({"n": 1})

    assert await document.change(begun) is not None
    await other.save({"n": 2})
    seen: list[Any] = []

    async def refused(version: Version | None) -> Change:
        assert version is not None
        seen.append(version.fields["n"])
        if version.fields["n"] == 1:
            raise LookupError("too old")
        return Change({"n": 3})

    await document.change(refused)
    assert seen == [1, 2]
    await other.save({"n": 4})
    seen.clear()

    async def nothing_for_three(version: Version | None) -> Change | None:
        assert version is not None
        seen.append(version.fields["n"])
        return None

    assert await document.change(nothing_for_three) is None
    assert seen == [3, 4]


async def test_an_error_of_a_change_is_raised_if_it_is_about_what_is_there(threads: ThreadStore) -> None:
    document = _document(threads)

    async def failing(version: Version | None) -> Change | None:
        raise LookupError(version)

    with pytest.raises(LookupError):
        await document.change(failing)

    async def unkeepable(_version: Version | None) -> Change | None:
        return Change({"a": {1, 2}})

    with pytest.raises(SerializationError):
        await document.change(unkeepable)
    assert await document.read() is None


async def test_an_outage_is_not_tried_again(threads: ThreadStore) -> None:
    document, calls = _document(threads), 0

    async def begun(_version: Version | None) -> Change:
        return Change({"n": 1})

    await document.change(begun)

    async def down(_version: Version | None) -> Change | None:
        nonlocal calls
        calls += 1
        raise BackendUnavailableError("down")

    with pytest.raises(BackendUnavailableError):
        await document.change(down)
    assert calls == 1


async def test_a_change_does_not_see_what_was_changed_in_place_since(threads: ThreadStore) -> None:
    document, state, items = _document(threads), {"n": 1, "inner": [1]}, _items(1)

    async def saved(version: Version | None) -> Change:
        if version is None:
            return Change({"state": state}, {"items": items})
        return Change(version.fields, {"items": Kept(version.counts["items"], _items(2))})

    await document.change(saved)
    state["n"] = 2
    state["inner"] = "gone"
    items[0]["number"] = 99
    await document.change(saved)
    version = await _read(document)
    assert version.fields == {"state": {"n": 1, "inner": [1]}}
    assert _numbers(version.lists["items"]) == [1, 2]


async def test_deleting_leaves_nothing(threads: ThreadStore) -> None:
    document = _document(threads)
    assert not await document.delete()
    await document.save({"n": 1})
    assert await document.delete()
    assert await document.read() is None
    assert await threads.list_threads() == []


@pytest.mark.parametrize("thread_id", ["", "x" * 256, "\ud800", 7, None, ["t"]])
async def test_what_is_no_id_is_refused(threads: ThreadStore, thread_id: Any) -> None:
    for make in (threads.document, threads.log):
        with pytest.raises(InvalidIdError):
            make(thread_id, NAMESPACE)
    with pytest.raises(InvalidIdError):
        await _document(threads).save({}, checkpoint_id=7)  # type: ignore[arg-type]


async def test_many_versions_are_read_in_order_without_those_that_are_gone(threads: ThreadStore) -> None:
    document = _document(threads)
    ids = [(await document.save({"n": n}, lists={"items": _items(n)})).checkpoint_id for n in range(12)]
    await threads.delete("t", NAMESPACE, ids[3])
    versions = await document.read_many([*reversed(ids), "none"])
    assert [version.fields["n"] for version in versions] == [n for n in reversed(range(12)) if n != 3]
    assert [_numbers(version.lists["items"]) for version in versions[:2]] == [[11], [10]]
    assert await document.read_many([]) == []


async def test_a_change_that_replaces_everything_needs_no_content(opened: OpenStore) -> None:
    document = opened().document("t", NAMESPACE)

    async def counted(latest: Version | None) -> Change:
        assert latest is None or latest.fields == {}
        number = 0 if latest is None else int(latest.checkpoint_id) + 1
        return Change({"n": number, "big": LARGE}, checkpoint_id=str(number))

    async def titled(latest: Version | None) -> Change:
        assert latest is not None
        return Change({**latest.fields, "title": "Tea"}, checkpoint_id="100")

    await asyncio.gather(
        *(opened().document("t", NAMESPACE).change(counted, content=False) for _ in range(5)),
        document.change(counted, content=False),
    )
    entries = await opened().history("t", NAMESPACE)
    assert [entry.checkpoint_id for entry in entries] == ["5", "4", "3", "2", "1", "0"]
    await document.change(titled)
    assert (await _read(document)).fields == {"n": 5, "big": LARGE, "title": "Tea"}
    saved = await document.change(counted, content=False)
    assert saved is not None
    assert saved.checkpoint_id == "101"
