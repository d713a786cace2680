"""Encoded documents: a text is asked for only if it is written, digests are shared, items are decoded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from locus.errors import CapabilityError, ConflictError, CorruptCheckpointError, InvalidIdError
from locus.memory.model.records import Entry
from locus.threads import (
    DecodedList,
    EncodedDocument,
    EncodedList,
    EncodedVersion,
    ItemDecoder,
    Path,
    ReadVersion,
    ThreadStore,
    fingerprint,
    is_small,
)
from locus.threads.json import encode
from tests.threads.stores import NAMESPACE, OpenStore, opened, threads

__all__ = ["opened", "threads"]

LARGE = "x" * 2_000
STATE = ("state", "inner")


@dataclass
class Writer:
    """Encodes lists of numbers, and notes which items it is asked for."""

    sort_keys: bool
    texts: list[int] = field(default_factory=list)

    def encoded(self, numbers: Sequence[int]) -> EncodedList:
        def text(index: int) -> str:
            self.texts.append(numbers[index])
            return self._text(numbers[index])

        return EncodedList(tuple(fingerprint(self._text(number)) for number in numbers), text)

    def _text(self, number: int) -> str:
        return encode({"text": f"item {number}", "number": number}, sort_keys=self.sort_keys)

    def written(self) -> list[int]:
        """What had to be written since the last call."""
        texts, self.texts = self.texts, []
        return texts


def _document(store: ThreadStore, thread_id: str = "t") -> EncodedDocument:
    return store.encoded_document(thread_id, NAMESPACE)


async def _writer(store: ThreadStore) -> Writer:
    return Writer(await store.sorts_keys())


async def _read(document: EncodedDocument, checkpoint_id: str | None = None) -> ReadVersion:
    version = await document.read(checkpoint_id)
    assert version is not None
    return version


def _numbers(items: Sequence[Any]) -> list[int]:
    return [item["number"] for item in items]


async def test_what_is_saved_comes_back(opened: OpenStore) -> None:
    store = opened()
    document, writer = _document(store), await _writer(store)
    assert await document.read() is None
    inner, names = {"inner": writer.encoded([1, 2]), "big": LARGE}, ["short"]
    saved = await document.save(
        {"items": writer.encoded(range(9)), "state": inner, "names": names}, head={"n": 1}, metadata={"k": 1}
    )
    version = await _read(_document(opened()))
    assert version.is_same(saved)
    assert (version.checkpoint_id, version.entry.checkpoint_id, version.is_latest) == (*[saved.checkpoint_id] * 2, True)
    assert version.entry.metadata == '{"k":1}'
    content = version.content()
    assert (content["n"], content["names"], content["state"]["big"]) == (1, names, LARGE)
    assert _numbers(content["items"]) == list(range(9))
    assert _numbers(content["state"]["inner"]) == [1, 2]
    assert content == await _whole(opened())
    if await store.keeps_lists():
        assert sorted(version.paths) == [("items",), STATE]
        assert version.fields()["items"] == []
        assert version.digests() == saved.digests() == _digests(writer, {("items",): range(9), STATE: [1, 2]})


async def _whole(store: ThreadStore) -> dict[str, Any]:
    """The content as a plain document reads it."""
    version = await store.document("t", NAMESPACE, ("items",)).read()
    assert version is not None
    return {**version.fields, **version.lists}


def _digests(writer: Writer, lists: dict[Path, Sequence[int]]) -> dict[Path, tuple[bytes, ...]]:
    return {path: writer.encoded(numbers).digests for path, numbers in lists.items()}


@pytest.mark.parametrize("goes_on_from", ["saved", "read", "read by another handle", "nothing"])
async def test_only_the_texts_of_new_items_are_asked_for(opened: OpenStore, goes_on_from: str) -> None:
    store = opened()
    writer = await _writer(store)
    version: EncodedVersion | None = await _document(store).save({"items": writer.encoded(range(50))})
    assert writer.written() == list(range(50))
    for count in range(51, 60):
        if goes_on_from == "read by another handle":
            store = opened()
        if goes_on_from == "nothing":
            store, version = opened(), None
        elif goes_on_from != "saved":
            version = await _read(_document(store))
        version = await _document(store).save({"items": writer.encoded(range(count))}, after=version)
        assert writer.written() == ([count - 1] if await store.keeps_lists() else list(range(count)))
    assert _numbers((await _read(_document(opened()))).content()["items"]) == list(range(59))


async def test_a_list_may_change_anywhere(opened: OpenStore) -> None:
    store = opened()
    document, writer = _document(store), await _writer(store)
    version = await document.save({"items": writer.encoded(range(40))})
    writer.written()
    courses: tuple[list[int], ...] = (
        [*range(20), 77, *range(21, 40)],
        [*range(10, 40)],
        [*range(10, 20)],
        [],
        [5],
        [*range(40)],
    )
    for numbers in courses:
        version = await document.save({"items": writer.encoded(numbers)}, after=version)
        found = await _read(_document(opened()))
        assert _numbers(found.content()["items"]) == numbers
        assert found.digests().get(("items",), ()) == (
            writer.encoded(numbers).digests if await store.keeps_lists() else ()
        )
    assert _numbers((await _read(document)).content()["items"]) == list(range(40))


async def test_digests_are_shared_with_an_older_version(threads: ThreadStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from locus.memory.model import payloads

    if not await threads.keeps_lists():
        pytest.skip("it keeps no lists")
    document, writer = _document(threads), await _writer(threads)
    await document.save({"items": writer.encoded(range(50))})
    older = await _read(document)
    assert len(older.digests()["items",]) == 50
    courses = {"more": [*range(53)], "fewer": [*range(30)], "another": [7], "changed": [*range(20), 99, *range(21, 50)]}
    for course, numbers in courses.items():
        await document.save({"items": writer.encoded(numbers)}, after=older)
        version = await _read(document)
        digested: list[object] = []

        def counted(item: Any, *path: Any, sort_keys: bool, _digested: list[object] = digested) -> str:
            _digested.append(item)
            return encode(item, *path, sort_keys=sort_keys)

        with monkeypatch.context() as patch:
            patch.setattr(payloads, "encode", counted)
            assert version.digests(older)["items",] == writer.encoded(numbers).digests
            assert version.digests() == version.digests(older)
        assert len(digested) == {"more": 3, "fewer": 0, "another": 1, "changed": 30}[course], course


async def test_items_that_versions_share_are_decoded_once(threads: ThreadStore) -> None:
    document, writer = _document(threads), await _writer(threads)
    version = None
    for count in range(1, 21):
        version = await document.save({"items": writer.encoded(range(count)), "big": LARGE}, after=version)
    fork = await _read(document, (await threads.history("t", NAMESPACE))[9].checkpoint_id)
    await document.save({"items": writer.encoded([*range(11), 77]), "big": LARGE}, after=fork)
    decoded: list[int] = []

    def decode_items(items: list[Any], path: Path) -> list[Any]:
        assert path == ("items",)
        decoded.extend(_numbers(items))
        return [f"n{number}" for number in _numbers(items)]

    found = await threads.read_versions(await threads.history("t", NAMESPACE))
    assert [one.version.entry for one in found] == await threads.history("t", NAMESPACE)
    decoder = ItemDecoder(decode_items)
    contents = [one.version.content(decoder) for one in found]
    if await threads.keeps_lists():
        assert sorted(decoded) == [*range(20), 77]
        assert {type(content["items"]) for content in contents} == {DecodedList}
        assert contents[0]["items"] == [f"n{number}" for number in [*range(11), 77]]
        assert [content["items"] for content in contents[1:]] == [
            [f"n{number}" for number in range(count)] for count in range(20, 0, -1)
        ]
    else:
        assert _numbers(contents[0]["items"]) == [*range(11), 77]
    assert {content["big"] for content in contents} == {LARGE}


async def test_what_is_left_out_is_not_decoded(threads: ThreadStore) -> None:
    document, writer = _document(threads), await _writer(threads)
    inner = {"inner": writer.encoded([1]), "other": writer.encoded([2]), "big": LARGE}
    await document.save({"items": writer.encoded([0]), "state": inner})
    version = await _read(document)
    asked: list[Path] = []

    def decode_items(items: list[Any], path: Path) -> list[Any]:
        asked.append(path)
        return items

    for decoder in (ItemDecoder(decode_items), None):
        content = version.content(decoder, lambda path: path != STATE)
        assert _numbers(content["state"]["inner"]) == [1]
        if await threads.keeps_lists():
            assert asked == [STATE]
            assert (content["items"], content["state"]["other"], content["state"]["big"]) == ([], [], None)


async def test_a_small_list_is_given_as_it_is(threads: ThreadStore) -> None:
    assert is_small([1, "a", None, 1.5, True])
    assert not is_small([{}])
    assert not is_small(range(65))
    document = _document(threads)
    await document.save({"names": ["a", "b"]})
    version = await _read(document)
    assert version.paths == []
    assert version.digests() == {}
    assert version.content() == {"names": ["a", "b"]}


async def test_a_save_says_what_it_follows_and_when_it_was_made(threads: ThreadStore) -> None:
    document, writer = _document(threads), await _writer(threads)
    first = await document.save({"items": writer.encoded([1])}, checkpoint_id="first", if_latest=None)
    with pytest.raises(ConflictError):
        await document.save({"items": writer.encoded([2])}, if_latest="nothing")
    made = (await _read(document)).entry.created_at.replace(year=2020)
    await document.save({"items": writer.encoded([2])}, after=first, created_at=made)
    await document.save({}, parent="unheard of", parent_as_named=True)
    entries = await threads.history("t", NAMESPACE)
    assert [entry.parent_id for entry in entries] == ["unheard of", "first", None]
    assert entries[1].created_at == made
    assert (await _read(document)).is_latest
    assert (await _read(document, "first")).is_latest is not await threads.keeps_lists()


async def test_what_took_the_place_of_a_checkpoint_is_another_version(threads: ThreadStore) -> None:
    document = _document(threads)
    first = await document.save({"n": 1}, checkpoint_id="c")
    assert (await _read(document)).is_same(first)
    again = await document.save({"n": 2}, checkpoint_id="c")
    assert not again.is_same(first)
    assert (await _read(document)).is_same(again)


async def test_a_copy_has_the_items_of_its_own(threads: ThreadStore) -> None:
    """The parts of a copied thread have the same names, and go on with other items."""
    document, writer = _document(threads), await _writer(threads)
    version = await document.save({"items": writer.encoded([1])})
    if not threads.capabilities.branching:
        with pytest.raises(CapabilityError):
            await threads.copy("t", "u")
        return
    await threads.copy("t", "u")
    await document.save({"items": writer.encoded([1, 2])}, after=version)
    other = _document(threads, "u")
    await other.save({"items": writer.encoded([1, 3])}, after=await _read(other))
    entries = [*await threads.history("t", NAMESPACE), *await threads.history("u", NAMESPACE)]
    found = await threads.read_versions(entries)
    assert [_numbers(one.version.content()["items"]) for one in found] == [[1, 2], [1], [1, 3], [1]]


async def test_versions_are_read_together_with_their_pending_writes(threads: ThreadStore) -> None:
    document, writer = _document(threads), await _writer(threads)
    version = None
    for count in range(1, 31):
        version = await document.save({"items": writer.encoded(range(count))}, after=version)
        if threads.keeps_writes:
            await threads.put_writes("t", NAMESPACE, version.checkpoint_id, "task", [("channel", count)])
    entries = await threads.history("t", NAMESPACE)
    gone = Entry("t", NAMESPACE, "gone", None, 7, "rev", entries[0].created_at, "{}")
    for chosen in (entries[:7], entries[::9], [entries[-1], gone, entries[3]], [], [gone]):
        found = await threads.read_versions(chosen)
        assert [one.version.entry for one in found] == [entry for entry in chosen if entry is not gone]
        for one in found:
            items = one.version.content()["items"]
            assert _numbers(items) == list(range(len(items)))
            assert [write.value for write in one.writes] == ([str(len(items))] if threads.keeps_writes else [])
    single = await document.read_with_writes(entries[4].checkpoint_id)
    (same,) = await threads.read_versions([entries[4]])
    assert single is not None
    assert (single.version.content(), single.writes) == (same.version.content(), same.writes)
    assert await document.read_with_writes("nothing") is None


async def test_a_version_tells_how_much_memory_it_takes(threads: ThreadStore) -> None:
    document, writer = _document(threads), await _writer(threads)
    small = await document.save({"items": writer.encoded([1])})
    large = await document.save({"items": writer.encoded(range(500))})
    if await threads.keeps_lists():
        assert 100 < small.size < large.size / 20
    read = await _read(document)
    undigested = read.size
    assert undigested > 10_000
    assert read.digests() == (large.digests() if await threads.keeps_lists() else {})
    assert read.size >= undigested


async def test_whatever_is_stored_there_can_be_looked_at(threads: ThreadStore) -> None:
    await threads.document("t", NAMESPACE, ("items",)).save({"n": 1}, lists={"items": [{"number": 1}]})
    version = await _read(_document(threads))
    assert version.fields()["n"] == 1
    assert version.content(ItemDecoder(lambda items, _: items)) == {"n": 1, "items": [{"number": 1}]}


def test_what_is_no_document_is_damage() -> None:
    from datetime import UTC, datetime

    from locus.memory.model.records import Stored

    entry = Entry("t", NAMESPACE, "c", None, 1, "r", datetime.now(UTC), "{}")
    decoder = ItemDecoder(lambda items, _: items)
    for head, manifest in (("[1]", "[]"), ("{}", '[[["a"],[["b",0,0,1]]]]'), ('{"a":[]}', '[[["a"],[["b",0,0,1]]]]')):
        version = ReadVersion(Stored(entry, head, manifest))
        for chosen in (None, decoder):
            with pytest.raises(CorruptCheckpointError):
                version.content(chosen)


async def test_ids_are_checked(threads: ThreadStore) -> None:
    for thread_id in ("", 7, "x" * 2_000):
        with pytest.raises(InvalidIdError):
            threads.encoded_document(thread_id, NAMESPACE)  # type: ignore[arg-type]
    assert threads.encoded_document("t", NAMESPACE) is threads.encoded_document("t", NAMESPACE)
