"""The documents of a store in OpenSearch, and the protocol between those who write them.

One index holds everything. All documents of a thread have its digest as routing, so they share a shard::

    d.7          record 7 of the log of the thread with the digest d: a checkpoint (with the runs that it
                 brought), a removal, an end, a copy
    d            the thread: its id, and what the log adds up to so far
    d.i.<digest> where the checkpoint of a name is
    d.w.<digest> the pending writes of one task
    d.<batch>.7  a record that came with a copy

OpenSearch has no transactions, but `create` succeeds for one writer only. So a thread is a **log**: whoever
changes it has to create the next record. One document is the whole commit. If another writer was faster, the
record is there; what it says is taken into account, and the decision is made again. Nothing that exists is
uncommitted, and a save is one request.

All other documents follow from the log. The thread's document is rewritten every `LAG` records, and whenever
the list of threads, a removal or an expiry needs it (its external version is the record's position, so it never
goes back); names are written before it. A reader takes it, and the records after it: both by id, which
OpenSearch answers in real time. Lists are searches, after a refresh.

A removal is a record as well: it says which checkpoints go, and which get another parent. From then on readers
leave them out. Then the thread's document is written, which points to the removal, and the documents are
cleaned: a checkpoint whose runs are still needed becomes `runs`, another one `gone`. At last the removal itself
becomes `gone`. Who dies on the way leaves the pointer, and the next one who removes something finishes it.

An `end` (or a save after the thread expired) begins a new **epoch**: records up to that position are dead.

A handle that remembers record 6 may create 7 without looking. So a position is never free again while somebody
may remember the one before: `gone` records stay for a day (`KEPT`), and handles remember for ten minutes.
"""

from __future__ import annotations

from typing import Any, Final

from locus.memory.model.codec import canonical
from locus.memory.model.ids import digest, words
from locus.memory.model.matching import texts_in

FORMAT: Final = 1

LAG: Final = 16
"""How many records the document of a thread may be behind."""

KEPT: Final = 24 * 3_600 * 1_000_000
"""Microseconds for which an emptied record keeps its position taken."""

LONGEST_WORD: Final = 200

CHECKPOINT, RUNS, REMOVAL, END, COPY, GONE = "checkpoint", "runs", "removal", "end", "copy", "gone"
THREAD, NAME, WRITE, INTENT = "thread", "name", "write", "intent"

_KEYWORD = {"type": "keyword"}
_NUMBER = {"type": "long"}

MAPPING: Final[dict[str, Any]] = {
    "dynamic": "strict",
    "_meta": {"locus_format": FORMAT},
    "_routing": {"required": True},
    # Words are there to be found, and follow from the rest: keeping their text would double what is stored.
    "_source": {"excludes": ["words"]},
    "properties": {
        "kind": _KEYWORD,
        "thread": _KEYWORD,
        "thread_id": _KEYWORD,
        "namespace": _KEYWORD,
        "checkpoint_id": _KEYWORD,
        "task_id": _KEYWORD,
        "batch": _KEYWORD,
        "position": _NUMBER,
        "seq": _NUMBER,
        "epoch": _NUMBER,
        "order": _NUMBER,
        "live": _NUMBER,
        "expires": _NUMBER,
        "at": _NUMBER,
        # Digests of keys with their values: a key may be called anything, and have values of any type.
        "metadata": _KEYWORD,
        "words": {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
        "body": {"type": "object", "enabled": False},
    },
}


def settings(shards: int, replicas: int | None) -> dict[str, Any]:
    """Settings of a new index; without a number of replicas there is one as soon as there is a second node."""
    copies = {"auto_expand_replicas": "0-1"} if replicas is None else {"number_of_replicas": replicas}
    # The version of a removed document is in the way of a new one of the same id for so long.
    return {"number_of_shards": shards, "translog.durability": "request", "gc_deletes": "1s", **copies}


def record_id(thread: str, batch: str, place: int) -> str:
    """The id of a record. Places of a copy are negative, and those of the log its positions."""
    return f"{thread}.{place}" if place > 0 else f"{thread}.{batch}.{-place}"


def name_id(thread: str, namespace: str, checkpoint_id: str, batch: str = "") -> str:
    name = f"{thread}.i.{digest(canonical([namespace, checkpoint_id]))}"
    return f"{name}.{batch}" if batch else name


def writes_id(thread: str, namespace: str, checkpoint_id: str, task_id: str, batch: str = "") -> str:
    name = f"{thread}.w.{digest(canonical([namespace, checkpoint_id, task_id]))}"
    return f"{name}.{batch}" if batch else name


def metadata_term(key: str, value: str) -> str:
    """What a key with a value (canonical JSON) is looked up by."""
    return digest(canonical([key, value]))


def metadata_terms(metadata: dict[str, Any]) -> list[str]:
    return [metadata_term(key, canonical(value)) for key, value in metadata.items()]


def spelt(word: str) -> str:
    """A word as the index has it; Lucene refuses very long ones."""
    return word if len(word) <= LONGEST_WORD else f"#{digest(word)}"


def indexed_words(*values: Any) -> str:
    """What the index has of JSON values."""
    found = [word for value in values for text in texts_in(value) for word in words(text)]
    if max(map(len, found), default=0) > LONGEST_WORD:
        found = [spelt(word) for word in found]
    return " ".join(found)
