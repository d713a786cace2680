"""Memory: the checkpointer contract, the registry of backends, and the model that they share."""

from locus.memory.checkpointer import (
    BaseCheckpointer,
    HistoryEntry,
    PendingWrite,
    RecentThreads,
    SearchHit,
    SearchHits,
    ThreadSummary,
)
from locus.memory.diffs import StateDiff, diff
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.long_term.items import Found, Item
from locus.memory.long_term.memory import LongTermMemory, get_long_term_memory
from locus.memory.model.changes import ItemChange, ListDiff, PayloadDiff, ValueChange
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE
from locus.memory.model.retention import VacuumProgress
from locus.memory.model.sizes import Freed, ListSize, ThreadSizes
from locus.memory.registry import get_checkpointer, list_checkpointers, register_checkpointer
from locus.memory.saver import CheckpointSaver
from locus.memory.sync import SyncCheckpointSaver

__all__ = [
    "ANY",
    "DEFAULT_NAMESPACE",
    "BaseCheckpointer",
    "CheckpointSaver",
    "CheckpointerCapabilities",
    "Found",
    "Freed",
    "HistoryEntry",
    "Item",
    "ItemChange",
    "ListDiff",
    "ListSize",
    "LongTermMemory",
    "PayloadDiff",
    "PendingWrite",
    "RecentThreads",
    "SearchHit",
    "SearchHits",
    "StateDiff",
    "SyncCheckpointSaver",
    "ThreadSizes",
    "ThreadSummary",
    "VacuumProgress",
    "ValueChange",
    "diff",
    "get_checkpointer",
    "get_long_term_memory",
    "list_checkpointers",
    "register_checkpointer",
]
