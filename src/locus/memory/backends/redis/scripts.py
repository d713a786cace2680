"""The Lua scripts that run inside Redis: loads them from the folder `lua`, one file per script.

Each script is one atomic step on one thread, or on the index of one bucket of threads. It touches only keys of one
bucket (see `schema`), so it stays in one slot of a cluster. Texts of users pass through as bytes and are never parsed.

The first line of a script declares what it may do. With `no-writes`, a replica or a server that is out of memory runs
it as well; with `allow-oom`, it writes but needs no memory. A line `-- include: shared/<name>.lua` puts in that file
from `lua/shared`. Nothing else is put into a script: it gets keys as KEYS, and everything else as ARGV.

Callers rely on the changes of an `acknowledged` script, so these may have to be on replicas before it is answered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

_FOLDER = files(__package__).joinpath("lua")
_INCLUDE = re.compile(r"^-- include: (\S+)\n", re.MULTILINE)


class Script:
    """A script, and the digest that the server knows it by once it has seen it."""

    __slots__ = ("acknowledged", "sha", "text")

    def __init__(self, text: str, *, acknowledged: bool = False) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.acknowledged = acknowledged


class ScriptCall(NamedTuple):
    """A script with its keys and arguments."""

    script: Script
    keys: Sequence[bytes | str]
    arguments: Sequence[Any] = ()

    def by_digest(self) -> tuple[Any, ...]:
        """The command for a server that has seen the script."""
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments)

    def by_text(self) -> tuple[Any, ...]:
        """The command for any server."""
        return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.arguments)


def _load(name: str, *, acknowledged: bool = False) -> Script:
    return Script(_INCLUDE.sub(lambda included: _read(included[1]), _read(f"{name}.lua")), acknowledged=acknowledged)


def _read(path: str) -> str:
    return _FOLDER.joinpath(*path.split("/")).read_text(encoding="utf-8")


# Change a thread.
COMMIT = _load("commit", acknowledged=True)
REMOVE = _load("remove", acknowledged=True)
CREATE = _load("create", acknowledged=True)
PUT_WRITES = _load("put_writes", acknowledged=True)
DELETE_ORPHANS = _load("delete_orphans", acknowledged=True)

# Read a thread.
READ = _load("read")
READ_PART = _load("read_part")
READ_SINCE = _load("read_since")
ENTRY = _load("entry")
MANIFEST = _load("manifest")
HISTORY = _load("history")
GET_WRITES = _load("get_writes")
ANCESTORS = _load("ancestors")
ORPHANS = _load("orphans")
OUTLINE = _load("outline")
MEASURE = _load("measure")
RUN_HEADERS = _load("run_headers")
CONTENTS = _load("contents")

# Read and clean the index of a bucket.
LIST_THREADS = _load("list_threads")
RECENT_THREADS = _load("recent_threads")
RECENT_WITHIN = _load("recent_within")
THREADS_WITHIN = _load("threads_within")
COUNT_WITHIN = _load("count_within")
FIND_METADATA = _load("find_metadata")
STALE_METADATA = _load("stale_metadata")
CLEAN_INDEX = _load("clean_index")
INDEX_FAULTS = _load("index_faults")
THREAD_FAULTS = _load("thread_faults")

# Keep the search index.
CHANGED_THREADS = _load("changed_threads")
UNINDEXED = _load("unindexed")
INDEX_DOCUMENTS = _load("index_documents")
DOCUMENT_SOURCE = _load("document_source")
DOCUMENT_NAMES = _load("document_names")

# Wait for replicas. It writes something and takes it back, which leaves nothing behind but a place in the stream that
# replicas follow. No hash of Locus has a field of that name. It is sent as text, so it has no comments of its own.
MARK = _load("mark", acknowledged=True)

# Set up a store.
WRITE_FORMAT = _load("write_format", acknowledged=True)
