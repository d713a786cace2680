"""The stored shape: the names of the keys in Redis, and what is written under them.

All keys of a thread share one hash tag: the number of its *bucket*, a digest of its id. The bucket's index has the
same tag, so one script changes a thread and the index together, in a cluster too. Ids stand in the keys as they are:
Redis takes any bytes, and the tag comes first. With the prefix `locus:state:` and the bucket 7:

    locus:state:{7}:h:<id>  hash  seq, born, v, ttl, meta, w   the thread's counter, first rev, removals, flags
                                  l<ns>      "<seq> <checkpoint id>"     the latest of a namespace
                                  i<ns><id>  "<seq> <rev>"               a checkpoint by its id
                                  L<ns>, I<ns><id>   empty; the field with the small letter exists
                                  e<seq>     its entry, a row of netstrings behind a time of 16 digits
    locus:state:{7}:s:<id>  zset  sequence numbers
    locus:state:{7}:p:<id>  hash  <seq>              extents, head, manifest, checksum
    locus:state:{7}:r:<id>  hash  <branch> <number>  "<start> <length> <checksum>,<before> <items>": a run
                                  <branch>           the number of its newest run
    locus:state:{7}:w:<id>  hash  d<place>, t<place><task>   the tasks with pending writes; the writes of each
                                  D<place>           a seal over d<place>
    locus:state:{7}:x:<id>  hash  which documents the search index has of it (only with the Search module: see `search`)

    locus:state:{7}:ids     zset  the ids of threads, in order of their bytes
    locus:state:{7}:recent  zset  ids by the time of the last commit, in microseconds
    locus:state:{7}:meta    zset  <digest of key and value><time><seq>:<id>, in order of their bytes
    locus:state:{7}:ends    hash  <id>  when the thread expires, in milliseconds; empty for never
    locus:state:format      hash  the version of all this, the number of buckets, and a checksum of that; later versions
                                  may add from which one on Locus may use it (see `locus.memory.model.formats`)

Metadata and the values of pending writes end with a line feed, `=` and a checksum. JSON has no line feed. `before` is
that of a `Run`, or empty. A *place* names a checkpoint inside its thread: its namespace and its id, as netstrings.

What one change of anything could hide is proved:

- The checksum of an entry covers what its writer knew. Behind it stands what the script chose, "<number of the one
  before it in its namespace> <parent>", and a seal over that, the number and the time: 8 letters of a SHA-1, because a
  script can compute no other one. So a history without a gap is proved from its newest entry on.
- The checksum of a payload covers the rev, so it fits no other entry; that of a pending write, its place and its task.
- L and I say that a field exists, so that "there is no such checkpoint" is never the answer to the loss of one.

Formats 1 and 2 have none of these proofs. What was stored in them stays as it is, and is accepted: in format 2, a
checksum stands behind `#` and covers less, and in format 1 there is none. Such an entry has a payload in such a form.

A thread has six keys however long it becomes, so renewing their time to live costs a save no more at turn 1,000 than
at turn 1. Redis does not take a thread that expires out of the index. Reads skip what is left of it there, and remove
it. A thread that is in the index, and gone before its time, was evicted: that is an error, and the index keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1, sha256
from typing import Any, NamedTuple
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.codec import canonical, check_sum, checksum, decode, run_checksum
from locus.memory.model.ids import shown_thread
from locus.memory.model.records import Ancestor, AncestorQuery, Entry, Extent, Run, RunInfo, Stored, Write, writes_order
from locus.memory.model.sizes import Measured, MeasuredCheckpoint, MeasuredWrites, text_bytes

FORMAT = 3
"""The version of this layout, as it stands under `<prefix>format`."""
_CHECKED = 3
"""The oldest one with a checksum over the number of buckets."""


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


def format_arguments(buckets: int) -> tuple[int, int, int]:
    """The arguments of WRITE_FORMAT."""
    return FORMAT, buckets, checksum("buckets", buckets)


def check_buckets(count: int, version: int, found: bytes | None) -> None:
    """Raise `ValueError` if the number of buckets does not fit its checksum: every thread would seem to be gone."""
    if found is None and version < _CHECKED:
        return
    if found is None or int(found) != checksum("buckets", count):
        raise ValueError("the number of buckets does not fit its checksum")


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
    """Write what the writer of an entry knows. The script puts the time in front, and links with a seal behind."""
    created, pairs = _instant(entry.created_at), metadata_pairs(entry.metadata).decode()
    texts = (entry.namespace, pairs, entry.checkpoint_id, entry.rev, created)
    return net_texts(*texts, _with_checksum(entry.metadata, checksum(*texts, entry.metadata)))


_SUM, _OLD_SUM = "\n=", "\n#"
"""What stands before a checksum, and what stood there in format 2."""


def _with_checksum(text: str, found: int) -> str:
    return f"{text}{_SUM}{found}"


class _Checked(NamedTuple):
    """A text, and the checksum that was stored behind it; of format 2 if `is_old`, and None if it is of format 1."""

    text: str
    sum: int | None
    is_old: bool

    @classmethod
    def of(cls, text: str) -> _Checked:
        plain, mark, found = text.partition(_SUM)
        if mark:
            return cls(plain, int(found), False)
        plain, mark, found = text.partition(_OLD_SUM)
        return cls(plain, int(found) if mark else None, True)


class StoredEntry(NamedTuple):
    """An entry as it is stored, read and checked."""

    entry: Entry
    previous: int | None
    """The number of the checkpoint before it in its namespace, 0 if it is the first; None in an older format."""

    @property
    def bound(self) -> str | None:
        """What its payload is bound to: its rev, or nothing in an older format."""
        return None if self.previous is None else self.entry.rev


def link_text(previous: int, parent_id: str | None) -> bytes:
    """Write what an entry is linked to."""
    return (f"{previous}" if parent_id is None else f"{previous} {parent_id}").encode()


def _seal(seq: int, at: bytes, found: int, link: bytes) -> bytes:
    """The seal over what a script has put around the text of a writer: `linked` in `lua/shared/changes.lua`."""
    return sha1(b"%d %b %d %b" % (seq, at, found, link), usedforsecurity=False).hexdigest()[:8].encode()


def relinked(seq: int, stored: bytes, previous: int | None, parent_id: str | None) -> bytes:
    """Write a stored entry with other links. One of an older format keeps that, and has a parent only."""
    at, parts = stored[:16], nets(stored, 16)
    text = b"".join(map(net, parts[:6]))
    if previous is None:
        return at + text + (b"" if parent_id is None else net(parent_id))
    link = link_text(previous, parent_id)
    return at + text + net(link) + net(_seal(seq, at, int(parts[5].rpartition(b"=")[2]), link))


def to_entry(thread_id: str, number: int | bytes, stored: bytes | None) -> Entry:
    return to_stored_entry(thread_id, number, stored).entry


def to_stored_entry(thread_id: str, number: int | bytes, stored: bytes | None) -> StoredEntry:
    """Read an entry, and check all that proves it by itself."""
    try:
        seq = int(number)
    except ValueError:
        raise CorruptCheckpointError(f"a checkpoint of {shown_thread(thread_id)} has no number") from None
    what = f"checkpoint {seq} of {shown_thread(thread_id)}"
    try:
        if stored is None:
            raise ValueError("its entry is missing")
        parts = nets(stored, 16)
        namespace, pairs, checkpoint_id, rev, created_at, text, *_ = (part.decode() for part in parts)
        metadata = _Checked.of(text)
        about = [namespace, pairs, checkpoint_id, rev, created_at, metadata.text]
        previous: int | None = None
        if metadata.is_old:
            parent_id = _old_parent(parts[6:])
            del about[1]
            if metadata.sum is None and not text.endswith("}"):
                raise ValueError("its metadata is no JSON object")
        else:
            previous, parent_id = _links(seq, stored[:16], metadata.sum, parts[6:])
        created = datetime.fromisoformat(created_at)
    except ValueError:
        raise CorruptCheckpointError(f"{what} cannot be read") from None
    check_sum(metadata.sum, what, *about)
    entry = Entry(thread_id, namespace, checkpoint_id, parent_id, seq, rev, created, metadata.text)
    return StoredEntry(entry, previous)


def _old_parent(parts: Sequence[bytes]) -> str | None:
    if len(parts) > 1:
        raise ValueError("there is more behind its parent")
    return parts[0].decode() if parts else None


def _links(seq: int, at: bytes, found: int | None, parts: Sequence[bytes]) -> tuple[int, str | None]:
    """Read the number of the checkpoint before an entry, and its parent."""
    link, sealed = parts
    if found is None or sealed != _seal(seq, at, found, link):
        raise ValueError("its links do not fit their seal")
    previous, mark, parent_id = link.decode().partition(" ")
    return int(previous), parent_id if mark else None


def to_history(
    thread_id: str, answer: Sequence[bytes], namespace: str | None, limit: int | None, before_seq: int | None
) -> list[Entry]:
    """Read an answer of HISTORY, and check that nothing is missing in it."""
    if not answer:
        return []
    first, *rows = answer
    entries = [to_stored_entry(thread_id, rows[at], rows[at + 1]) for at in range(0, len(rows), 2)]
    expected: dict[str, int | None] = {}
    if namespace is not None and before_seq is None:
        expected = {namespace: int(first) if first.isdigit() else -1}
    elif namespace is not None and before_seq is not None and first:
        named, previous = to_stored_entry(thread_id, before_seq, first)
        expected = {namespace: previous if named.namespace == namespace else None}
    check_chain(thread_id, entries, expected, whole=limit is None or len(entries) < limit)
    return [stored.entry for stored in entries]


def check_chain(
    thread_id: str, newest_first: Sequence[StoredEntry], expected: dict[str, int | None] | None = None, *, whole: bool
) -> None:
    """Check that each entry is the one that its successor in its namespace names.

    `expected` has the number of the first one of a namespace. None stands for a number that nobody knows, because an
    older version has stored the successor. If they are `whole`, the oldest of each namespace must be its first.
    """
    expected = expected or {}
    fits = len({(entry.namespace, entry.checkpoint_id) for entry, _ in newest_first}) == len(newest_first)
    for entry, previous in newest_first:
        fits = fits and expected.get(entry.namespace) in (None, entry.seq)
        expected[entry.namespace] = previous
    if not fits or (whole and any(expected.values())):
        raise CorruptCheckpointError(f"the history of {shown_thread(thread_id)} is damaged")


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
    return time_in(stored[:16])


def time_in(text: bytes) -> int:
    """The time of a commit, as an entry or an index of a bucket has it."""
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpointError("the time of a commit is damaged in Redis, in an index or an entry") from None


def payload_text(rev: str, extents: Iterable[Extent], head: str, manifest: str) -> bytes:
    shown = "".join([f"{branch} {run} {skip} {length};" for branch, run, skip, length in extents])
    return bound_payload(rev, shown, head, manifest)


def bound_payload(rev: str, shown: str, head: str, manifest: str) -> bytes:
    """Write a payload, given the text of its extents."""
    return net_texts(shown, head, manifest, f"={checksum(rev, shown, head, manifest)}")


class Payload(NamedTuple):
    """A payload as it is stored, read and checked."""

    extents: str
    head: str
    manifest: str
    is_checked: bool
    """Whether there was a checksum."""


def to_payload(stored: bytes | None, bound: str | None) -> Payload:
    """Read a payload that is bound to a rev (see `StoredEntry.bound`)."""
    if stored is None:
        raise ValueError("a payload is missing")
    shown, head, manifest, *found = (part.decode() for part in nets(stored))
    what = "the payload of a checkpoint"
    if bound is not None:
        (mark,) = found
        check_sum(int(mark.removeprefix("=")) if mark.startswith("=") else -1, what, bound, shown, head, manifest)
    else:
        check_sum(int(found[0]) if found else None, what, shown, head, manifest)
    return Payload(shown, head, manifest, bool(found))


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


def to_manifest(thread_id: str, namespace: str, checkpoint_id: str, answer: Sequence[bytes]) -> tuple[str, str]:
    """Read the rev and the manifest in an answer of MANIFEST."""
    seq, stored, payload = answer
    row = to_stored_entry(thread_id, seq, stored)
    entry = is_asked(row.entry, namespace, checkpoint_id)
    try:
        return entry.rev, to_payload(payload, row.bound).manifest
    except ValueError:
        raise CorruptCheckpointError(f"checkpoint {entry.seq} of {shown_thread(thread_id)} cannot be read") from None


def write_text(at: bytes, task_id: str, write: Write) -> bytes:
    """Write a pending write of a task of the checkpoint at a place."""
    texts = (str(write.idx), write.task_path, write.channel)
    found = checksum(at.decode(), task_id, *texts, write.value)
    return net_texts(*texts, _with_checksum(write.value, found))


def to_writes(at: bytes, task_id: bytes, stored: bytes) -> list[Write]:
    """Read the pending writes of a task of the checkpoint at a place."""
    parts, task = [part.decode() for part in nets(stored)], task_id.decode()
    writes: list[Write] = []
    for start in range(0, len(parts), 4):
        idx, path, channel, text = parts[start : start + 4]
        value = _Checked.of(text)
        about = (idx, channel) if value.is_old else (at.decode(), task, idx, path, channel)
        check_sum(value.sum, "a pending write", *about, value.text)
        writes.append(Write(task, path, int(idx), channel, value.text))
    return writes


def check_tasks(at: bytes, tasks: bytes, sealed: bytes | None) -> None:
    """Refuse a list of the tasks of a place that does not fit its seal. An older version made none."""
    if sealed is not None and sealed != sha1(at + tasks, usedforsecurity=False).hexdigest()[:8].encode():
        raise CorruptCheckpointError("the tasks with pending writes do not fit their seal")


def to_ancestors(query: AncestorQuery, answer: Sequence[Any]) -> list[Ancestor]:
    """Read the ancestors of a checkpoint in an answer of ANCESTORS, with their pending writes to some channels."""
    line: dict[str, Ancestor] = {}
    if not answer:
        return []
    child = is_asked(to_entry(query.thread_id, *answer[:2]), query.namespace, query.checkpoint_id)
    for at in range(2, len(answer), 4):
        seq, stored, payload, tasks = answer[at : at + 4]
        row = to_stored_entry(query.thread_id, seq, stored)
        entry = is_asked(row.entry, query.namespace, child.parent_id)
        if entry.checkpoint_id in line or entry.checkpoint_id == query.checkpoint_id:
            break
        try:
            _, head, manifest, _ = to_payload(payload, row.bound)
            writes = to_task_writes(place(entry.namespace, entry.checkpoint_id), tasks)
        except (ValueError, IndexError):
            where = f"checkpoint {entry.seq} of {shown_thread(query.thread_id)}"
            raise CorruptCheckpointError(f"{where} cannot be read") from None
        line[entry.checkpoint_id] = Ancestor.of(Stored(entry, head, manifest), writes, query.channels)
        child = entry
    return [*line.values()]


def to_task_writes(at: bytes, answer: Sequence[bytes]) -> list[Write]:
    """Read the pending writes at a place, from names of tasks and their writes in turn, into their order."""
    found = [write for start in range(0, len(answer), 2) for write in to_writes(at, *answer[start : start + 2])]
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
    before = "" if before_seq is None else before_seq
    return ["*" if namespace is None else "", start, before, UNLIMITED if limit is None else limit]


def milliseconds(at: datetime | None) -> str:
    """A time as scripts take it; empty for none."""
    return "" if at is None else str(int(at.timestamp() * 1000))
