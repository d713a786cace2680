"""JSON as it is stored: texts, tags of databases with a JSON type of their own, packed values, manifests.

The first byte chooses what reads the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from locus.errors import SerializationError
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.oracle.schema import OracleFlavour
from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.flavour import LARGEST, packed, unpacked
from locus.memory.model.codec import canonical, check, decode, encode, from_native, texts_in, to_native
from locus.memory.model.ids import check_id, check_pattern, query_terms, words
from locus.memory.model.manifest import decode_manifest, wanted
from locus.memory.model.matching import has_value, score, searchable, snippet
from locus.memory.model.parts import Ends, Part, Range, Window, needed
from locus.memory.model.retention import id_time
from tests.fuzz.judge import expects

_DIALECTS: Final = [kind.dialect for kind in (PostgreSQLFlavour, MySQLFlavour, OracleFlavour)]

_PARTS: Final[tuple[Part, ...]] = (
    Range(("messages",), 0, 10), Range(("messages",), -3, 2), Window(2, frozenset({("messages",)})), Ends(3),
)  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _round_trip(data: bytes) -> int:
    """What is written comes back, from every kind of database."""
    value = decode(data)
    text = encode(value)
    expects(_same(decode(text), value), "a value came back as another one")
    for dialect in _DIALECTS:
        back = from_native(to_native(text, dialect))
        expects(canonical(decode(back)) == canonical(value), f"a value came back as another one from {dialect}")
    return len(text) + sum(map(len, texts_in(value)))


def _same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1 is not 1.0."""
    return repr(one) == repr(other)


def _native(data: bytes) -> int:
    return len(from_native(_text(data)))


def _packed(data: bytes) -> int:
    text = unpacked(data)
    expects(len(text) <= 4 * LARGEST, "a packed value is larger than any that is written")
    return len(text)


def _packs(data: bytes) -> int:
    text = _text(data)
    small = packed(text)
    expects(small is None or unpacked(small) == text, "a packed value came back as another one")
    return len(text)


def _manifest(data: bytes) -> int:
    text = _text(data)
    cuts = decode_manifest(text)
    extents = [*wanted(text)]
    for part in (
        Range(("messages",), 0, 10),
        Range(("messages",), -3, 2),
        Window(2, frozenset({("messages",)})),
        Ends(3),
    ):
        extents += needed(text, part)
    return len(cuts) + len(extents)


def _searched(data: bytes) -> int:
    """What a search makes of a stored text."""
    text = _text(data)
    found = searchable(text)
    score(["hello"], found)
    has_value(text, "k", "1")
    return len(snippet(["hello"], found)) + len(found)


def _ids(data: bytes) -> int:
    text = _text(data)
    id_time(text)
    found = words(text)
    expects(sum(map(len, found)) <= 20 * len(text) + 20, "the words of a text are longer than the text")
    query_terms(text)
    check_pattern(text).matches("support-1")
    check_id(text)
    return len(found)


def _checks(data: bytes) -> int:
    """What no check refuses can be written."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return 0
    try:
        check(value)
    except SerializationError:
        return 0
    try:
        return len(encode(value))
    except SerializationError:
        return 0


_READERS: Final[tuple[Callable[[bytes], int], ...]] = (
    _round_trip, _native, _packed, _packs, _manifest, _ids, _searched, _checks,
)  # fmt: skip


def run(data: bytes) -> int:
    return _READERS[data[0] % len(_READERS)](data[1:]) if data else 0


_TEXTS: Final = (
    b'{"a":[1,-0.0,1e22,"\\u0000",null,true,{"$locus:int":"7"}],"":12345678901234567890}',
    b'{"$locus:dict":[["a",{"$locus:float":"1e+22"}],["$locus:str",{"$locus:str":"\\"x\\""}]]}',
    b'[[["messages"],[["4f0c",3,0,12]]],[["metadata","large"],"9a"]]',
    *(b"[" * depth + b'"hello",{"$locus:int":"1"}' + b"]" * depth for depth in (89, 300, 500, 980)),
    "Grüße, мир! 你好 a@b.example 42".encode(),
)
SEEDS: Final = [
    *(bytes([number]) + text for number in range(len(_READERS)) for text in _TEXTS),
    b"\x02" + (packed("hello " * 100) or b""),
]
