"""Digests of payloads that do not depend on how they are stored, so that two stores can be compared.

The digest of a dict comes from the digests of its values, and that of a list from the digests of its items. The digest
of an item is that of its canonical JSON, so an item that many checkpoints share is digested only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any

from locus.memory.model.codec import canonical, decode
from locus.memory.model.records import Path, Write

SIZE = 16

CutDigest = Callable[[Path], bytes | None]
"""A function from a path in the head to the digest of the part that was cut out there; None if none was."""


def item_digest(item: Any) -> bytes:
    return blake2b(canonical(item).encode(), digest_size=SIZE).digest()


@lru_cache(maxsize=4096)
def _key_digest(key: str) -> bytes:
    return item_digest(key)


def list_digest(items: Iterable[bytes | bytearray]) -> bytes:
    """The digest of a list. Each element of `items` is the digest of one item, or of several in sequence."""
    whole = sha256(b"[")
    for digests in items:
        whole.update(digests)
    return whole.digest()


def value_digest(value: Any, path: Path = (), cut: CutDigest = lambda _path: None) -> bytes:
    """The digest of a payload, or of the value at a path in one. `cut` gives the digests of parts that were cut out."""
    if isinstance(value, dict):
        whole = sha256(b"{")
        for key in sorted(value):
            inner = (*path, key)
            whole.update(_key_digest(key))
            whole.update(cut(inner) or value_digest(value[key], inner, cut))
        return whole.digest()
    if isinstance(value, list | tuple):
        return list_digest(map(item_digest, value))
    return sha256(b"." + item_digest(value)).digest()


def writes_digest(writes: Sequence[Write]) -> bytes:
    """The digest of the pending writes of a checkpoint, in their order."""
    return item_digest([[*write[:4], decode(write.value)] for write in writes])
