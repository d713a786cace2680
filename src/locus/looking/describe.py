"""What a checkpoint is about, in a few words, from its entry and its manifest. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from locus.errors import LocusError
from locus.memory.model.codec import decode
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.parts import total_of
from locus.memory.model.records import Entry, Path

_FEW: Final = 4
"""How many values of the metadata are shown on one line."""


def metadata_shown(entry: Entry) -> dict[str, Any]:
    """The metadata of a checkpoint; nothing, if it cannot be read: other commands say so."""
    try:
        found = decode(entry.metadata)
    except LocusError:
        return {}
    return found if isinstance(found, dict) else {}


def some_metadata(entry: Entry) -> dict[str, Any]:
    """The first plain values of the metadata of a checkpoint, for a line about it."""
    plain = {key: value for key, value in metadata_shown(entry).items() if isinstance(value, str | int | float | bool)}
    plain.pop("log", None)  # of a log of items; it says where they are stored
    return dict(list(plain.items())[:_FEW])


def about(entry: Entry) -> str:
    """What the metadata of a checkpoint says about it, in one line."""
    metadata = metadata_shown(entry)
    log = metadata.get("log")
    if isinstance(log, str) and log.startswith('["'):  # of a log of items (see `item_log`)
        return log[2:].partition('"')[0]
    plain = {key: value for key, value in metadata.items() if isinstance(value, str | int | float | bool)}
    return " ".join(f"{key}={value}" for key, value in plain.items())


def totals(manifest: str) -> dict[Path, int]:
    """How many items each list of a payload has."""
    return {path: total_of(cut) for path, cut in decode_manifest(manifest).items() if not isinstance(cut, str)}


def growth(before: Mapping[Path, int], after: Mapping[Path, int]) -> dict[Path, int]:
    """By how many items each list became longer or shorter, where it did."""
    changed = {path: after.get(path, 0) - before.get(path, 0) for path in {**before, **after}}
    return {path: by for path, by in sorted(changed.items()) if by}


def dotted(path: Path) -> str:
    """A path as it is typed: `channel_values.messages`."""
    return ".".join(path)
