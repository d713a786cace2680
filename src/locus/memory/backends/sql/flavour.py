"""Operations as steps without I/O, and the spelling of SQL in each database.

An operation is a generator. It yields statements, is sent their rows, and returns its result. So the same code serves
SQLite, which blocks an OS thread of its own, and servers, whose drivers are async. A `Flavour` holds what databases
spell differently. Statements are written with `?`, whatever the driver expects.

Large values of pending writes are packed by zlib, because the next checkpoint stores the same values again. zlib is
part of Python, so every installation can read them. A value that is small, huge, or that hardly shrinks stays JSON that
a person can read.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.schema import (
    CHECKPOINT_COLUMNS,
    RUN_COLUMNS,
    RUN_INFO,
    WRITE_COLUMNS,
    WRITE_KEY,
    CheckpointRow,
    NewCheckpoint,
)
from locus.memory.model.codec import EXACT, Dialect, from_native, to_native
from locus.memory.model.records import Entry, Run, Stored, Write

T = TypeVar("T")
Row = Sequence[Any]
Steps = Generator[tuple[str, Sequence[Any]], list[Any], T]
"""Yields statements with their values, and is sent their rows (an empty list for a statement that returns none)."""

ENTRY_COLUMNS = len(CheckpointRow._fields) - len(CheckpointRow._field_defaults)
"""The number of columns of a `CheckpointRow` that every statement selects."""

PORTION = 500
"""The number of values that one statement may name. Every database accepts that many."""


def run_steps(steps: Steps[T], execute: Callable[[str, Sequence[Any]], list[Any]]) -> T:
    """Run the steps with a driver that blocks."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


async def run_steps_async(steps: Steps[T], execute: Callable[[str, Sequence[Any]], Awaitable[list[Any]]]) -> T:
    """Run the steps with an async driver."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(*statement))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        steps.close()


def portions(values: Sequence[T], size: int = PORTION) -> Iterator[list[T]]:
    """Split values into lists that are short enough for one statement."""
    left = iter(values)
    while portion := list(islice(left, size)):
        yield portion


def marks(count: int) -> str:
    """Placeholders for so many values: `(?, ?, ?)`."""
    return f"({', '.join('?' * count)})"


class Flavour:
    """The SQL of one database, where databases differ. The defaults are standard SQL.

    Attributes hold the names of the tables, quoted as statements need them.
    """

    dialect: Dialect = EXACT
    lock = " FOR UPDATE"
    """Added to a SELECT: nobody else may lock or change the rows until this transaction ends."""
    json_mark = "?"
    """The placeholder for a value of a JSON column."""
    newest = "c.id DESC"
    """The order of checkpoints of all threads, newest first."""
    along_history = ""
    """A hint after SELECT for checkpoints `c` of one namespace in the order of their numbers.

    It keeps a database from reading all of them.
    """
    newest_format: int
    """The format of the tables that this version makes on a server."""
    checkpoint_proof: tuple[str, ...] = ()
    """Further columns of a checkpoint, which prove it. SQLite needs them; servers have checksums of their pages."""
    row_proof: tuple[str, ...] = ()
    """Further columns of a run, and of a pending write."""

    def __init__(self, table_prefix: str = "locus_") -> None:
        self.prefix = table_prefix
        self.threads = self.table("threads")
        self.checkpoints = self.table("checkpoints")
        self.runs = self.table("runs")
        self.writes = self.table("writes")
        self.joined = f"{self.checkpoints} c JOIN {self.threads} t ON t.id = c.thread"
        self.alive = "(t.expires_at IS NULL OR t.expires_at > ?)"
        self.of_thread = self.is_of_thread("c")
        """A condition: the checkpoint `c` belongs to the thread with the id `?`."""
        self.passed = self.is_passed()
        """A condition: the namespace of the checkpoint `c` has newer ones."""
        self.entry = self.columns()
        """The columns of an entry."""
        self.one_entry = self.entry
        """The columns of an entry that is asked for alone."""
        self.stored = self.columns("head", "manifest", "passed", "thread")
        """The columns of a checkpoint for a load."""
        self.exported = self.columns("head", "manifest", "thread")
        """The columns of a checkpoint for an export."""
        self.held = self.held_columns()
        """All fields of a `CheckpointRow` for the checkpoint `h` that a reader already has."""
        self.run_columns = ", ".join((RUN_COLUMNS, *self.row_proof))
        """The columns of the table of runs; `thread` comes first."""
        self.run = f"{RUN_INFO}, {self.json_column('items')}, items_before"
        """The columns of a run for `read_run`."""
        json_columns = ("metadata", "head", "manifest")
        values = [self.json_mark if name in json_columns else "?" for name in NewCheckpoint._fields]
        proof = self.checkpoint_proof
        columns, marked = (CHECKPOINT_COLUMNS, *proof), (*values, *("?" for _ in proof))
        self.checkpoint_columns = ", ".join(columns)
        """The columns of the table of checkpoints that a copy takes over; `thread` comes first."""
        self.pending_columns = ", ".join((WRITE_COLUMNS, *self.row_proof))
        """The columns of the table of pending writes that a copy takes over; `thread` comes first."""
        self.insert_checkpoint = f"INSERT INTO {self.checkpoints} ({', '.join(columns)}) VALUES ({', '.join(marked)})"
        run_marks = ("?, ?, ?, ?, ?, ?", self.json_mark, "?", *("?" for _ in self.row_proof))
        self.run_marks = f"VALUES ({', '.join(run_marks)})"
        self.insert_run = f"INSERT INTO {self.runs} ({self.run_columns}) {self.run_marks}"

    def latest_in(self, namespace: str) -> tuple[str, list[Any]]:
        """A condition, ORDER BY and LIMIT, with their values, for the latest checkpoint `c` in a namespace."""
        return f"{self.in_order('c.namespace')} = ? ORDER BY c.seq DESC LIMIT 1", [self.text(namespace)]

    def which_one(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> tuple[str, list[Any]]:
        """The SQL after WHERE, with its values, for one checkpoint `c`: by its id, or the latest."""
        if checkpoint_id is None:
            condition, place = self.latest_in(namespace)
        else:
            condition = "c.namespace = ? AND c.checkpoint_id = ?"
            place = [self.text(namespace), self.text(checkpoint_id)]
        return f"{self.of_thread} AND {self.alive} AND {condition}", [self.text(thread_id), self.now(), *place]

    def is_passed(self) -> str:
        return (
            f"EXISTS (SELECT 1 FROM {self.checkpoints} n"
            f" WHERE n.thread = c.thread AND {self.in_order('n.namespace')} = {self.in_order('c.namespace')}"
            " AND n.seq > c.seq)"
        )

    def columns(self, *more: str) -> str:
        """The columns of a SELECT for a `CheckpointRow`: those of an entry, and `more` of its fields."""
        last = max((CheckpointRow._fields.index(name) + 1 for name in more), default=ENTRY_COLUMNS)
        names = enumerate(CheckpointRow._fields[:last])
        return ", ".join(
            self._column(name, "c") if at < ENTRY_COLUMNS or name in more else "NULL" for at, name in names
        )

    def held_columns(self) -> str:
        """The rev and the manifest, with NULL for all other fields."""
        return self.only({"rev", "manifest"})

    def only(self, names: Collection[str]) -> str:
        """All fields of a `CheckpointRow` for the checkpoint `h`, with NULL for those that are not named."""
        return ", ".join(self._column(name, "h") if name in names else "NULL" for name in CheckpointRow._fields)

    def _column(self, name: str, alias: str) -> str:
        """The expression for one field of a `CheckpointRow`."""
        if name in ("metadata", "head", "manifest"):
            return self.json_column(f"{alias}.{name}")
        others = {"thread_id": "t.thread_id", "passed": self.truth(self.passed), "key": f"{alias}.id"}
        return others.get(name, f"{alias}.{name}")

    def new_thread(self, thread_id: str) -> tuple[str, Sequence[Any]]:
        """The statement that creates the row of a thread, unless it is there."""
        return self.insert_unless_there(self.threads, "thread_id, last_seq", "VALUES (?, 0)"), (self.text(thread_id),)

    def new_checkpoint(self, thread: int, entry: Entry, head: str, manifest: str) -> NewCheckpoint:
        """Make the row of a checkpoint, for an INSERT."""
        return NewCheckpoint(
            thread,
            self.text(entry.namespace),
            self.text(entry.checkpoint_id),
            None if entry.parent_id is None else self.text(entry.parent_id),
            entry.seq,
            entry.rev,
            self.time(entry.created_at),
            self.json(entry.metadata),
            self.json(head),
            self.manifest_json(manifest),
        )

    def new_run(self, thread: Any, run: Run, seq: int) -> tuple[Any, ...]:
        """Make the row of a run, for an INSERT."""
        return (thread, *run[:4], seq, self.json(run.items), run.before)

    def read_run(self, row: Sequence[Any]) -> Run:
        """Make a run of the columns `run`."""
        branch, number, start, length, items, before = row
        return Run(branch, number, start, length, self.read_json(items), before)

    def read_runs(self, rows: Sequence[Sequence[Any]], runs: dict[str, dict[int, Run]], thread: int) -> None:
        """Add runs of a thread, made of the columns `run`, to `runs` by branch and number."""
        for row in rows:
            run = self.read_run(row)
            runs.setdefault(run.branch, {})[run.number] = run

    def read_entry(self, row: CheckpointRow) -> Entry:
        """The entry of a checkpoint. A row that does not fit its seal is refused, if it has one."""
        return self.unproven_entry(row)

    def unproven_entry(self, row: CheckpointRow) -> Entry:
        """The entry of a checkpoint, for whoever removes it."""
        try:
            created = self.read_time(row.created_at)
        except (TypeError, ValueError):
            raise CorruptCheckpointError(f"checkpoint {row.seq} has no time that can be read") from None
        return Entry(
            self.read_text(row.thread_id),
            self.read_text(row.namespace),
            self.read_text(row.checkpoint_id),
            None if row.parent_id is None else self.read_text(row.parent_id),
            row.seq,
            row.rev,
            created,
            self.read_json(row.metadata),
        )

    def read_checkpoint(self, row: CheckpointRow, runs: Mapping[str, list[Run]] | None = None) -> Stored:
        """A checkpoint from the columns `stored`, with these runs."""
        head, manifest = self.read_json(row.head), self.read_json(row.manifest)
        self.check_checkpoint(row)
        return Stored(self.read_entry(row), head, manifest, {} if runs is None else runs, bool(row.passed))

    def check_checkpoint(self, row: CheckpointRow) -> None:
        """Refuse a row that does not fit its checksum, if it has one."""

    def proven(
        self, row: CheckpointRow | None, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> Steps[None]:
        """Refuse the answer to a question for one checkpoint if something else proves that it is another one.

        None is the answer that there is none.
        """
        yield from ()

    def proven_history(
        self,
        rows: Sequence[CheckpointRow],
        thread_id: str,
        namespace: str | None,
        limit: int | None,
        before_seq: int | None,
    ) -> Steps[None]:
        """Refuse a history if something proves that some of it is missing."""
        yield from ()

    def proven_writes(self, rows: Sequence[Row], thread_id: str, namespace: str, checkpoint_id: str) -> Steps[None]:
        """Refuse pending writes, rows of `write_list`, if something proves that they are of another checkpoint."""
        yield from ()

    def new_write(self, write: Write) -> tuple[Any, ...]:
        """Make the part of a pending write's row that follows the ids, for an INSERT."""
        return (write.idx, self.text(write.task_path), self.text(write.channel), *self.write_values(write.value))

    def read_pending(self, row: Row) -> Write:
        """Make a pending write of a row of `write_list`. One that does not fit its seal is refused, if it has one."""
        task_id, idx, task_path, channel, *value = row
        names = (self.read_text(task_id), self.read_text(task_path), idx, self.read_text(channel))
        return Write(*names, self.read_write(value))

    def table(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def truth(self, condition: str) -> str:
        """Make a condition a column of a SELECT."""
        return condition

    def is_of_thread(self, alias: str) -> str:
        """A condition: a row that is joined with its thread `t` belongs to the thread with the id `?`."""
        return "t.thread_id = ?"

    def in_order(self, column: str) -> str:
        """The expression for a namespace in queries about the order of checkpoints.

        It fits the index of sequence numbers.
        """
        return column

    def json_column(self, column: str) -> str:
        """An expression that returns a JSON column as text."""
        return column

    def bytes_of(self, column: str) -> str:
        """An expression for the number of bytes that the text of a JSON column has in UTF-8."""
        return f"octet_length({self.json_column(column)})"

    def write_bytes(self) -> str:
        """An expression for the number of bytes that the stored value of a pending write has."""
        return self.bytes_of("value")

    def holds(self, column: str) -> str:
        """A condition that a JSON column contains the plain value `?`; "" if the database cannot tell.

        It may hold for columns without the value, too. `leaf` prepares the value.
        """
        return ""

    def leaf(self, value: str) -> Any:
        """Make of a JSON value what is bound to the placeholder in the condition that `holds` returns."""
        return value

    def pairs(self, count: int) -> str:
        """What stands to the right of `(a, b) IN` for `count` pairs: `((?, ?), (?, ?))`."""
        return f"({', '.join(['(?, ?)'] * count)})"

    def insert_unless_there(self, table: str, columns: str, values: str) -> str:
        """An INSERT that does nothing if the row exists."""
        return f"INSERT INTO {table} ({columns}) {values} ON CONFLICT DO NOTHING"

    def put_write(self) -> str:
        """An INSERT of a pending write that replaces an existing one."""
        return (
            f"INSERT INTO {self.writes} ({WRITE_COLUMNS})"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, {self.json_mark}) ON CONFLICT ({WRITE_KEY}) DO UPDATE"
            " SET task_path = excluded.task_path, channel = excluded.channel, value = excluded.value"
        )

    def write_columns(self, of: str = "") -> str:
        """The columns that hold the value of a pending write, last in `put_write`. `of` is an alias, with its dot."""
        return self.json_column(f"{of}value")

    def write_values(self, text: str) -> tuple[Any, ...]:
        """Split JSON into the values of the columns `write_columns`."""
        return (self.json(text),)

    def read_write(self, columns: Sequence[Any]) -> str:
        """Read the JSON of a pending write from its columns `write_columns`."""
        return self.read_json(columns[0])

    def time(self, at: datetime) -> Any:
        """Convert a time to what the driver takes."""
        return at

    def now(self) -> Any:
        """The current time as the driver takes it."""
        return self.time(datetime.now(UTC))

    def expiry(self, at: datetime | None) -> Any:
        """Convert the time at which a thread expires; NULL if it does not expire."""
        return None if at is None else self.time(at)

    def no_time(self, column: str) -> str:
        """A condition: a column of times holds something else. Most databases cannot store that."""
        return "1 = 0"

    def read_time(self, value: Any) -> datetime:
        """Convert a time from what the driver returns; raises TypeError or ValueError if it is none."""
        if not isinstance(value, datetime):
            raise TypeError(f"{type(value).__name__} is no time")
        return value

    def text(self, value: str) -> str:
        """Encode an id for a text column. Encoded ids sort as the ids do."""
        return value

    def read_text(self, value: str) -> str:
        return value

    def json(self, text: str) -> str:
        """Encode JSON so that a JSON column returns it unchanged."""
        return to_native(text, self.dialect)

    def manifest_json(self, text: str) -> str:
        """Encode a manifest for its column. Only Locus reads it."""
        return self.json(text)

    def read_json(self, text: Any) -> str:
        if not isinstance(text, str):
            raise CorruptCheckpointError("a JSON column holds no text")
        return text if self.dialect.exact else from_native(text)


def time_in_json(text: object) -> datetime | None:
    """Read a time out of JSON; None if it is none."""
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


SMALLEST, LARGEST = 256, 262_144
"""The sizes, in characters, between which a value is packed.

Packing larger ones would hold up an event loop, and PostgreSQL compresses those by itself.
"""
MOST_REMEMBERED = 4_096
"""The largest size, in bytes, of a packed value that is remembered with its text."""
LEVEL = 6
"""The level of zlib. Packed values are a twentieth smaller than with level 1, and take some microseconds more."""


def packed(text: str) -> bytes | None:
    """Pack a text; None if that saves less than a quarter of its bytes."""
    if not SMALLEST <= len(text) <= LARGEST:
        return None
    plain = text.encode()
    data = zlib.compress(plain, LEVEL)
    return data if len(data) * 4 < len(plain) * 3 else None


def unpacked(data: bytes) -> str:
    """Unpack a text. Small ones are remembered: what tasks wrote since a snapshot is read again and again."""
    return _unpacked_small(data) if len(data) <= MOST_REMEMBERED else _unpacked(data)


def _unpacked(data: bytes) -> str:
    unpacking = zlib.decompressobj()
    try:
        # A character is four bytes at most. A few bytes can be packed so that they become very many.
        text = unpacking.decompress(data, 4 * LARGEST).decode()
    except (zlib.error, ValueError) as error:
        raise CorruptCheckpointError(f"a pending write cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise CorruptCheckpointError("a pending write cannot be unpacked: it is cut off, or too large")
    return text


_unpacked_small = lru_cache(maxsize=4_096)(_unpacked)


class PackingFlavour(Flavour):
    """The SQL of a database whose JSON columns hold only JSON, so that packed values have a column of their own."""

    def __init__(self, table_prefix: str = "locus_") -> None:
        super().__init__(table_prefix)
        self.pending_columns += ", packed"

    def write_columns(self, of: str = "") -> str:
        return f"{self.json_column(f'{of}value')}, {of}packed"

    def write_bytes(self) -> str:
        return f"COALESCE({self.bytes_of('value')}, octet_length(packed))"

    def write_values(self, text: str) -> tuple[Any, ...]:
        data = packed(text)
        return (self.json(text), None) if data is None else (None, data)

    def read_write(self, columns: Sequence[Any]) -> str:
        value, data = columns
        return self.read_json(value) if data is None else unpacked(data)


class FormerItemsFlavour(Flavour, ABC):
    """The SQL of a database that may have the old table of items (see `locus.memory.long_term.old_items`)."""

    def former_table(self, name: str) -> str:
        """The name of one of the old tables, in statements on a connection of another key space."""
        return self.table(name)

    @abstractmethod
    def has_table(self, table: str) -> tuple[str, Sequence[Any]]:
        """A statement that returns a row if a table, named as `former_table` does, exists."""

    def migration_lock(self) -> tuple[str, Sequence[Any]] | None:
        """A statement after which no other transaction migrates tables until this one ends.

        None if every transaction that writes has such a lock.
        """
        return None
