"""The tables that every SQL backend has: their columns, and the migrations that make them.

The columns are the same everywhere, and every statement gets them from here. `NewCheckpoint` is a checkpoint as an
INSERT writes it, and `CheckpointRow` one as a SELECT returns it. Each backend's own columns and indexes are in its
migrations.

A migration is a file in the package of a backend: `migrations/0001.sql` makes the tables of format 1, and
`migrations/0002.sql` turns those into the tables of format 2. Where the table of the format itself takes statements of
its own, they are in `migrations/0000.sql`. A released migration never changes.
"""

from __future__ import annotations

import re
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from locus.errors import ConfigurationError
from locus.memory.model import formats


class NewCheckpoint(NamedTuple):
    """A row of `checkpoints` as an INSERT writes it: the values as the driver takes them, or SQL for them."""

    thread: Any
    namespace: Any
    checkpoint_id: Any
    parent_id: Any
    seq: Any
    rev: Any
    created_at: Any
    metadata: Any
    head: Any
    manifest: Any


class CheckpointRow(NamedTuple):
    """A row of checkpoints as a SELECT of `Flavour.columns` returns it: an entry, and the other columns of the SELECT.

    The values are as the driver returns them.
    """

    thread_id: str
    namespace: str
    checkpoint_id: str
    parent_id: str | None
    seq: int
    rev: str
    created_at: Any
    metadata: Any
    head: Any = None
    manifest: Any = None
    passed: Any = None
    """True if its namespace has newer checkpoints."""
    thread: int = 0
    """The key of its thread."""
    key: int = 0
    """The number of the row itself."""
    checksum: int | None = None
    """The checksum of the row, in databases that keep one (see `Flavour.checkpoint_proof`)."""
    previous: int | None = None
    """The number of the checkpoint that precedes it in its namespace, in databases that keep it; 0 for the first."""
    seal: int | str | None = None
    """The seal of the row (see `locus.memory.model.seals`), or a text if an older version has made none."""
    owner: str | None = None
    owner_seal: int | str | None = None
    """What proves the row of its thread, and the seal of that."""


THREAD_COLUMNS = "id, thread_id, last_seq, expires_at"
CHECKPOINT_COLUMNS = ", ".join(NewCheckpoint._fields)
RUN_COLUMNS = "thread, branch, number, start, count, seq, items, items_before"
"""The columns of the table of runs. `items_before` is `Run.before`."""
WRITE_KEY = "thread, namespace, checkpoint_id, task_id, idx"
WRITE_COLUMNS = f"{WRITE_KEY}, task_path, channel, value"
RUN_INFO = "branch, number, start, count"
"""The columns of a `RunInfo`, in the order of its fields."""
KNOWN = "checkpoint_id, seq, rev, parent_id"
"""The columns of a `Known`, in the order of its fields."""


def without_thread(columns: str) -> str:
    return columns.removeprefix("thread, ")


def of(alias: str, columns: str) -> str:
    """The columns of a table that has an alias: `of("c", "seq, rev")` is `c.seq, c.rev`."""
    return ", ".join(f"{alias}.{column}" for column in columns.split(", "))


def read_migrations(package: str) -> tuple[str, ...]:
    """Read the migrations of a backend's package, oldest first."""
    found = [file for file in files(package).joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    return tuple(file.read_text(encoding="utf-8") for file in sorted(found, key=lambda file: file.name))


def read_script(package: str, *path: str) -> str:
    """Read a script of a backend's package."""
    return files(package).joinpath(*path).read_text(encoding="utf-8")


def statements_in(script: str, **names: str) -> tuple[str, ...]:
    """Split a script into its statements, with names in the place of `${prefix}` and other placeholders.

    Each statement ends with a semicolon at the end of a line; `--` at the start of a line begins a comment.
    """
    text = "".join(line for line in script.splitlines(keepends=True) if not line.startswith("--"))
    text = Template(text).substitute(names) if names else text
    return tuple(statement.strip() for statement in text.split(";\n") if statement.strip())


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 40
"""The longest name of tables that a user may choose.

Most databases allow some 60 characters, and the endings of the names of tables and indexes need some of them.
"""


def checked_name(name: object, what: str, longest: int = LONGEST_NAME, *, letter_first: bool = False) -> str:
    """Check a name that will be pasted into a statement."""
    if (
        not isinstance(name, str)
        or not _NAME.fullmatch(name)
        or len(name) > longest
        or (letter_first and name.startswith("_"))
    ):
        raise ConfigurationError(
            f"{what} must be letters, digits and underscores, {longest} at most, and "
            f"{'begin with a letter' if letter_first else 'no digit first'}, got {name!r:.80}"
        )
    return name


def space_tables(table_name: str, space: str) -> str:
    """The beginning of the names of tables of another key space, which is chosen like `table_name`."""
    return checked_name(f"{table_name}__{space}", f"table_name, with __{space} behind it,")


def check_format(found: int, known: int, least: object, where: str) -> None:
    """Refuse tables that a newer version made, unless this one knows `least`, the format that is needed to use them."""
    formats.check_format(found, known, least, f"the tables in {where} have")


def checked_format(found: object, known: int) -> int:
    """Check the format to migrate from, as a user gave it to `ddl()`."""
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= known:
        raise ConfigurationError(f"from_format is a number from 0 (no tables) to {known}, got {found!r:.40}")
    return found


def other_tables(what: str, found: int, wanted: int, call: str, *, reading: bool) -> ConfigurationError:
    """Make the error for tables that are missing or of an older format, and that may not be changed.

    `call` returns the statements that make or migrate them (see `script`).
    """
    state = f"have format {found}, not {wanted}" if found else "are not there"
    reason = "they are only read here" if reading else "auto_create_table is off"
    return ConfigurationError(f"{what} {state}, and {reason}: have somebody run what {call} returns")


def script(backend: str, found: int, *, partitions: int = 0) -> str:
    """Write the call that returns the statements which migrate tables of this format."""
    if found:
        return f"{backend}.ddl(from_format={found})"
    return f"{backend}.ddl({f'partitions={partitions}' if partitions else ''})"
