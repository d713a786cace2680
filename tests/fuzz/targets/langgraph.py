"""What `LocusSaver` reads: tagged values and whole checkpoints; and the values that LangGraph's own savers write.

The first byte chooses what reads the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from locus.integrations.langgraph.classes import typed_codec
from locus.integrations.langgraph.payloads import checkpoint_of, is_langgraph, loaded_lists, namespace_of
from locus.memory.model.codec import decode
from locus.threads import ItemDecoder, ReadVersion
from locus.transfer.sources.langgraph_values import ValueReader
from tests.fuzz.judge import expects
from tests.fuzz.targets.payloads import stored_from

_CODEC: Final = typed_codec()
_READER: Final = ValueReader()


def _value(data: bytes) -> int:
    """What was read can be written, and read again."""
    value = _CODEC.decode(decode(data))
    written = _CODEC.encode(value)
    expects(_CODEC.encode(_CODEC.decode(written)) == written, "what was written is read as something else")
    return _size(value)


def _size(value: Any) -> int:
    """How many values are in a value; a lazy one, such as a range, is one."""
    waiting, count = [value], 0
    while waiting:
        found = waiting.pop()
        count += 1
        if isinstance(found, dict):
            waiting += [*found.keys(), *found.values()]
        elif isinstance(found, list | tuple | set | frozenset):
            waiting += found
        elif isinstance(found, str | bytes | bytearray):
            count += len(found)
        elif hasattr(found, "nbytes"):
            count += found.nbytes
    return count


def _checkpoint(data: bytes) -> int:
    version = ReadVersion(stored_from(data))
    is_langgraph(version)
    namespace_of(version)
    found = checkpoint_of(version, _CODEC, ItemDecoder(_CODEC.decode))
    loaded_lists(version, found)
    some = checkpoint_of(version, _CODEC, ItemDecoder(_CODEC.decode), ("messages",))
    return _size(found) + _size(some)


def _packed(data: bytes) -> int:
    return _size(_READER.read("msgpack", data, "the value"))


def _json(data: bytes) -> int:
    return _size(_READER.read("json", data, "the value"))


_READERS: Final[tuple[Callable[[bytes], int], ...]] = (_value, _checkpoint, _packed, _json)


def run(data: bytes) -> int:
    return _READERS[data[0] % len(_READERS)](data[1:]) if data else 0


_TAGGED: Final = (
    b'{"$type":"datetime","value":"2026-07-01T12:00:00+00:00"}',
    b'{"$type":"HumanMessage","content":"Hello","id":"7f"}',
    b'{"$type":"dict","items":[[1,{"$type":"tuple","items":[1,2]}],[{"$type":"bytes","value":"aGk="},2]]}',
    b'{"$type":"set","items":[1,{"$type":"Decimal","value":"1.5"},{"$type":"UUID","value":"' + b"0" * 32 + b'"}]}',
    b'{"$type":"range","value":[0,10,2]}',
    b'{"$type":"ndarray","dtype":"<f8","shape":[1,2],"data":"AAAAAAAAAAAAAAAAAAAAAA=="}',
    b'{"$type":"timedelta","value":[1,2,3]}',
    b'{"$type":"Pattern","value":"a+","flags":0}',
    b'{"$type":"deque","items":[1],"maxlen":3}',
    b'{"$type":"Send","node":"n","arg":{"$type":"float","value":"nan"}}',
    b'{"$type":"ZoneInfo","value":"Europe/Berlin"}',
)
_CHECKPOINT: Final = (
    b'{"langgraph":1,"v":4,"ts":"2026-01-01","channel_versions":{},"versions_seen":{},"channel_values":{"messages":[]}}'
    b'\n[[["channel_values","messages"],[["b",0,0,1]]]]\nb,0,0,1 [{"$type":"AIMessage","content":"x"}]'
)
_DEEP: Final = [
    *(b"[" * depth + b'{"$type":"set","items":[]}' + b"]" * depth for depth in (100, 300, 500, 980)),
    *(b'{"$type":"dict","items":[[1,' * depth + b"2" + b"]]}" * depth for depth in (50, 100, 200)),
]
SEEDS: Final = [
    *(b"\0" + text for text in _DEEP),
    *(b"\3" + text for text in _DEEP[:4]),
    *(b"\2" + b"\x91" * depth + b"\x90" for depth in (300, 980)),
    *(b"\0" + text for text in _TAGGED),
    b"\1" + _CHECKPOINT,
    b"\2\x82\xa1a\x93\x01\xc3\xc0\xa1b\xc7\x05\x00\x93\xa1m\xa1n\x01",
    b'\3{"lc":2,"type":"constructor","id":["uuid","UUID"],"args":["x"]}',
]
