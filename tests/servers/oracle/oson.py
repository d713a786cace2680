"""Oracle's binary form of JSON, as the driver writes it, in a time that grows with its size.

The driver's own encoder grows its buffer for each object and each list, and takes seconds for a few hundred of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.servers.oracle.values import number_to_bytes

LONGEST_NAME = 255
"""What is longer is written in another way, which is left to the driver."""
_FLAGS = 0x2106
_WIDE_IDS, _WIDER_IDS, _WIDE_NAMES, _WIDE_TREE = 0x0400, 0x0008, 0x0800, 0x1000
_OBJECT, _ARRAY = 0xA4, 0xE0
_PLAIN = {None: b"\x30", True: b"\x31", False: b"\x32"}


def encoded(value: dict[str, Any] | list[Any]) -> bytes | None:
    """The image of an object or a list; None if one of its keys is too long."""
    segment, offsets = bytearray(), dict[bytes, int]()
    for name in dict.fromkeys(_names(value)):
        data = name.encode()
        if len(data) > LONGEST_NAME:
            return None
        offsets[data] = len(segment)
        segment += bytes([len(data)]) + data
    names = sorted(offsets, key=lambda name: (_hash(name), len(name), name))
    width = 1 if len(names) < 256 else 2 if len(names) < 65_536 else 4
    tree = bytearray()
    _write(tree, value, {name.decode(): number.to_bytes(width, "big") for number, name in enumerate(names, 1)})
    name_width, tree_width = (2 if len(part) < 65_536 else 4 for part in (segment, tree))
    flags = _FLAGS | {1: 0, 2: _WIDE_IDS, 4: _WIDER_IDS}[width]
    flags |= (_WIDE_NAMES if name_width == 4 else 0) | (_WIDE_TREE if tree_width == 4 else 0)
    return b"".join(
        [
            b"\xffJZ\x01",
            flags.to_bytes(2, "big"),
            len(names).to_bytes(width, "big"),
            len(segment).to_bytes(name_width, "big"),
            len(tree).to_bytes(tree_width, "big"),
            b"\0\0",
            bytes(_hash(name) for name in names),
            *(offsets[name].to_bytes(name_width, "big") for name in names),
            segment,
            tree,
        ]
    )


def _names(value: Any) -> Iterator[str]:
    """In the order in which they are met."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _hash(name: bytes) -> int:
    """The last byte of FNV-1a."""
    found = 0x811C9DC5
    for byte in name:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found & 0xFF


def _write(tree: bytearray, value: Any, ids: dict[str, bytes]) -> None:
    if isinstance(value, dict | list):
        _write_container(tree, value, ids)
    elif isinstance(value, str):
        data = value.encode()
        width = 1 if len(data) < 256 else 2 if len(data) < 65_536 else 4
        tree += {1: b"\x33", 2: b"\x37", 4: b"\x38"}[width] + len(data).to_bytes(width, "big") + data
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        data = number_to_bytes(str(value))
        tree += b"\x34" + bytes([len(data)]) + data
    else:
        tree += _PLAIN[value]


def _write_container(tree: bytearray, value: dict[str, Any] | list[Any], ids: dict[str, bytes]) -> None:
    count = len(value)
    width, bits = (1, 0) if count < 256 else (2, 0x08) if count < 65_536 else (4, 0x10)
    tree += bytes([(_OBJECT if isinstance(value, dict) else _ARRAY) | bits]) + count.to_bytes(width, "big")
    if isinstance(value, dict):
        tree += b"".join(ids[name] for name in value)
    place = len(tree)
    tree += bytes(4 * count)
    for item in value.values() if isinstance(value, dict) else value:
        tree[place : place + 4] = len(tree).to_bytes(4, "big")
        place += 4
        _write(tree, item, ids)
