"""Checks the ids of threads, namespaces and checkpoints, and makes short names of long texts."""

from locus.memory.model.ids import (
    MAX_ID_LENGTH,
    check_id,
    check_ids,
    check_prefix,
    check_text,
    digest,
    shown_thread,
)

__all__ = [
    "MAX_ID_LENGTH",
    "check_id",
    "check_ids",
    "check_prefix",
    "check_text",
    "digest",
    "shortened",
    "shown_thread",
]


def shortened(name: str, kept: int = 200) -> str:
    """A name that fits into an id: a long one is cut, and ends with a digest of all of it."""
    return name if len(name) <= MAX_ID_LENGTH else f"{name[:kept]}#{digest(name)}"
