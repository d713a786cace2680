"""Checks numbers that a caller gives: of items, of entries, of seconds."""

from locus.memory.model.arguments import UNLIMITED, checked_limit, checked_seconds
from locus.memory.model.manifest import MOST
from locus.memory.model.parts import checked_last

__all__ = ["AT_ONCE", "MOST", "UNLIMITED", "checked_last", "checked_limit", "checked_seconds"]

AT_ONCE = 8
"""How many threads or checkpoints are looked into at the same time, where a call looks into many."""
