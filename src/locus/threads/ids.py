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
    "joined",
    "parted",
    "shortened",
    "shown_thread",
]


def shortened(name: str, kept: int = 200) -> str:
    """A name that fits into an id: a long one is cut, and ends with a digest of all of it."""
    return name if len(name) <= MAX_ID_LENGTH else f"{name[:kept]}#{digest(name)}"


def joined(*names: str) -> str:
    """One id for several names, with slashes between them. Other names have another id: their slashes are escaped.

    So `joined(*names, "")` is what the ids of all that is below these names start with.
    """
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


def parted(joined_id: str) -> tuple[str, ...]:
    """The names of which `joined` has made an id."""
    return tuple(name.replace("%2F", "/").replace("%25", "%") for name in joined_id.split("/"))
