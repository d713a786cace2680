"""The steps of an operation, without I/O, and how each database spells them.

An operation is a generator. It yields statements, is sent their rows, and returns its result, so that the same lines
serve SQLite, which blocks an OS thread of its own, and servers, whose drivers are async. A `Flavour` holds what
databases spell differently. Statements are written with `?`, whatever the driver wants.

Large values of pending writes are packed by zlib, because what a task wrote appears in the next checkpoint once more.
zlib is part of Python, so every installation can read it. A value that is small, or huge, or that hardly shrinks,
stays JSON that a person can read.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
"""How many columns of a `CheckpointRow` every statement selects."""

PORTION = 500
"""How many values one statement names; every database takes that many."""


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
    """The values in lists that are short enough for one statement."""
    left = iter(values)
    while portion := list(islice(left, size)):
        yield portion


def marks(count: int) -> str:
    """`(?, ?, ?)`"""
    return f"({', '.join('?' * count)})"


class Flavour:
    """How one database spells what databases spell differently. The defaults are standard SQL.

    The names of the tables are attributes, quoted as statements need them.
    """

    dialect: Dialect = EXACT
    lock = " FOR UPDATE"
    """After a SELECT: nobody else may lock or change the row until this transaction ends."""
    json_mark = "?"
    """The placeholder for a value of a JSON column."""
    newest = "c.id DESC"
    """The order of checkpoints of all threads, newest first."""
    along_history = ""
    """After SELECT, for checkpoints `c` of one namespace by number: a hint for a database that would go through all."""
    checksums = False
    """Whether rows have a checksum: where JSON comes back as it was written. Other servers have checksums of pages."""

    def __init__(self, table_prefix: str = "locus_") -> None:
        self.prefix = table_prefix
        self.threads = self.table("threads")
        self.checkpoints = self.table("checkpoints")
        self.runs = self.table("runs")
        self.writes = self.table("writes")
        self.joined = f"{self.checkpoints} c JOIN {self.threads} t ON t.id = c.thread"
        self.alive = "(t.expires_at IS NULL OR t.expires_at > ?)"
        self.passed = self.is_passed()
        """A condition: the namespace of the checkpoint `c` has newer ones."""
        self.entry = self.columns()
        """The columns of an entry."""
        checksum = ("checksum",) if self.checksums else ()
        self.stored = self.columns("head", "manifest", "passed", "thread", *checksum)
        """The columns of a checkpoint for a load."""
        self.exported = self.columns("head", "manifest", "thread", *checksum)
        """The columns of a checkpoint for an export."""
        self.held = self.held_columns(with_checksum=self.checksums)
        """A `CheckpointRow` with all its fields for the checkpoint `h` that a reader has."""
        self.run_columns = ", ".join((RUN_COLUMNS, *checksum))
        """The columns of the table of runs; `thread` comes first."""
        self.run = ", ".join((f"{RUN_INFO}, {self.json_column('items')}, items_before", *checksum))
        """The columns of a run for `read_run`."""
        json_columns = ("metadata", "head", "manifest")
        values = [self.json_mark if name in json_columns else "?" for name in NewCheckpoint._fields]
        columns, marked = (CHECKPOINT_COLUMNS, *checksum), (*values, *("?" for _ in checksum))
        self.checkpoint_columns = ", ".join(columns)
        """The columns of the table of checkpoints that a copy has, too; `thread` comes first."""
        self.pending_columns = ", ".join((WRITE_COLUMNS, *checksum))
        """The same for the table of pending writes."""
        self.insert_checkpoint = f"INSERT INTO {self.checkpoints} ({', '.join(columns)}) VALUES ({', '.join(marked)})"
        run_marks = ("?, ?, ?, ?, ?, ?", self.json_mark, "?", *("?" for _ in checksum))
        self.run_marks = f"VALUES ({', '.join(run_marks)})"
        self.insert_run = f"INSERT INTO {self.runs} ({self.run_columns}) {self.run_marks}"

    def latest_in(self, namespace: str) -> tuple[str, list[Any]]:
        """What follows AND, and its values: the checkpoint `c` is the latest in a namespace of the thread `t`."""
        return f"{self.in_order('c.namespace')} = ? ORDER BY c.seq DESC LIMIT 1", [self.text(namespace)]

    def which_one(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> tuple[str, list[Any]]:
        """What follows WHERE, and its values, for one checkpoint `c`: the latest if no id is given."""
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
        """What to select for a `CheckpointRow`: the columns of an entry, and `more` of its fields."""
        last = max((CheckpointRow._fields.index(name) + 1 for name in more), default=ENTRY_COLUMNS)
        names = enumerate(CheckpointRow._fields[:last])
        return ", ".join(
            self._column(name, "c") if at < ENTRY_COLUMNS or name in more else "NULL" for at, name in names
        )

    def held_columns(self, *, with_checksum: bool) -> str:
        """The rev and the manifest, or everything that the checksum is of, and NULL for all other fields."""
        of_checksum = {*CheckpointRow._fields} - {"thread_id", "parent_id", "passed", "thread", "key"}
        names = of_checksum if with_checksum else {"rev", "manifest"}
        return ", ".join(self._column(name, "h") if name in names else "NULL" for name in CheckpointRow._fields)

    def _column(self, name: str, alias: str) -> str:
        """A field of a `CheckpointRow`."""
        if name in ("metadata", "head", "manifest"):
            return self.json_column(f"{alias}.{name}")
        others = {"thread_id": "t.thread_id", "passed": self.truth(self.passed), "key": f"{alias}.id"}
        return others.get(name, f"{alias}.{name}")

    def new_checkpoint(self, thread: int, entry: Entry, head: str, manifest: str) -> NewCheckpoint:
        """The row of a checkpoint, for an INSERT."""
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
        """The row of a run, for an INSERT."""
        return (thread, *run[:4], seq, self.json(run.items), run.before)

    def read_run(self, row: Sequence[Any]) -> Run:
        """A run from the columns `run`."""
        branch, number, start, length, items, before = row
        return Run(branch, number, start, length, self.read_json(items), before)

    def read_runs(self, rows: Sequence[Sequence[Any]], found: dict[str, dict[int, Run]]) -> None:
        """Add runs from the columns `run` to what was found, by branch and number."""
        for row in rows:
            run = self.read_run(row)
            found.setdefault(run.branch, {})[run.number] = run

    def read_entry(self, row: CheckpointRow) -> Entry:
        """The entry of a checkpoint."""
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

    def new_write(self, write: Write) -> tuple[Any, ...]:
        """A pending write for an INSERT: what follows the ids in its row."""
        return (write.idx, self.text(write.task_path), self.text(write.channel), *self.write_values(write.value))

    def table(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def truth(self, condition: str) -> str:
        """A condition as a column."""
        return condition

    @property
    def of_thread(self) -> str:
        """A condition: the checkpoint `c` belongs to the thread with the id `?`."""
        return self.is_of_thread("c")

    def is_of_thread(self, alias: str) -> str:
        """A condition: a row that is joined with its thread `t` belongs to the one with the id `?`."""
        return "t.thread_id = ?"

    def in_order(self, column: str) -> str:
        """A namespace as the index of sequence numbers has it, for queries about the order of checkpoints."""
        return column

    def json_column(self, column: str) -> str:
        """An expression that gives a JSON column as text."""
        return column

    def bytes_of(self, column: str) -> str:
        """How many bytes the text of a JSON column has, in UTF-8."""
        return f"octet_length({self.json_column(column)})"

    def write_bytes(self) -> str:
        """How many bytes the value of a pending write has, as it is kept."""
        return self.bytes_of("value")

    def holds(self, column: str) -> str:
        """A condition that a JSON column contains the plain value `?`; "" if the database cannot tell.

        It may be true of other columns, too. `leaf` prepares the value.
        """
        return ""

    def leaf(self, value: str) -> Any:
        """The value (JSON) that `holds` compares with."""
        return value

    def pairs(self, count: int) -> str:
        """The right side of `(a, b) IN`, for so many pairs."""
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
        """The columns with the value of a pending write, which `put_write` takes last; `of` is a table's alias."""
        return self.json_column(f"{of}value")

    def write_values(self, text: str) -> tuple[Any, ...]:
        """JSON as those columns hold it."""
        return (self.json(text),)

    def read_write(self, columns: Sequence[Any]) -> str:
        """The JSON that those columns hold."""
        return self.read_json(columns[0])

    def time(self, at: datetime) -> Any:
        """A time as the driver takes it."""
        return at

    def now(self) -> Any:
        """The current time as the driver takes it."""
        return self.time(datetime.now(UTC))

    def expiry(self, at: datetime | None) -> Any:
        """The time at which a thread expires, or NULL if it does not."""
        return None if at is None else self.time(at)

    def no_time(self, column: str) -> str:
        """A condition: what a column of times holds is none. Most databases would not have let it in."""
        return "1 = 0"

    def read_time(self, value: Any) -> datetime:
        """A time as the driver gave it; raises TypeError or ValueError if it is none."""
        if not isinstance(value, datetime):
            raise TypeError(f"{type(value).__name__} is no time")
        return value

    def text(self, value: str) -> str:
        """An id as a text column can hold it; the order of ids stays the same."""
        return value

    def read_text(self, value: str) -> str:
        return value

    def json(self, text: str) -> str:
        """JSON as a JSON column can hold it without changing it."""
        return to_native(text, self.dialect)

    def manifest_json(self, text: str) -> str:
        """The same for a manifest, which only Locus reads."""
        return self.json(text)

    def read_json(self, text: Any) -> str:
        if not isinstance(text, str):
            raise CorruptCheckpointError("a JSON column holds no text")
        return text if self.dialect.exact else from_native(text)


SMALLEST, LARGEST = 256, 262_144
"""In characters. Packing larger ones would hold up an event loop, and PostgreSQL compresses those by itself."""
LEVEL = 6
"""A twentieth smaller than with level 1, for some hundredths of a millisecond a value."""


def packed(text: str) -> bytes | None:
    """The text in less than three quarters of its bytes, or None."""
    if not SMALLEST <= len(text) <= LARGEST:
        return None
    plain = text.encode()
    found = zlib.compress(plain, LEVEL)
    return found if len(found) * 4 < len(plain) * 3 else None


def unpacked(data: bytes) -> str:
    unpacking = zlib.decompressobj()
    try:
        # A character is four bytes at most. A few bytes can be packed so that they become very many.
        text = unpacking.decompress(data, 4 * LARGEST).decode()
    except (zlib.error, ValueError) as error:
        raise CorruptCheckpointError(f"a pending write cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise CorruptCheckpointError("a pending write cannot be unpacked: it is cut off, or too large")
    return text


class PackingFlavour(Flavour):
    """A database whose JSON columns hold nothing but JSON, so that packed values have a column of their own."""

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
