"""Checksums over what is stored, for databases that give text back byte for byte.

A checksum covers the texts as they are kept, and the numbers that say where they belong. What an older version has
stored has none, and is accepted.
"""

from __future__ import annotations

from zlib import crc32

from locus.errors import CorruptCheckpointError


def checksum(*parts: object) -> int:
    """The CRC-32 of these texts and numbers."""
    return crc32("\n".join(map(str, parts)).encode())


def check(found: object, what: str, *parts: object) -> None:
    """Refuse texts and numbers that do not fit their checksum; None is one that was never made."""
    if found is not None and found != checksum(*parts):
        raise CorruptCheckpointError(f"{what} does not fit its checksum: the stored data was changed or is damaged")
