"""What proves an answer of an SQLite file, which has no checksums of its own: seals, order, and a second look.

Every row has a seal (see `locus.memory.model.seals`), which is checked whenever the row is read. That finds a row that
was changed, or is another thread's. Rows are found through indexes, which may be damaged while all rows are whole:

- The newest checkpoint of a namespace has to be the one that the row of the thread names.
- In a history, each checkpoint names the number of the one before it.
- "There is no such thread" and "there is no such checkpoint" are said after a second look through another index: that
  of the digests of the threads' ids, or that of the order.

A seal that an older version has not made reads as a text, `old` with the checksum of the row, if it has one. A row that
is newer than the upgrade (`locus_format.unsealed_…`), and whose seal is gone, is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any
from zlib import crc32

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import FormerItemsFlavour, Row, Steps, packed, unpacked
from locus.memory.backends.sql.schema import RUN_INFO, WRITE_COLUMNS, WRITE_KEY, CheckpointRow
from locus.memory.model.codec import check_sum, checksum, run_checksum
from locus.memory.model.ids import shown_thread
from locus.memory.model.records import Entry, Run, Write
from locus.memory.model.seals import NOTHING_SAVED, LostSealError, Newest, checkpoint_seal, seal

SEALED = 4
"""The oldest format with seals."""
CHECKED = 3
"""The oldest format with checksums."""
_OLD = "old"

_OF_CHECKSUM = {"namespace", "checkpoint_id", "seq", "rev", "created_at", "metadata", "head", "manifest", "checksum"}

OWNER = "t.id || ' ' || t.last_seq || ' ' || coalesce(t.expires_at, '') || ' ' || t.newest"
"""What the seal of the row of a thread covers, beside the id of the thread: read by `newest_of`."""


def _seal_or_age(alias: str, table: str, key: str = "id", *, checksum: bool = False) -> str:
    """The seal of a row, or the text `old` and its checksum if the row is older than seals; else NULL."""
    text = f"'{_OLD}' || coalesce({alias}checksum, '')" if checksum else f"'{_OLD}'"
    return f"coalesce({alias}seal, (SELECT {text} FROM locus_format f WHERE {alias}{key} <= f.unsealed_{table}))"


OWNER_SEAL = _seal_or_age("t.", "threads")


def digest_of(thread_id: str) -> int:
    """The number by which the row of a thread is found if the index of its ids is damaged."""
    return int.from_bytes(blake2b(thread_id.encode(), digest_size=8).digest(), signed=True)


def owner_text(key: int, last_seq: int, expires_at: str | None, newest: str) -> str:
    """What `OWNER` gives for a row with these values. `newest` is the text of a `Newest`."""
    return f"{key} {last_seq} {expires_at or ''} {newest}"


def owner_seal(thread_id: str, owner: str) -> int:
    """The seal of the row of a thread. It has no key of another row in it, because its own is made with the row."""
    return crc32(f"{thread_id}\n{owner.partition(' ')[2]}".encode())


def newest_of(thread_id: str, owner: object, sealed: object) -> Newest | None:
    """Check the row of a thread, and read which checkpoints are its newest; None if an older version has written it."""
    if isinstance(sealed, str) and sealed.startswith(_OLD):
        return None
    if sealed is None:
        raise LostSealError(shown_thread(thread_id))
    if not isinstance(owner, str) or owner_seal(thread_id, owner) != sealed:
        raise _damaged(thread_id, "its row does not fit its seal")
    return Newest.read(owner.rpartition(" ")[2])


def _damaged(thread_id: str, why: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"{shown_thread(thread_id)} is damaged: {why}")


def unsealed(checksum: int | None) -> str:
    """What stands in the place of a seal that was never made."""
    return f"{_OLD}{'' if checksum is None else checksum}"


def _old_checksum(sealed: object, what: str) -> int | None:
    """The checksum beside a seal that was never made; raises if the seal is lost."""
    if not isinstance(sealed, str) or not sealed.startswith(_OLD):
        raise LostSealError(what)
    found = sealed.removeprefix(_OLD)
    return int(found) if found else None


class SealedFlavour(FormerItemsFlavour):
    """The SQL of a file of some format, with all that proves its rows."""

    checkpoint_proof = ("checksum", "previous", "seal")
    row_proof = ("checksum", "seal")

    def __init__(self, stored: int = SEALED) -> None:
        self._format = stored
        super().__init__()
        self.one_entry = self.columns("owner", "owner_seal")
        self.stored = self.columns("head", "manifest", "passed", "owner", "owner_seal")
        before = "items_before" if stored >= CHECKED else "NULL"
        self.run = f"{RUN_INFO}, items, {before}, {self._seal('', 'runs')}, thread"

    def columns(self, *more: str) -> str:
        return super().columns(*more, "thread", *self.checkpoint_proof)

    def held_columns(self) -> str:
        return self.only(_OF_CHECKSUM)

    def _column(self, name: str, alias: str) -> str:
        if name == "seal":
            # The checksum of a checkpoint is a column of its own.
            return _seal_or_age("c.", "checkpoints") if self._format >= SEALED else f"'{_OLD}'"
        if name in ("owner", "owner_seal"):
            found = OWNER if name == "owner" else OWNER_SEAL
            return found if self._format >= SEALED else f"'{_OLD}'"
        if (name == "checksum" and self._format < CHECKED) or (name == "previous" and self._format < SEALED):
            return "NULL"
        return super()._column(name, alias)

    def _seal(self, alias: str, table: str, key: str = "id") -> str:
        """The seal of a run or a pending write."""
        if self._format >= SEALED:
            return _seal_or_age(alias, table, key, checksum=True)
        return f"'{_OLD}' || coalesce({alias}checksum, '')" if self._format >= CHECKED else f"'{_OLD}'"

    # ---- threads

    def new_thread(self, thread_id: str) -> tuple[str, Sequence[Any]]:
        newest = NOTHING_SAVED.text
        sealed = owner_seal(thread_id, owner_text(0, 0, None, newest))
        columns = "thread_id, last_seq, digest, newest, seal"
        values = (thread_id, digest_of(thread_id), newest, sealed)
        return self.insert_unless_there(self.threads, columns, "VALUES (?, 0, ?, ?, ?)"), values

    def _owner(self, thread_id: str) -> Steps[tuple[int, Newest | None] | None]:
        """Look for the row of a thread that has not expired, and check it: its key, and its newest checkpoints."""
        select = f"SELECT t.thread_id, t.id, {self.alive}, {OWNER}, {OWNER_SEAL} FROM {self.threads} t WHERE"
        rows = yield f"{select} t.thread_id = ?", (self.now(), thread_id)
        if not rows:
            rows = yield f"{select} t.digest = ?", (self.now(), digest_of(thread_id))
            others = [row for row in rows if row[0] != thread_id and digest_of(row[0]) != digest_of(thread_id)]
            if others:
                raise _damaged(thread_id, "its row has another id")
            rows = [row for row in rows if row[0] == thread_id]
            if rows:
                newest_of(thread_id, *rows[0][3:])
                raise _damaged(thread_id, "an index does not know it")
        for _, key, is_alive, owner, sealed in rows:
            newest = newest_of(thread_id, owner, sealed)
            return (key, newest) if is_alive else None
        return None

    # ---- checkpoints

    def sealed_checkpoint(self, thread: int, entry: Entry, head: str, manifest: str, previous: int) -> tuple[Any, ...]:
        """Make the row of a checkpoint, for an INSERT. What removals may change later has its own part in the seal."""
        row = self.new_checkpoint(thread, entry, head, manifest)
        return (*row, *proof_of_checkpoint(row, previous))

    def check_checkpoint(self, row: CheckpointRow) -> None:
        check_sum(row.checksum, "a checkpoint", *_about(row), row.head, row.manifest)

    def read_entry(self, row: CheckpointRow) -> Entry:
        if isinstance(row.seal, int):
            content = checksum(*_about(row), row.checksum)
            if checkpoint_seal(content, row.thread, row.previous, row.parent_id) != row.seal:
                raise CorruptCheckpointError("a checkpoint does not fit its seal: the stored data is damaged")
        else:
            _old_checksum(row.seal, "a checkpoint")
        return super().read_entry(row)

    def proven(
        self, row: CheckpointRow | None, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> Steps[None]:
        if self._format < SEALED:
            return
        if row is None:
            yield from self._is_not_there(thread_id, namespace, checkpoint_id)
            return
        newest = newest_of(thread_id, row.owner, row.owner_seal)
        if row.namespace != namespace or checkpoint_id not in (None, row.checkpoint_id):
            raise _damaged(thread_id, "an index leads to another checkpoint")
        if newest is None:
            return
        if str(row.owner).partition(" ")[0] != str(row.thread):
            raise _damaged(thread_id, "an index leads to another thread")
        if checkpoint_id is None:
            last = yield from self._last(row.thread, namespace, newest)
            if last != row.seq:
                raise _damaged(thread_id, "an index does not know its newest checkpoint")

    def _last(self, thread: int, namespace: str, newest: Newest) -> Steps[int]:
        """The number of the newest checkpoint of a namespace, 0 if it has none."""
        last = newest.of(namespace)
        if last is None:
            # So many namespaces were saved to since, that the row of the thread has no room for this one. Every
            # checkpoint of it is looked at, through the index that is not in the order of the numbers.
            ((last,),) = yield (
                f"SELECT coalesce(max(seq), 0) FROM {self.checkpoints}"
                " WHERE thread = ? AND namespace = ? AND checkpoint_id >= ''",
                (thread, namespace),
            )
        return int(last)

    def _is_not_there(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[None]:
        """Take a second look, before it is said that a checkpoint is not there."""
        owner = yield from self._owner(thread_id)
        if owner is None:
            return
        key, newest = owner
        if checkpoint_id is None:
            if newest is not None and (yield from self._last(key, namespace, newest)):
                raise _damaged(thread_id, "an index does not know its checkpoints")
            return
        rows = yield (  # the condition on the number chooses the index of the order
            f"SELECT 1 FROM {self.checkpoints} WHERE thread = ? AND namespace = ? AND seq > 0 AND +checkpoint_id = ?",
            (key, namespace, checkpoint_id),
        )
        if rows:
            raise _damaged(thread_id, "an index does not know one of its checkpoints")

    def proven_history(
        self,
        rows: Sequence[CheckpointRow],
        thread_id: str,
        namespace: str | None,
        limit: int | None,
        before_seq: int | None,
    ) -> Steps[None]:
        if self._format < SEALED:
            return
        owner = yield from self._owner(thread_id)
        if owner is None:
            if rows:
                raise _damaged(thread_id, "its row is missing")
            return
        key, newest = owner
        expected: dict[str, int | None] = {}
        if before_seq is None and newest is not None:
            expected |= newest.numbers
            if namespace is not None:
                expected = {namespace: (yield from self._last(key, namespace, newest))}
        elif namespace is not None and before_seq is not None:
            at = yield (
                f"SELECT previous FROM {self.checkpoints} WHERE thread = ? AND namespace = ? AND seq = ?",
                (key, namespace, before_seq),
            )
            expected = dict.fromkeys([namespace], at[0][0] if at else None)
        self._follow(rows, thread_id, key, expected, whole=limit is None or len(rows) < limit, named=namespace)

    def _follow(
        self,
        rows: Sequence[CheckpointRow],
        thread_id: str,
        key: int,
        expected: dict[str, int | None],
        *,
        whole: bool,
        named: str | None,
    ) -> None:
        """Check that each checkpoint is the one that its successor names. `expected` has the first of each namespace.

        None stands for a number that nobody knows, because an older version has stored the successor.
        """
        names = {} if named is None else {named: named}
        for row in rows:
            name = names.get(row.namespace) or names.setdefault(row.namespace, Newest({}).by_namespace(row.namespace))
            if row.thread != key or expected.get(name) not in (None, row.seq):
                raise _damaged(thread_id, "its history has a gap")
            expected[name] = row.previous
        if whole and any(expected.values()):
            raise _damaged(thread_id, "its history has a gap")

    # ---- runs

    def new_run(self, thread: Any, run: Run, seq: int) -> tuple[Any, ...]:
        branch, number, start, length, items, before = run
        return (thread, branch, number, start, length, seq, items, before, None, seal(run_checksum(*run), thread))

    def read_run(self, row: Sequence[Any]) -> Run:
        (run,) = _checked_runs([row], row[-1])
        return run

    def read_runs(self, rows: Sequence[Sequence[Any]], runs: dict[str, dict[int, Run]], thread: int) -> None:
        here, members = None, dict[int, Run]()
        for run in _checked_runs(rows, thread):
            if run.branch != here:
                here = run.branch
                members = runs.setdefault(here, {})
            members[run.number] = run

    # ---- pending writes

    def put_write(self) -> str:
        """An INSERT of the columns of `sealed_write`."""
        return (
            f"INSERT INTO {self.writes} ({WRITE_COLUMNS}, seal)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT ({WRITE_KEY}) DO UPDATE SET task_path ="
            " excluded.task_path, channel = excluded.channel, value = excluded.value, checksum = NULL,"
            " seal = excluded.seal"
        )

    def write_columns(self, of: str = "") -> str:
        return f"{of}value, {self._seal(of, 'writes', 'rowid')}, {of}thread, {of}namespace, {of}checkpoint_id"

    def proven_writes(self, rows: Sequence[Row], thread_id: str, namespace: str, checkpoint_id: str) -> Steps[None]:
        if not rows:
            return
        found = yield f"SELECT t.id FROM {self.threads} t WHERE t.thread_id = ?", (thread_id,)
        tasks = {(task_id, idx) for task_id, idx, *_ in rows}
        wanted = {(*found[0], namespace, checkpoint_id)}
        if len(tasks) < len(rows) or {tuple(row[-3:]) for row in rows} != wanted:
            raise _damaged(thread_id, "an index leads to other pending writes")

    def read_pending(self, row: Row) -> Write:
        task_id, idx, task_path, channel, value, stored, *place = row
        text = unpacked(value) if isinstance(value, bytes) else self.read_json(value)
        write = Write(task_id, task_path, idx, channel, text)
        if isinstance(stored, int):
            fits = write_seal(place, write) == stored
        else:
            fits = _old_checksum(stored, "a pending write") in (None, checksum(text))
        if not fits:
            raise CorruptCheckpointError("a pending write does not fit its checksum: the stored data is damaged")
        return write

    def sealed_write(self, place: Sequence[Any], write: Write) -> tuple[Any, ...]:
        """Make the row of a pending write, for `put_write`: a BLOB in the place of its text if that is packed."""
        thread, namespace, checkpoint_id, _ = place
        value = packed(write.value) or write.value
        sealed = write_seal((thread, namespace, checkpoint_id), write)
        return (*place, write.idx, write.task_path, write.channel, value, sealed)


def write_seal(place: Sequence[Any], write: Write) -> int | None:
    """The seal of a pending write of a checkpoint: its thread, namespace and id are its place."""
    thread, namespace, checkpoint_id = place
    if type(thread) is not int:
        return None
    task_id, task_path, idx, channel, text = write
    return seal(checksum(namespace, checkpoint_id, task_id, idx, task_path, channel, text), thread)


def proof_of_checkpoint(row: Sequence[Any], previous: int) -> tuple[int, int, int | None]:
    """The columns `checkpoint_proof` of a `NewCheckpoint`: its checksum, the number before it, and its seal."""
    thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest = row
    # Both checksums begin with the same texts, and go on from there.
    about = crc32(f"{namespace}\n{checkpoint_id}\n{seq}\n{rev}\n{created_at}\n{metadata}".encode())
    covered = crc32(f"\n{head}\n{manifest}".encode(), about)
    return covered, previous, checkpoint_seal(crc32(b"\n%d" % covered, about), thread, previous, parent_id)


_about = attrgetter("namespace", "checkpoint_id", "seq", "rev", "created_at", "metadata")
"""What both checksums of a checkpoint begin with."""


def _checked_runs(rows: Sequence[Sequence[Any]], owner: object) -> list[Run]:
    """Make runs of the columns `run`. A long thread has thousands, so nothing but the seal is computed for each."""
    thread = owner if type(owner) is int else -1
    runs: list[Run] = []
    for row in rows:
        branch, number, start, length, items, before, stored, _ = row
        if type(items) is not str:
            raise CorruptCheckpointError("a JSON column holds no text")
        found = run_checksum(branch, number, start, length, items, before)
        if type(stored) is int:
            fits = seal(found, thread) == stored
        else:
            fits = _old_checksum(stored, "a run of items") in (None, found)
        if not fits:
            raise CorruptCheckpointError("a run of items does not fit its checksum")
        runs.append(Run._make(row[:6]))
    return runs
