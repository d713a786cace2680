"""The port for frameworks: a thread that has named lists and fields, on every store.

    from locus.threads import Kept, ThreadStore

    store = ThreadStore.open("sqlite:agents.db")         # or a checkpointer, or a storage backend
    document = store.document("alice", "my-framework", lists=("messages",))
    version = await document.save({"title": "Tea"}, lists={"messages": [first]})
    version = await document.save(version.fields, lists={"messages": Kept(1, [second])}, after=version)

Whoever writes an adapter needs this package, `locus.errors`, and nothing else of the store. The page "Your own
framework" of the documentation builds one.

- `ThreadStore` is a store that is open: it lists, copies and deletes threads, and gives out their documents and logs.
  `AsyncStoreUser`, `BlockingStoreUser` and `BothWaysStoreUser` are base classes for what a user opens by name.
- `Document` is one namespace of a thread as lists and fields. Each save is a checkpoint, and stores what is new in it.
- `EncodedDocument` is a document whose lists the caller encodes and recognises itself. `EncodedList`, `EncodedVersion`,
  `ReadVersion`, `Ancestor` and `ItemDecoder` belong to it.
- `ItemLog` is a list that many writers append to, without anyone reading it first.
- `SessionPoint` and the functions beside it tell the history of a session, and which sessions there are.
- `locus.threads.ids`, `.json`, `.limits` and `.blocking` are what adapters need beside that.
"""

from locus.core.frozen import freeze
from locus.memory.item_log import Addition, ItemLog, LogPoint, notes_in
from locus.memory.model.parts import ItemPage
from locus.memory.model.records import ANY, CheckpointKey, Entry, NewestThreads, TaskWrites, Unset, Write
from locus.memory.store import SPECIAL_CHANNELS
from locus.threads.document import Change, Document, Kept, Version
from locus.threads.encoded import (
    Ancestor,
    DecodedList,
    EncodedDocument,
    EncodedList,
    EncodedVersion,
    ItemDecoder,
    Path,
    ReadVersion,
    VersionWithWrites,
    fingerprint,
    is_small,
)
from locus.threads.points import (
    SessionPoint,
    metadata_of,
    point_metadata,
    readable,
    session_ids,
    session_point,
    session_points,
    warn_of_damage,
)
from locus.threads.store import AsyncStoreUser, BlockingStoreUser, BothWaysStoreUser, StoreUser, ThreadStore

__all__ = [
    "ANY",
    "SPECIAL_CHANNELS",
    "Addition",
    "Ancestor",
    "AsyncStoreUser",
    "BlockingStoreUser",
    "BothWaysStoreUser",
    "Change",
    "CheckpointKey",
    "DecodedList",
    "Document",
    "EncodedDocument",
    "EncodedList",
    "EncodedVersion",
    "Entry",
    "ItemDecoder",
    "ItemLog",
    "ItemPage",
    "Kept",
    "LogPoint",
    "NewestThreads",
    "Path",
    "ReadVersion",
    "SessionPoint",
    "StoreUser",
    "TaskWrites",
    "ThreadStore",
    "Unset",
    "Version",
    "VersionWithWrites",
    "Write",
    "fingerprint",
    "freeze",
    "is_small",
    "metadata_of",
    "notes_in",
    "point_metadata",
    "readable",
    "session_ids",
    "session_point",
    "session_points",
    "warn_of_damage",
]
