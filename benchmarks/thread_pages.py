"""What a page costs in a store of a thousand threads, and of a million: lists, history, search and look-ups.

`python -m benchmarks.thread_pages [--quick]`. One thread is saved as usual, and then multiplied by SQL inside the
database, with its index of words and its metadata: to save a million would take an hour. Another thread, which is saved
as usual too, has a history and a word and a metadata value that no other has.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

from benchmarks.clock import Calls, frozen, in_turn
from benchmarks.command_line import shown
from benchmarks.costs import Figure, Section
from benchmarks.settings import FULL, QUICK, Settings
from benchmarks.subjects.postgresql import run_sql, shared_server
from benchmarks.tables import ms, table
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import postgresql_checkpointer, sqlite_checkpointer
from locus.memory.backends.sqlite import search as sqlite_search
from locus.memory.checkpointer import Checkpointer

LIMIT = 2.0
TINY_MS = 0.3
"""A difference below this is no growth."""
FIRST = 1_000
"""The number of the first thread that is made by SQL; those before it are saved as usual."""
BUSY, PATTERN = "busy", "pattern"
COPIED = "'thread-' || {seven_digits}"


def calls(handle: Checkpointer) -> Calls:
    """The pages. Whatever lists threads belongs here."""
    return {
        "`list_threads(50)`": lambda: handle.list_threads(50),
        "`list_threads(50, 'thread-00009*')`": lambda: handle.list_threads(50, "thread-00009*"),
        "`list_threads(50, after=…)`, in the middle": lambda: handle.list_threads(50, after="thread-00005"),
        "`list_threads(50, prefix=…)`": lambda: handle.list_threads(50, prefix="thread-00009"),
        "`recent_threads(50)`": lambda: handle.recent_threads(50),
        "`locus threads`": lambda: shown(handle, "threads"),
        "`locus threads --recent`": lambda: shown(handle, "threads --recent"),
        "`list_with_metadata(50)`": lambda: handle.list_with_metadata(50),
        "`history(thread, 10)`": lambda: handle.history(BUSY, 10),
        "`search` of a word that one thread has": lambda: handle.search("zanzibar", 10),
        "`query_by_metadata`, a value that one thread has": lambda: handle.query_by_metadata("owner", "ada", 10),
        "`query_by_metadata`, a value that all threads have": lambda: handle.query_by_metadata("kind", "chat", 10),
    }


class Crowd(ABC):
    """A store with very many threads."""

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def open(self) -> Checkpointer: ...

    @abstractmethod
    def multiply(self, count: int) -> None:
        """Add so many threads that are like the one named `PATTERN`."""

    @abstractmethod
    def remove(self) -> None: ...

    async def fill(self, count: int) -> Checkpointer:
        handle = self.open()
        state = AgentState(agent_id="bench").with_message(Message.user("Hello there"))
        await handle.save(state, PATTERN, metadata={"kind": "chat"})
        await handle.search("hello")  # so that its words are in the index, and are multiplied with it
        await handle.close()
        self.multiply(count)
        handle = self.open()
        for number in range(20):
            state = state.with_message(Message.assistant(f"Answer {number} from Zanzibar"))
            await handle.save(state, BUSY, metadata={"owner": "ada"} if number == 10 else {})
        await handle.search("zanzibar")
        return handle


def _insert(target: str, columns: Iterable[str], changed: dict[str, str], rows: str, options: str = "") -> str:
    """The statement that adds rows with these columns: some are given, and the others are the pattern's."""
    names = list(columns)
    values = ", ".join(changed.get(name, f"p.{name}") for name in names)
    return f"INSERT INTO {target} ({', '.join(names)}) {options} SELECT {values} FROM {rows}"


class SQLiteCrowd(Crowd):
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{uuid4().hex}.db"

    def open(self) -> Checkpointer:
        return sqlite_checkpointer(self._path)

    def multiply(self, count: int) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            ((thread,),) = connection.execute("SELECT id FROM locus_threads WHERE thread_id = ?", (PATTERN,))
            connection.execute("CREATE TEMP TABLE n AS " + _NUMBERS, (count,))
            made = f"n.i + {FIRST}"
            at = "strftime('%Y-%m-%dT%H:%M:%f', '2025-01-01', '+' || n.i || ' seconds') || '000+00:00'"
            given: dict[str, dict[str, str]] = {
                "locus_threads": {"id": made, "thread_id": COPIED.format(seven_digits="printf('%07d', n.i)")},
                # A row without a checksum is one that an older version has stored.
                "locus_checkpoints": {"id": made, "thread": made, "created_at": at, "checksum": "NULL"},
                "locus_runs": {"id": made, "thread": made},
                "locus_metadata": {"checkpoint": made},
            }
            own = {"locus_threads": "p.id", "locus_metadata": "p.checkpoint"}
            for name, changed in given.items():
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
                rows = f"n, (SELECT * FROM {name}) p WHERE {own.get(name, 'p.thread')} = {thread}"
                # What is read must not grow while it is: the pattern is read first.
                connection.execute(f"CREATE TEMP TABLE pattern AS SELECT * FROM {name}")
                connection.execute(_insert(name, columns, changed, rows.replace(f"FROM {name}", "FROM pattern")))
                connection.execute("DROP TABLE pattern")
            for odd, what in enumerate(("runs", "checkpoints")):
                found = connection.execute(f"{sqlite_search._SELECT[what]} WHERE thread = ?", (thread,)).fetchone()
                if found is not None:
                    connection.execute(
                        f"INSERT INTO locus_search (rowid, text) SELECT 2 * ({made}) + {odd}, ? FROM n",
                        (sqlite_search._indexed(found[1]),),
                    )
                    connection.execute(
                        f"UPDATE locus_indexed SET up_to = (SELECT max(id) FROM locus_{what}) WHERE what = ?", (what,)
                    )
            # A seal is made for one row, and does not fit its copies: they are rows of an older version.
            for name in ("checkpoints", "runs"):
                connection.execute(f"UPDATE locus_{name} SET seal = NULL")
            for name in ("threads", "checkpoints", "runs"):
                connection.execute(f"UPDATE locus_format SET unsealed_{name} = {1 << 40}")
            connection.execute("UPDATE locus_threads SET seal = NULL, newest = NULL")
            connection.commit()
            connection.execute("ANALYZE")

    def remove(self) -> None:
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()


_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n"


class PostgreSQLCrowd(Crowd):
    name = "postgresql"

    def __init__(self, _folder: Path) -> None:
        self._server = shared_server()
        self._name = f"b{uuid4().hex[:12]}"

    def open(self) -> Checkpointer:
        return postgresql_checkpointer(dsn=self._server.url, table_name=self._name)

    def multiply(self, count: int) -> None:
        ((thread,),) = run_sql(self._server, f"SELECT id FROM {self._name}_threads WHERE thread_id = '{PATTERN}'")
        made = f"n.i + {FIRST}"
        at = "timestamptz '2025-01-01' + n.i * interval '1 second'"
        given: dict[str, dict[str, str]] = {
            "threads": {"id": made, "thread_id": COPIED.format(seven_digits="lpad(n.i::text, 7, '0')")},
            "checkpoints": {"id": made, "thread": made, "created_at": at},
            "runs": {"thread": made},
            "search": {"thread": made},
            "indexed": {"thread": made},
        }
        for name, changed in given.items():
            target = f"{self._name}_{name}"
            columns = [
                column
                for (column,) in run_sql(
                    self._server,
                    f"SELECT column_name FROM information_schema.columns WHERE table_name = '{target}'"
                    " AND is_generated = 'NEVER'",
                )
            ]
            own = "p.id" if name == "threads" else "p.thread"
            rows = f"generate_series(1, {count}) n(i), {target} p WHERE {own} = {thread}"
            options = "OVERRIDING SYSTEM VALUE" if "id" in columns else ""
            run_sql(self._server, _insert(target, columns, changed, rows, options))
            run_sql(self._server, f"VACUUM ANALYZE {target}")

    def remove(self) -> None:
        found = run_sql(self._server, f"SELECT tablename FROM pg_tables WHERE tablename LIKE '{self._name}%'")
        run_sql(self._server, f"DROP TABLE {', '.join(name for (name,) in found)}")


CROWDS: tuple[type[Crowd], ...] = (SQLiteCrowd, PostgreSQLCrowd)


async def measure_pages(settings: Settings, folder: Path, crowds: Sequence[type[Crowd]] = CROWDS) -> Section:
    """All pages of the small and the large store in turn."""
    few, many = settings.threads
    figures: list[Figure] = []
    rows: list[list[str]] = []
    for kind in crowds:
        stores = [kind(folder) for _ in settings.threads]
        handles = [await store.fill(count - 2) for store, count in zip(stores, settings.threads, strict=True)]
        try:
            for handle in handles:
                if len(await handle.list_threads(None)) != settings.threads[handles.index(handle)]:
                    raise RuntimeError(f"{kind.name}: not all threads are there")
            with frozen():
                small, large = await in_turn([calls(handle) for handle in handles], settings.pages)
        finally:
            for handle in handles:
                await handle.close()
            for store in stores:
                store.remove()
        for what, before in small.items():
            after = large[what]
            ok = after <= LIMIT * before or after - before < TINY_MS
            target = f"≤ {LIMIT:g} or < {TINY_MS} ms more"
            name = f"{what}, at {many:,} ÷ at {few:,} threads"
            figures.append(Figure(name, kind.name, target, f"{after / before:.2f}", ok))
            rows.append([kind.name, what, ms(before), ms(after)])
    head = ["backend", "page", f"at {few:,} threads, ms", f"at {many:,} threads, ms"]
    return Section("Pages of a store with very many threads", figures, table(head, rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thread_pages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few threads: to see that it works, not to measure")
    settings = QUICK if parser.parse_args().quick else FULL
    with tempfile.TemporaryDirectory(prefix="locus-bench-") as folder:
        print(asyncio.run(measure_pages(settings, Path(folder))).table)


if __name__ == "__main__":
    main()
