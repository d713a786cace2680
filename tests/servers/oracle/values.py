"""Oracle's own forms of numbers, dates and times, to and from the texts that PostgreSQL reads and writes.

The forms are those of the Oracle Call Interface Programmer's Guide, "Data Types": "NUMBER", "DATE" and the datetime
types that follow it.
"""

from __future__ import annotations

import struct
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache

NUL = "\0"
ESCAPE = "\U0010fffe"
"""PostgreSQL's texts can't hold U+0000, and Oracle's can: it is kept as this character and a nought."""


def stored(text: str) -> str:
    return text.replace(ESCAPE, ESCAPE + "1").replace(NUL, ESCAPE + "0") if NUL in text or ESCAPE in text else text


def restored(text: str) -> str:
    return text.replace(ESCAPE + "0", NUL).replace(ESCAPE + "1", ESCAPE) if ESCAPE in text else text


@lru_cache(maxsize=4096)
def number_to_bytes(text: str) -> bytes:
    """Digits by pairs in base 100, after an exponent; those of negative numbers are counted down."""
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    whole = "".join(map(str, digits)).lstrip("0")
    if exponent % 2:
        whole, exponent = whole + "0", exponent - 1
    whole = whole.zfill(len(whole) + len(whole) % 2)
    pairs = [int(whole[start : start + 2]) for start in range(0, len(whole), 2)]
    while pairs and pairs[-1] == 0:
        pairs.pop()
        exponent += 2
    if not pairs:
        return b"\x80"
    power = len(pairs) + exponent // 2 + 192
    if sign:
        return bytes([~power & 0xFF, *(101 - pair for pair in pairs), *([102] if len(pairs) < 20 else [])])
    return bytes([power, *(pair + 1 for pair in pairs)])


def bytes_to_number(data: bytes) -> str:
    if data == b"\x80":
        return "0"
    negative = not data[0] & 0x80
    if negative:
        power = (~data[0] & 0xFF) - 192
        pairs = [101 - byte for byte in data[1:] if byte != 102]
    else:
        power = data[0] - 192
        pairs = [byte - 1 for byte in data[1:]]
    digits = "".join(f"{pair:02}" for pair in pairs)
    point = power * 2
    if point <= 0:
        text = "0." + "0" * -point + digits
    elif point >= len(digits):
        text = digits.ljust(point, "0")
    else:
        text = f"{digits[:point]}.{digits[point:]}"
    return ("-" if negative else "") + text


def time_to_bytes(text: str, kind: str) -> bytes:
    """`kind` is "date", "timestamp" or "timestamptz"; PostgreSQL's ISO form comes in."""
    moment = datetime.fromisoformat(text)
    offset = moment.utcoffset() or timedelta()
    clock = moment.replace(tzinfo=None) - offset
    head = bytes(
        [
            clock.year // 100 + 100, clock.year % 100 + 100, clock.month, clock.day,
            clock.hour + 1, clock.minute + 1, clock.second + 1,
        ]
    )  # fmt: skip
    if kind == "date":
        return head
    head += (clock.microsecond * 1000).to_bytes(4, "big")
    if kind == "timestamp":
        return head
    minutes = int(offset.total_seconds()) // 60
    sign = -1 if minutes < 0 else 1
    return head + bytes([sign * (abs(minutes) // 60) + 20, sign * (abs(minutes) % 60) + 60])


def bytes_to_time(data: bytes) -> str:
    year = (data[0] - 100) * 100 + data[1] - 100
    moment = datetime(year, data[2], data[3], data[4] - 1, data[5] - 1, data[6] - 1)  # noqa: DTZ001
    if len(data) > 7:
        moment += timedelta(microseconds=int.from_bytes(data[7:11], "big") // 1000)
    text = moment.isoformat(" ")
    return f"{text}+00" if len(data) > 11 else text


def double_to_bytes(value: float) -> bytes:
    bits = struct.pack(">d", value)
    return bytes([bits[0] | 0x80, *bits[1:]]) if bits[0] < 0x80 else bytes(byte ^ 0xFF for byte in bits)


def bytes_to_double(data: bytes) -> float:
    whole = bytes([data[0] & 0x7F, *data[1:]]) if data[0] & 0x80 else bytes(byte ^ 0xFF for byte in data)
    found: float = struct.unpack(">d" if len(data) == 8 else ">f", whole)[0]
    return found
