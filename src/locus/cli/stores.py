"""The store that a command looks at: how it is named, and how it is opened.

It is named with `-s URL`, as the first argument, or by the variable LOCUS_STORE; in a folder with one SQLite file of
Locus it may be left out. `env:NAME` stands for the URL in the variable NAME, so that a password is in no process list.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from locus.cli import tokens
from locus.errors import ConfigurationError, LocusError

if TYPE_CHECKING:
    from locus.memory.store import CheckpointStore

VARIABLES: Final = ("LOCUS_STORE", "LOCUS_SERVER_STORE")
HELP: Final = f"""\
The store is a URL: sqlite:///agents.db, postgresql://…, redis://…, s3://…, http://… . Name it with -s, as the first
argument, or in the variable LOCUS_STORE. env:NAME stands for the URL in the variable NAME. In a folder with one SQLite
file of Locus it may be left out.

{tokens.HELP}"""

_OURS: Final = (
    "SELECT 1 FROM sqlite_master WHERE type = 'table' "
    "AND name IN ('locus_checkpoints', 'locus__memory_checkpoints', 'locus__effects_checkpoints')"
)
_MOST_FILES: Final = 50


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a store."""
    command.add_argument(
        "-s", "--store", metavar="URL", default=argparse.SUPPRESS, help="the store: sqlite:///agents.db, redis://…"
    )
    tokens.add_option(command)


def take_store(options: argparse.Namespace, words: Sequence[str]) -> tuple[str, list[str]]:
    """The URL of the store, and the words that are left. A first word like a URL is the store, unless `-s` names it."""
    given = named_by_option(options)
    rest = list(words)
    if given is None and rest and is_store(rest[0]):
        given = rest.pop(0)
        options.taken_for_store = given
    if given is None and rest and os.path.isfile(rest[0]) and _is_ours(Path(rest[0])):  # noqa: PTH113 (a path that is too long is no file)
        raise ConfigurationError(
            f"{rest[0]!r:.80} is a file, and as a store it is named sqlite:{rest[0]}; if a thread is called like this, "
            "name the store with -s"
        )
    given = given or next(filter(None, map(os.environ.get, VARIABLES)), None) or _in_folder()
    from locus.transfer.stores import resolve_url

    return resolve_url(given), rest


def named_by_option(options: argparse.Namespace) -> str | None:
    """The URL given with `-s`, if any. An empty one is refused: it was meant to name one store, and no other."""
    given: str | None = getattr(options, "store", None)
    if given is not None and not given.strip():
        raise ConfigurationError("-s is empty: give the URL of a store (was it made from a variable that is not set?)")
    return given


def is_store(word: str) -> bool:
    """True if a word names a store rather than a thread."""
    from locus.memory.registry import list_checkpointers
    from locus.transfer.stores import FROM_ENVIRONMENT

    return word.startswith(FROM_ENVIRONMENT) or (word.partition(":")[0] in list_checkpointers() and ":" in word)


def _in_folder() -> str:
    """The URL of the only SQLite file of Locus in this folder."""
    stores = [path for path in sorted(Path().glob("*.db"))[:_MOST_FILES] if _is_ours(path)]
    if len(stores) == 1:
        return f"sqlite:{stores[0]}"
    if stores:
        names = ", ".join(f"sqlite:{path}" for path in stores[:5])
        raise ConfigurationError(f"several stores are in this folder: choose one with -s: {names}")
    raise ConfigurationError("say where the threads are kept: -s sqlite:///agents.db, or the variable LOCUS_STORE")


def _is_ours(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
            return connection.execute(_OURS).fetchone() is not None
    except sqlite3.Error:
        return False


@asynccontextmanager
async def opened(
    url: str, options: argparse.Namespace, *, to_write: bool = False, space: str | None = None
) -> AsyncIterator[CheckpointStore]:
    """Open the store at a URL, and close it at the end. Without `to_write` it is only read; it is never created.

    A store that has a key space of this name, and no threads yet, counts as there.
    """
    from locus.transfer.stores import open_store, open_to_read

    token = tokens.token_for(url, options.token_file)
    if to_write:
        await _must_exist(open_to_read(url, token), space)
    store = open_store(url, token) if to_write else open_to_read(url, token)
    try:
        yield store
    finally:
        await store.close()


async def _must_exist(store: CheckpointStore, space: str | None) -> None:
    """Refuse a store that was never used: in a mistyped place, "deleted 0 threads" would be taken for success."""
    from locus.memory.engine import NothingThereError

    try:
        async with store.using():
            pass
    except NothingThereError as nothing:
        if space is None:
            raise
        try:
            async with store.key_space(space).using():
                pass
        except NothingThereError:
            raise nothing from None  # it knows whether another framework's threads are there
    except LocusError:
        pass  # the command itself says what is wrong, or mends it
    finally:
        await store.close()
