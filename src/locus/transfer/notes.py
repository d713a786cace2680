"""Metadata that say where items are stored: those of an item log. They are made to fit where they are moved to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locus.memory.item_log import noted
from locus.memory.model.codec import decode, encode_trusted
from locus.memory.model.payloads import decode_manifest
from locus.memory.model.records import Extent

_NOTE = "log"
ITEMS = ("items",)
HEAD = '{"items":[]}'


def noting(change: str, extents: Sequence[Extent]) -> str:
    """The metadata of a checkpoint of an item log."""
    return encode_trusted({_NOTE: encode_trusted([change, extents])})


def comparable(metadata: str) -> Any:
    """Metadata without the places of items, which two stores need not have in common."""
    found = noted(metadata)
    value = decode(metadata)
    return value if found is None else {**value, _NOTE: [found.change, found.items]}


def fitting(metadata: str, manifest: str, new_manifest: str) -> str:
    """The metadata of a checkpoint for another manifest than it had."""
    found = noted(metadata)
    if found is None or decode_manifest(manifest).get(ITEMS, ()) != found.extents:
        return metadata
    places = decode_manifest(new_manifest).get(ITEMS, ())
    return encode_trusted({**decode(metadata), _NOTE: encode_trusted([found.change, places])})
