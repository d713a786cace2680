"""Changed seeds: bytes taken out, put in, doubled, swapped and joined, and words that parsers stumble over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

WORDS: Final = [
    b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"NaN", b"-Infinity", b"1e999", b"-0.0", b"null",
    b"true", b"{}", b"[]", b'""', b"[" * 200, b"]" * 200, b'{"a":' * 200, b"9" * 20, b"9" * 5_000, b"-1", b"1e5",
    b"0.1", b"2" * 16,
    b'"$type":', b'{"$locus:int":"', b'{"$type":"dict","items":[[', b"..", b"%00", b"%2F", b"@", b"#", b"~", b":", b"?",
    b"\n", b"\r\n", b",", b"|", "\u202e".encode(), "é".encode(), "\U0001f600".encode(), b"2026-01-01T00:00:00",
    b"9999-12-31T23:59:59+23:59", b"0001-01-01T00:00:00-23:59", b"inf", b"A" * 300, b"18446744073709551616",
]  # fmt: skip


def changed(chance: random.Random, known: Sequence[bytes]) -> bytes:
    """One of the known cases, changed a few times."""
    data = bytearray(chance.choice(known))
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at = chance.randrange(len(data) + 1)
        until = min(len(data), at + chance.choice((1, 1, 2, 8, 64)))
        match chance.randrange(7):
            case 0:
                del data[at:until]
            case 1:
                data[at:until] = chance.choice(WORDS)
            case 2:
                data[at:at] = chance.choice(WORDS)
            case 3:
                data[at:at] = data[at:until] * chance.choice((1, 2, 50))
            case 4 if data:
                data[min(at, len(data) - 1)] = chance.randrange(256)
            case 5:
                other = chance.choice(known)
                cut = chance.randrange(len(other) + 1)
                data[at:until] = other[cut : cut + chance.choice((1, 8, 64, 4_096))]
            case _:
                cut = chance.randrange(len(data) + 1)
                low, high = sorted((at, cut))
                data[low:high] = data[low:high][::-1] if chance.random() < 0.2 else data[low:high].swapcase()
    return bytes(data)
