"""A number in a stored row, or from a caller, bounds neither a loop nor the memory that is taken."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file.schema import CHECKSUM_KEY
from locus.memory.backends.objects.schema import split_texts
from locus.memory.backends.sql.flavour import LARGEST, packed, unpacked
from locus.memory.item_log import logged_change
from locus.memory.model.codec import decode, encode
from locus.memory.model.manifest import MOST, decode_manifest
from locus.memory.model.records import Entry
from locus.memory.model.retention import outlived


def _entry(seq: int, parent: int | None) -> Entry:
    name = None if parent is None else f"c{parent}"
    return Entry("t", "n", f"c{seq}", name, seq, f"r{seq}", datetime(2026, 1, 1, tzinfo=UTC), "{}")


def test_a_vacuum_ends_where_parents_lead_in_a_circle() -> None:
    circle = [_entry(1, 3), _entry(2, 1), _entry(3, 2)]
    assert outlived(circle, None, MOST) == set()
    assert outlived(circle, None, 2) == {1}


def test_a_vacuum_keeps_the_last_of_every_line() -> None:
    entries = [_entry(1, None), _entry(2, 1), _entry(3, 2), _entry(4, 3), _entry(5, 2), _entry(6, 5)]
    assert outlived(entries, None, 1) == {1, 2, 3, 5}
    assert outlived(entries, None, 2) == {1, 2}
    assert outlived(entries, None, 3) == {1}
    assert outlived(entries, None, 4) == set()
    forked = [
        *[_entry(seq, seq - 1 or None) for seq in range(1, 2_001)],
        *[_entry(seq, 2_000) for seq in range(2_001, 4_001)],
    ]
    assert outlived(forked, None, MOST) == set()


@pytest.mark.parametrize(
    "extent",
    [
        ["b", -1, 0, 1], ["b", 0, -5, 1], ["b", 0, 0, -1], ["b", MOST + 1, 0, 1], ["b", 0, 10**300, 1],
        ["b", 1.5, 0, 1], ["b", True, 0, 1], ["b", "1", 0, 1], [7, 1, 0, 1], ["b", 1, 0], "b",
    ],
)  # fmt: skip
def test_an_extent_has_numbers_that_can_be(extent: Any) -> None:
    with pytest.raises(CorruptCheckpointError, match="manifest"):
        decode_manifest(encode([[["messages"], [extent]]]))


def test_a_log_of_items_believes_no_other_numbers() -> None:
    def metadata(*extent: Any) -> str:
        return encode({"log": encode(["add", [extent]])})

    assert logged_change(metadata("b", 1, 0, 2)) == ("add", 2, (("b", 1, 0, 2),), None)
    for extent in (("b", 1, 0, -2), ("b", MOST + 1, 0, 2), ("b", 1, "0", 2), (None, 1, 0, 2)):
        assert logged_change(metadata(*extent)) is None


def test_the_largest_numbers_of_an_extent_are_read() -> None:
    assert decode_manifest(encode([[["m"], [["b", MOST, 0, MOST]]]]))[("m",)][0] == ("b", MOST, 0, MOST)


@pytest.mark.parametrize("count", [-1, -5, "1", None, 1.0])
def test_merged_objects_are_read_forwards(count: object) -> None:
    body = encode({"n": 1, "lines": count}).encode() + b"\n[]\n[]"
    with pytest.raises(CorruptCheckpointError, match="damaged"):
        list(islice(split_texts(body), 10))


def test_a_packed_value_becomes_no_larger_than_what_is_packed() -> None:
    with pytest.raises(CorruptCheckpointError, match="too large"):
        unpacked(zlib.compress(b"x" * (LARGEST * 4 + 1), 9))
    with pytest.raises(CorruptCheckpointError, match="cut off"):
        unpacked(zlib.compress(b"x" * 5_000)[:-6])
    for text in ("x" * LARGEST, "\U0001f600" * LARGEST):
        data = packed(text)
        assert data is not None
        assert unpacked(data) == text


@pytest.mark.parametrize("value", [-(10**12), 10**12, "1"])
@pytest.mark.parametrize("name", ["bytes", "prev"])
async def test_a_log_is_read_backwards_within_the_file(tmp_path: Path, name: str, value: object) -> None:
    async with FileCheckpointer(tmp_path) as checkpointer:
        state = AgentState(messages=(Message.user("one"),))
        for number in range(3):
            await checkpointer.save(state.with_message(Message.user(f"{number}")), "t", f"c{number}")
    (path,) = (one for one in tmp_path.rglob("*") if one.is_file() and b'"seal":"checkpoint"' in one.read_bytes())
    *lines, last = path.read_bytes().splitlines(keepends=True)
    facts = {**decode(last), name: value}
    del facts["sum"]
    line = encode(facts)[:-1].encode()
    path.write_bytes(b"".join(lines) + line + CHECKSUM_KEY + f"{crc32(line)}}}\n".encode())
    async with FileCheckpointer(tmp_path) as checkpointer:
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.load("t", "c0")
