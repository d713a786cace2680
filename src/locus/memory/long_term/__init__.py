"""Long-term memory: what agents know across threads, by namespace and key, with versions.

memory      `LongTermMemory`, the public face, and `get_long_term_memory`; `sync` has its blocking twin
store       items as small threads in a key space of their own
old_items   moves what LangGraph's stores of older versions have kept
commits     the commits that keep versions
items       what an item is, and how a version of it is stored
names       the ids of items
ranking     the seam for whatever ranks the items of a search
filters     filters over values
facts       what is known about one user, for agents
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locus.extras import lazy_names

if TYPE_CHECKING:
    from locus.memory.long_term.facts import Facts, fenced
    from locus.memory.long_term.items import Found, Item
    from locus.memory.long_term.memory import Delete, Get, LongTermMemory, Put, get_long_term_memory
    from locus.memory.long_term.sync import SyncLongTermMemory

__all__ = [
    "Delete",
    "Facts",
    "Found",
    "Get",
    "Item",
    "LongTermMemory",
    "Put",
    "SyncLongTermMemory",
    "fenced",
    "get_long_term_memory",
]

__getattr__ = lazy_names(
    __name__,
    {
        "facts": ("Facts", "fenced"),
        "items": ("Found", "Item"),
        "memory": ("Delete", "Get", "LongTermMemory", "Put", "get_long_term_memory"),
        "sync": ("SyncLongTermMemory",),
    },
)
