"""Memory: the checkpointer contract, the registry of backends, and the model that they share."""

from locus.memory.checkpointer import (
    ANY,
    DEFAULT_NAMESPACE,
    BaseCheckpointer,
    CheckpointerCapabilities,
    HistoryEntry,
    PendingWrite,
)
from locus.memory.diffs import StateDiff, diff
from locus.memory.registry import get_checkpointer, list_checkpointers, register_checkpointer

__all__ = [
    "ANY",
    "DEFAULT_NAMESPACE",
    "BaseCheckpointer",
    "CheckpointerCapabilities",
    "HistoryEntry",
    "PendingWrite",
    "StateDiff",
    "diff",
    "get_checkpointer",
    "list_checkpointers",
    "register_checkpointer",
]
