"""The stored shape: the names of the keys in Redis, and what is written under them.

All keys of a thread share one hash tag: the number of its *bucket*, a digest of its id. The bucket's index has the
same tag, so one script changes a thread and the index together, in a cluster too. Ids stand in the keys as they are:
Redis takes any bytes, and the tag comes first. With the prefix `locus:state:` and the bucket 7:

    locus:state:{7}:h:<id>  hash  seq, born, v, ttl, meta, w   the thread's counter, first rev, removals, flags
                                  l<ns>      "<seq> <checkpoint id>"     the latest of a namespace
                                  i<ns><id>  "<seq> <rev>"               a checkpoint by its id
                                  e<seq>     its entry, a row of netstrings behind a time of 16 digits
    locus:state:{7}:s:<id>  zset  sequence numbers
    locus:state:{7}:p:<id>  hash  <seq>              extents, head, manifest, checksum
    locus:state:{7}:r:<id>  hash  <branch> <number>  "<start> <length> <checksum>,<before> <items>": a run
                                  <branch>           the number of its newest run
    locus:state:{7}:w:<id>  hash  d<place>, t<place><task>   the tasks with pending writes; the writes of each
    locus:state:{7}:x:<id>  hash  which documents the search index has of it (only with the Search module: see `search`)

    locus:state:{7}:ids     zset  the ids of threads, in order of their bytes
    locus:state:{7}:recent  zset  ids by the time of the last commit, in microseconds
    locus:state:{7}:meta    zset  <digest of key and value><time><seq>:<id>, in order of their bytes
    locus:state:{7}:ends    hash  <id>  when the thread expires, in milliseconds; empty for never
    locus:state:format      hash  the version of all this, and the number of buckets; later versions may add from which
                                  one on Locus may use it (see `locus.memory.model.formats`)

Metadata and the values of pending writes end with a line feed, `#` and a checksum. JSON has no line feed, and what was
stored in format 1 has no checksum. `before` is that of a `Run`, or empty.

A *place* names a checkpoint inside its thread: its namespace and its id, as netstrings.

A thread has six keys however long it becomes, so renewing their time to live costs a save no more at turn 1,000 than
at turn 1. Redis does not take a thread that expires out of the index. Reads skip what is left of it there, and remove
it. A thread that is in the index, and gone before its time, was evicted: that is an error, and the index keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import Any
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.codec import canonical, check_sum, checksum, decode, run_checksum
from locus.memory.model.ids import shown_thread
from locus.memory.model.records import Ancestor, AncestorQuery, Entry, Extent, Run, RunInfo, Stored, Write, writes_order
from locus.memory.model.sizes import Measured, MeasuredCheckpoint, MeasuredWrites, text_bytes

FORMAT = 2
"""The version of this layout, as it stands under `<prefix>format`."""


@dataclass(frozen=True)
class Layout:
    """The names of keys in one store."""

    prefix: str
    buckets: int

    @property
    def format_key(self) -> str:
        return f"{self.prefix}format"

    def bucket(self, thread_id: str) -> int:
        return int.from_bytes(sha256(thread_id.encode()).digest()[:4]) % self.buckets

    def bucket_keys(self, bucket: int) -> list[str]:
        """The keys of a bucket, for scripts. The fourth is the beginning of each thread's main key."""
        stem = f"{self.prefix}{{{bucket}}}:"
        return [f"{stem}ids", f"{stem}recent", f"{stem}meta", f"{stem}h:", f"{stem}ends"]

    def thread_keys(self, thread_id: str) -> list[bytes]:
        """The keys of a thread, for scripts."""
        return _thread_keys(self, thread_id)

    def document_stem(self, thread_id: str) -> bytes:
        """The beginning of the keys of a thread's search documents."""
        return _document_stem(self.prefix, self.bucket(thread_id), thread_id)


@lru_cache(maxsize=1024)
def _thread_keys(layout: Layout, thread_id: str) -> list[bytes]:
    bucket = layout.bucket(thread_id)
    stem, name = f"{layout.prefix}{{{bucket}}}:".encode(), thread_id.encode()
    keys = [b"%b%b:%b" % (stem, kind, name) for kind in (b"h", b"s", b"p", b"r", b"w", b"x")]
    keys += [stem + part for part in (b"ids", b"recent", b"meta")]
    return [*keys, _document_stem(layout.prefix, bucket, thread_id), stem + b"ends"]


def _document_stem(prefix: str, bucket: int, thread_id: str) -> bytes:
    return f"{prefix}doc:{{{bucket}}}:".encode() + net(thread_id)


def net(text: str | bytes) -> bytes:
    """A netstring: `5:hello`."""
    data = text.encode() if isinstance(text, str) else text
    return b"%d:%b" % (len(data), data)


def net_texts(*texts: str) -> bytes:
    """Texts as netstrings in a row."""
    return b"".join([b"%d:%b" % (len(data), data) for data in map(str.encode, texts)])


def nets(data: bytes, at: int = 0) -> list[bytes]:
    """Read the netstrings in a row that begin at a position."""
    parts: list[bytes] = []
    while at < len(data):
        colon = data.index(b":", at)
        end = colon + 1 + int(data[at:colon])
        if end > len(data):
            raise ValueError("a netstring is cut off")
        parts.append(data[colon + 1 : end])
        at = end
    return parts


def place(namespace: str, checkpoint_id: str) -> bytes:
    """Name a checkpoint inside its thread. No two share a place."""
    return net_texts(namespace, checkpoint_id)


def index_field(namespace: str, checkpoint_id: str) -> bytes:
    """The field that holds the sequence number and rev of a checkpoint."""
    return b"i" + place(namespace, checkpoint_id)


def metadata_pairs(metadata: str) -> bytes:
    """The digests of all keys and values, 16 characters each, one after another."""
    if metadata == "{}":
        return b""
    return b"".join(pair_digest(key, canonical(value)) for key, value in decode(metadata).items())


def pair_digest(key: str, value: str) -> bytes:
    return sha256(net(key) + value.encode()).hexdigest()[:16].encode()


def entry_text(entry: Entry) -> bytes:
    """Write an entry without its time and parent. The script puts the time in front, and the parent behind."""
    created = _instant(entry.created_at)
    found = checksum(entry.namespace, entry.checkpoint_id, entry.rev, created, entry.metadata)
    pairs, metadata = metadata_pairs(entry.metadata).decode(), _with_checksum(entry.metadata, found)
    return net_texts(entry.namespace, pairs, entry.checkpoint_id, entry.rev, created, metadata)


def _with_checksum(text: str, found: int) -> str:
    return f"{text}\n#{found}"


def _without_checksum(text: str) -> tuple[str, int | None]:
    """Split a text from the checksum behind it, if there is one."""
    plain, mark, found = text.partition("\n#")
    return plain, int(found) if mark else None


def whole_entry(entry: Entry, stored: bytes) -> bytes:
    """Write an entry as it is stored, with the time of the entry that is stored now."""
    return stored[:16] + entry_text(entry) + (b"" if entry.parent_id is None else net(entry.parent_id))


def to_entry(thread_id: str, number: int | bytes, stored: bytes | None) -> Entry:
    try:
        seq = int(number)
    except ValueError:
        raise CorruptCheckpointError(f"a checkpoint of {shown_thread(thread_id)} has no number") from None
    try:
        if stored is None:
            raise ValueError("its entry is missing")
        namespace, _, checkpoint_id, rev, created_at, metadata, *parent = (part.decode() for part in nets(stored, 16))
        metadata, checksum = _without_checksum(metadata)
        created = datetime.fromisoformat(created_at)
    except ValueError:
        raise CorruptCheckpointError(f"checkpoint {seq} of {shown_thread(thread_id)} cannot be read") from None
    check_sum(checksum, f"checkpoint {seq}", namespace, checkpoint_id, rev, created_at, metadata)
    return Entry(thread_id, namespace, checkpoint_id, parent[0] if parent else None, seq, rev, created, metadata)


def to_entries(thread_id: str, rows: Sequence[bytes]) -> list[Entry]:
    """Read entries from numbers and stored entries in turn, newest first."""
    entries = [to_entry(thread_id, rows[at], rows[at + 1]) for at in range(0, len(rows), 2)]
    numbers = [entry.seq for entry in entries]
    places = {(entry.namespace, entry.checkpoint_id) for entry in entries}
    if len(places) < len(entries) or any(older >= newer for newer, older in pairwise(numbers)):
        raise CorruptCheckpointError(f"the history of {shown_thread(thread_id)} is damaged")
    return entries


def is_asked(entry: Entry, namespace: str, checkpoint_id: str | None) -> Entry:
    """Refuse an entry that is another one than was asked for: what leads to it is damaged."""
    if entry.namespace != namespace or checkpoint_id not in (None, entry.checkpoint_id):
        raise CorruptCheckpointError(f"{shown_thread(entry.thread_id)} is damaged: it gives another checkpoint")
    return entry


def thread_in(name: bytes) -> str:
    """The id of a thread as an index of a bucket has it."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CorruptCheckpointError("an index of the Redis store is damaged: a name in it is no text") from None


def committed_at(stored: bytes) -> int:
    """The time at which an entry was committed, in microseconds. No two commits of a bucket have the same time."""
    try:
        return int(stored[:16])
    except ValueError:
        raise CorruptCheckpointError("an entry in Redis is damaged: it does not say when it was committed") from None


def payload_text(extents: Iterable[Extent], head: str, manifest: str) -> bytes:
    shown = "".join([f"{branch} {run} {skip} {length};" for branch, run, skip, length in extents])
    return net_texts(shown, head, manifest, str(checksum(shown, head, manifest)))


def to_payload(stored: bytes) -> tuple[str, str]:
    """Read the head and the manifest in a payload."""
    return to_checked_payload(stored)[:2]


def to_checked_payload(stored: bytes) -> tuple[str, str, bool]:
    """Read the head and the manifest in a payload, and whether a checksum was stored with them."""
    shown, head, manifest, *found = (part.decode() for part in nets(stored))
    check_sum(int(found[0]) if found else None, "the payload of a checkpoint", shown, head, manifest)
    return head, manifest, bool(found)


def to_extents(text: bytes) -> list[Extent]:
    """Read the extents in the first part of a payload."""
    rows = (extent.split(" ") for extent in text.decode().split(";")[:-1])
    return [Extent(branch, int(run), int(skip), int(length)) for branch, run, skip, length in rows]


def run_text(run: Run) -> bytes:
    found, before = run_checksum(*run), run.before or ""
    return f"{run.start} {run.length} {found},{before} {run.items}".encode()


def to_run(field: bytes, stored: bytes) -> Run:
    return run_of(*_run_name(field), stored)


def run_of(branch: str, number: int, stored: bytes) -> Run:
    """Read a run from its text. A load does so for every run, so the text is copied as seldom as possible."""
    start, length, about, *rest = stored.split(b" ", 3)
    if about.startswith(b"["):  # stored in format 1
        return Run(branch, number, int(start), int(length), stored.split(b" ", 2)[2].decode())
    (items,) = rest
    checksum, before = about.decode().split(",")
    where = (branch, number, int(start), int(length))
    # The checksum of a run is that of what precedes its items, carried on over these.
    if int(checksum) != crc32(items, run_checksum(*where, "", before or None)):
        raise CorruptCheckpointError("a run of items does not fit its checksum")
    return Run(*where, items.decode(), before or None)


def to_run_info(field: bytes, header: bytes) -> RunInfo:
    start, length = header.split(b" ")
    return RunInfo(*_run_name(field), int(start), int(length))


def _run_name(field: bytes) -> tuple[str, int]:
    branch, _, number = field.decode().partition(" ")
    return branch, int(number)


def to_manifest(thread_id: str, rev: bytes, payload: bytes | None) -> tuple[str, str]:
    """Read the rev and the manifest in an answer of MANIFEST."""
    try:
        if payload is None:
            raise ValueError("its payload is missing")
        return rev.decode(), to_payload(payload)[1]
    except ValueError as error:
        raise CorruptCheckpointError(f"a checkpoint of thread {thread_id!r} cannot be read: {error}") from error


def write_text(write: Write) -> bytes:
    value = _with_checksum(write.value, checksum(write.idx, write.channel, write.value))
    return net_texts(str(write.idx), write.task_path, write.channel, value)


def to_writes(task_id: bytes, stored: bytes) -> list[Write]:
    parts = [part.decode() for part in nets(stored)]
    writes: list[Write] = []
    for at in range(0, len(parts), 4):
        idx, path, channel, text = parts[at : at + 4]
        value, checksum = _without_checksum(text)
        check_sum(checksum, "a pending write", idx, channel, value)
        writes.append(Write(task_id.decode(), path, int(idx), channel, value))
    return writes


def to_ancestors(query: AncestorQuery, answer: Sequence[Any]) -> list[Ancestor]:
    """Read the ancestors of a checkpoint in an answer of ANCESTORS, with their pending writes to some channels."""
    line: dict[str, Ancestor] = {}
    for at in range(0, len(answer), 4):
        seq, stored, payload, tasks = answer[at : at + 4]
        entry = to_entry(query.thread_id, seq, stored)
        if entry.checkpoint_id in line or entry.checkpoint_id == query.checkpoint_id:
            break
        try:
            if payload is None:
                raise ValueError("its payload is missing")
            head, manifest = to_payload(payload)
            writes = to_task_writes(tasks)
        except (ValueError, IndexError):
            place = f"checkpoint {entry.seq} of {shown_thread(query.thread_id)}"
            raise CorruptCheckpointError(f"{place} cannot be read") from None
        line[entry.checkpoint_id] = Ancestor.of(Stored(entry, head, manifest), writes, query.channels)
    return [*line.values()]


def to_task_writes(answer: Sequence[bytes]) -> list[Write]:
    """Read pending writes from names of tasks and their writes in turn, and bring them into their order."""
    found = [write for at in range(0, len(answer), 2) for write in to_writes(answer[at], answer[at + 1])]
    return sorted(found, key=writes_order)


def to_measured(thread_id: str, answer: Sequence[Any]) -> Measured:
    """Read the size of a thread in an answer of MEASURE."""
    seqs, entries, manifests, heads, names, headers, sizes, places, counts, written = answer
    checkpoints: list[MeasuredCheckpoint] = []
    try:
        for seq, stored, manifest, head in zip(seqs, entries, manifests, heads, strict=True):
            if not manifest:
                raise ValueError("its payload is missing")
            entry = to_entry(thread_id, seq, stored)
            size = int(head) + len(manifest) + text_bytes(entry.metadata)
            checkpoints.append(MeasuredCheckpoint(entry, manifest.decode(), size))
        runs = {to_run_info(*row[:2]): int(row[2]) for row in zip(names, headers, sizes, strict=True)}
        writes = {
            (namespace.decode(), checkpoint_id.decode()): MeasuredWrites(int(count), int(size))
            for (namespace, checkpoint_id), count, size in zip(map(nets, places), counts, written, strict=True)
        }
    except ValueError:
        raise CorruptCheckpointError(f"{shown_thread(thread_id)} cannot be read") from None
    return Measured(checkpoints, runs, writes)


def to_orphans(thread_id: str, rows: Sequence[bytes | int]) -> dict[tuple[str, str], int]:
    """Read the number of pending writes of each checkpoint that does not exist, in an answer of ORPHANS."""
    orphans: dict[tuple[str, str], int] = {}
    try:
        for at in range(0, len(rows), 2):
            where = rows[at]
            assert isinstance(where, bytes)
            namespace, checkpoint_id = (part.decode() for part in nets(where))
            orphans[namespace, checkpoint_id] = int(rows[at + 1])
    except ValueError:
        raise CorruptCheckpointError(f"pending writes of {shown_thread(thread_id)} cannot be read") from None
    return orphans


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def history_arguments(namespace: str | None, limit: int | None, before_seq: int | None) -> list[str | bytes | int]:
    """The arguments of HISTORY: `*` or the beginning of the entries of a namespace, a bound, and a limit."""
    start = b"" if namespace is None else net(namespace)
    before = "+inf" if before_seq is None else f"({before_seq}"
    return ["*" if namespace is None else "", start, before, UNLIMITED if limit is None else limit]


def milliseconds(at: datetime | None) -> str:
    """A time as scripts take it; empty for none."""
    return "" if at is None else str(int(at.timestamp() * 1000))
