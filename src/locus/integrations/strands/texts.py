"""Takes a snapshot of Strands apart, and puts it together again, byte for byte.

A snapshot is JSON with all messages of an agent in it. What stands before and after the list of messages is kept as
text, and each message as an item of its own, so that the next snapshot writes only what is new:

    {"at": "2026-01-01T00:00:00+00:00",
     "before": ['{"scope": …, "created_at": "', '", "data": {"messages": ['],
     "items": [{"message": {"role": "user", …}, "keys": [[1, 0], {}]}, …],
     "after": ['], "state": …}'],
     "length": 12345}

Databases give the keys of an object back in an order of their own, so `keys` says the order that they had: numbers of
the sorted keys, and the same for the objects inside. An item whose value would not be written as the same text again is
kept as that text: `{"text": "…"}`. `before` and `after` are lists, because a list that has not changed is not written
again. So the time, which is another one in each snapshot, stands beside them; `at` is missing where there is none. What
is no snapshot is kept whole, as `{"text": …}` or `{"base64": …}`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from locus.errors import CorruptCheckpointError, SerializationError
from locus.threads.json import encode

_LIST: Final = b'"messages": ['
_BETWEEN: Final = ", "
_TIME: Final = re.compile(r'(?<="created_at": ")[^"\\]{1,40}(?=")')
_AT, _BEFORE, _AFTER = "at", "before", "after"
_write = json.JSONEncoder(ensure_ascii=False).encode
"""As Strands writes a snapshot."""
_decoder = json.JSONDecoder()
_CONTAINERS: Final = frozenset({dict, list})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot taken apart. `body` is the text of all its items, between the texts `before` and `after`."""

    before: str
    after: str
    body: bytes
    known: int
    """How many items are those of the snapshot before, and are not here."""
    fresh: Sequence[str]
    """The texts of the others, as they are stored."""


def taken_apart(data: bytes, body: bytes = b"", count: int = 0, *, sort_keys: bool = False) -> Snapshot | None:
    """Take a snapshot apart; None if the bytes are none. If it grew, its first `count` items are not parsed again."""
    at = data.find(_LIST)
    if at < 0:
        return None
    start = at + len(_LIST)
    try:
        before = data[:start].decode()
        continued = count > 0 and data.startswith(body, start)
        items_and_rest = _items(data[start + len(body) :].decode(), sort_keys, first=False) if continued else None
        if items_and_rest is None:
            continued = False
            items_and_rest = _items(data[start:].decode(), sort_keys, first=True)
    except (ValueError, RecursionError):  # no UTF-8, no JSON, or nested too deeply
        return None
    if items_and_rest is None:
        return None
    items, after = items_and_rest
    return Snapshot(before, after, data[start : len(data) - len(after.encode())], count if continued else 0, items)


def _items(text: str, sort_keys: bool, *, first: bool) -> tuple[list[str], str] | None:
    """The items up to the end of a list, and the text after it; None if the text is formatted in another way."""
    items: list[str] = []
    at = 0
    while not text.startswith("]", at):
        if not first:
            if not text.startswith(_BETWEEN, at):
                return None
            at += len(_BETWEEN)
        value, end = _decoder.raw_decode(text, at)
        items.append(_item(value, text[at:end], sort_keys))
        at, first = end, False
    return items, text[at:]


def _item(value: Any, text: str, sort_keys: bool) -> str:
    try:
        if _write(value) == text:
            keys = _key_order(value)
            return encode({"message": value} if keys is None else {"message": value, "keys": keys}, sort_keys=sort_keys)
    except (SerializationError, ValueError, RecursionError):
        pass  # what a database does not keep, such as NaN
    return encode({"text": text})


def around(snapshot: Snapshot) -> dict[str, Any]:
    """The fields for the text before and after the items of a snapshot."""
    before, after = snapshot.before, snapshot.after
    time = _TIME.search(before)
    if time is None:
        return {_BEFORE: [before], _AFTER: [after]}
    return {_AT: time[0], _BEFORE: [before[: time.start()], before[time.end() :]], _AFTER: [after]}


def put_together(payload: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The bytes of a stored value, and those of its items alone."""
    try:
        if "base64" in payload:
            return b64decode(payload["base64"], validate=True), b""
        if "text" in payload:
            return payload["text"].encode(), b""
        body = _BETWEEN.join(map(_text, payload["items"])).encode()
        (after,) = payload[_AFTER]
        before = payload.get(_AT, "").join(payload[_BEFORE])
        data = b"".join((before.encode(), body, after.encode()))
        if len(data) == payload["length"]:
            return data, body
    except (AttributeError, Base64Error, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"a stored value of Strands cannot be read ({type(error).__name__})") from None
    raise CorruptCheckpointError("a stored value of Strands has another length than it was written with")


def message_of(item: Any) -> Any:
    """The message in a stored item."""
    try:
        return json.loads(_text(item))
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"a stored message of Strands cannot be read ({type(error).__name__})") from None


def whole(data: bytes) -> dict[str, Any]:
    """The payload for bytes that are no snapshot."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _text(item: Any) -> str:
    if "text" in item:
        text = item["text"]
        if not isinstance(text, str):
            raise TypeError("an item that is no text")
        return text
    return _write(_ordered(item["message"], item.get("keys")))


def _key_order(value: Any) -> Any:
    """The order of an object's keys, and of nested ones; None if all are sorted."""
    if isinstance(value, dict):
        given = list(value)
        names = sorted(given)
        inner = {
            name: order
            for name, item in value.items()
            if type(item) in _CONTAINERS and (order := _key_order(item)) is not None
        }
        if given == names:
            return [None, inner] if inner else None
        places = {name: number for number, name in enumerate(names)}
        return [[places[name] for name in given], inner]
    if isinstance(value, list):
        inside = {
            str(at): order
            for at, item in enumerate(value)
            if type(item) in _CONTAINERS and (order := _key_order(item)) is not None
        }
        return inside or None
    return None


def _ordered(value: Any, order: Any) -> Any:
    """A value whose keys are put into their original order."""
    if isinstance(value, dict):
        names = sorted(value)
        places, inner = (None, {}) if order is None else order
        if places is not None:
            if sorted(places) != list(range(len(names))):
                raise ValueError("an order of other keys")
            names = [names[place] for place in places]
        return {name: _ordered(value[name], inner.get(name)) for name in names}
    if isinstance(value, list):
        inside = order or {}
        return [_ordered(item, inside.get(str(at))) for at, item in enumerate(value)]
    return value
