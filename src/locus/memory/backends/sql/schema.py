"""The tables that every SQL backend has, and the migrations that make them.

The columns below are the same everywhere. Each backend's own columns and indexes are in its migrations:

    threads      id, thread_id, last_seq, expires_at
    checkpoints  id, thread, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest
    runs         thread, branch, number, start, count, seq, items
    writes       thread, namespace, checkpoint_id, task_id, idx, task_path, channel, value

A migration is a file in the package of a backend: `migrations/0001.sql` makes the tables of format 1, and
`migrations/0002.sql` turns those into the tables of format 2. A released migration never changes.
"""

from __future__ import annotations

from importlib.resources import files

from locus.errors import ConfigurationError, UnsupportedFormatError


def read_migrations(package: str) -> tuple[str, ...]:
    """The migrations of a backend's package, oldest first."""
    found = [file for file in files(package).joinpath("migrations").iterdir() if file.name.endswith(".sql")]
    return tuple(file.read_text(encoding="utf-8") for file in sorted(found, key=lambda file: file.name))


def statements_in(script: str) -> tuple[str, ...]:
    """The statements of a script. Each ends with a semicolon at the end of a line; `--` at its start is a comment."""
    text = "".join(line for line in script.splitlines(keepends=True) if not line.startswith("--"))
    return tuple(statement.strip() for statement in text.split(";\n") if statement.strip())


def check_format(found: int, known: int, where: str) -> None:
    """Refuse tables that were made by a newer version."""
    if found > known:
        raise UnsupportedFormatError(
            f"the tables in {where} have format {found}, and this version of Locus knows up to {known}: "
            "upgrade locus-sdk"
        )


def checked_format(found: object, known: int) -> int:
    """The format to migrate from, as a user gave it to `ddl()`."""
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= known:
        raise ConfigurationError(f"from_format is a number from 0 (no tables) to {known}, got {found!r:.40}")
    return found


def other_tables(what: str, found: int, wanted: int, backend: str, *, reading: bool) -> ConfigurationError:
    """The error for tables that are missing or of an older format, and that may not be changed."""
    state = f"have format {found}, not {wanted}" if found else "are not there"
    reason = "they are only read here" if reading else "auto_create_table is off"
    return ConfigurationError(f"{what} {state}, and {reason}: have somebody run what {script(backend, found)} returns")


def script(backend: str, found: int) -> str:
    """The call that returns the statements which migrate tables of this format."""
    return f"{backend}.ddl({f'from_format={found}' if found else ''})"
