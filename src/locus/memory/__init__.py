"""Memory: the checkpointer contract, the registry of backends, and the model that they share."""

from locus.memory.checkpointer import BaseCheckpointer, HistoryEntry, PendingWrite
from locus.memory.diffs import StateDiff, diff
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE
from locus.memory.registry import get_checkpointer, list_checkpointers, register_checkpointer
from locus.memory.saver import CheckpointSaver
from locus.memory.sync import SyncCheckpointSaver

__all__ = [
    "ANY",
    "DEFAULT_NAMESPACE",
    "BaseCheckpointer",
    "CheckpointSaver",
    "CheckpointerCapabilities",
    "HistoryEntry",
    "PendingWrite",
    "StateDiff",
    "SyncCheckpointSaver",
    "diff",
    "get_checkpointer",
    "list_checkpointers",
    "register_checkpointer",
]
