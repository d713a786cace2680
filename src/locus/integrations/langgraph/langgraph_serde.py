"""The saver's way with values, in the shape that LangGraph expects of a serializer: for its cache, and other tools."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from locus.errors import CorruptCheckpointError
from locus.integrations.langgraph.codec import TypedCodec
from locus.memory.model.codec import decode, encode

KIND = "locus-json"


class JSONSerializer(SerializerProtocol):
    """JSON with explicit tags; nothing that is loaded is imported or called, unless it was allowed."""

    def __init__(self, codec: TypedCodec) -> None:
        self._codec = codec

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return KIND, encode(self._codec.encode(obj)).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, text = data
        if kind != KIND:
            raise CorruptCheckpointError(f"a value of kind {kind!r:.40} was written by another serializer")
        return self._codec.decode(decode(text))
