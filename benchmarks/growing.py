"""What stores of millions of threads take: `python -m benchmarks.growing`, from constants that small stores have shown.

    python -m benchmarks.growing                       works it out, from benchmarks/results/growing.json
    python -m benchmarks.growing --disk 0.08           the same with your prices
    python -m benchmarks.growing --measure             measures the constants anew
    python -m benchmarks.growing --publish             puts the tables into docs/growing.md

A store gets threads of three checkpoints each, as conversations come: all threads have their first turn, then all have
their second, each time in another order. Every turn is a load and a save. Then the store grows to ten times as many
threads, and what was predicted for it is compared with what it takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, ClassVar
from uuid import uuid4

from benchmarks.content import after, encoded, turn_content
from benchmarks.machine import describe
from benchmarks.object_requests import measured as counted_requests
from benchmarks.projection import (
    FULL_TEXT,
    LEVELS,
    Check,
    Constants,
    Prices,
    StoreConstants,
    TableConstants,
    Unit,
    project,
    tables,
)
from benchmarks.publish import ROOT
from benchmarks.publish import replace as put_between_comments
from benchmarks.subjects.postgresql import run_sql, shared_server
from locus.core.state import AgentState
from locus.memory.backends import PostgreSQLBackend, postgresql_checkpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Searches

DATA = ROOT / "benchmarks" / "results" / "growing.json"
PAGE = ROOT / "docs" / "growing.md"
THREADS, TIMES, TURNS = 1_000, 10, 3
SMALLER = 4
"""What the first fourth of the threads takes is not counted: what is there once, and the first pages."""
AT_ONCE = 16
FEW = 500
"""Threads of the stores that are only weighed."""
ROUNDS = 200
PARTITIONS = 16
UNITS: dict[str, Unit] = {"threads": "thread", "indexed": "thread"}
"""What a table grows with; all others with the checkpoints."""


@dataclass(frozen=True)
class Weight:
    """What a table takes, in bytes; and of its largest B-tree: bytes, entries and levels."""

    rows: int
    index: int
    largest: int = 0
    entries: int = 0
    depth: int = 0


class Growing(ABC):
    """A store that is filled and weighed."""

    name: ClassVar[str]
    partitions: ClassVar[int] = 0
    page_bytes: ClassVar[int] = 8_192

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def open(self) -> Checkpointer:
        """A handle that holds nothing, so that loads come from the store."""

    @abstractmethod
    def weigh(self) -> dict[str, Weight]:
        """What each table takes. Handles may be open, but idle."""

    def move(self) -> None:
        """Move everything into partitions, where there can be some."""
        raise NotImplementedError

    @abstractmethod
    def remove(self) -> None: ...


class GrowingSQLite(Growing):
    name = "sqlite"
    page_bytes = 4_096

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{uuid4().hex}.db"

    def open(self) -> Checkpointer:
        return sqlite_checkpointer(self._path, cache_mb=0)

    def weigh(self) -> dict[str, Weight]:
        found: dict[str, Weight] = {}
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
            pages = connection.execute(
                "SELECT s.name, coalesce(m.tbl_name, s.name), coalesce(m.type, 'table'), sum(s.pgsize),"
                " max(length(s.path) - length(replace(s.path, '/', ''))), sum(s.ncell * (s.pagetype = 'leaf'))"
                " FROM dbstat s LEFT JOIN sqlite_master m ON m.name = s.name GROUP BY s.name"
            ).fetchall()
        for _, full_name, kind, size, depth, cells in pages:
            if not full_name.startswith("locus_"):
                continue
            name = full_name.removeprefix("locus_").partition("_")[0]  # FTS5 has several tables
            old = found.get(name, Weight(0, 0))
            if kind != "index":
                found[name] = replace(old, rows=old.rows + size)
                continue
            found[name] = replace(old, index=old.index + size)
            if size > old.largest:
                found[name] = replace(found[name], largest=size, entries=cells, depth=depth)
        return {name: weight for name, weight in found.items() if name not in ("format", "indexed", "writes")}

    def remove(self) -> None:
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()


_WEIGHTS = """\
WITH parts AS (
    SELECT '{table}'::regclass AS relid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = '{table}'::regclass
), indexes AS (
    SELECT i.relname, parts.relid, x.indexrelid, pg_relation_size(x.indexrelid) AS size, a.amname, i.relkind
    FROM parts JOIN pg_index x ON x.indrelid = parts.relid JOIN pg_class i ON i.oid = x.indexrelid
    JOIN pg_am a ON a.oid = i.relam
), btrees AS (
    SELECT size, bt.level + 1 AS depth, regexp_replace(relname, '_\\d+_|_\\d+$', '_') AS kind
    FROM indexes, bt_metap(indexrelid::regclass::text) bt WHERE amname = 'btree' AND relkind = 'i'
), largest AS (SELECT sum(size) AS size, max(depth) AS depth FROM btrees GROUP BY kind ORDER BY 1 DESC LIMIT 1)
SELECT (SELECT sum(pg_table_size(relid)) FROM parts), (SELECT coalesce(sum(size), 0) FROM indexes),
    (SELECT size FROM largest), (SELECT count(*) FROM {table}), (SELECT depth FROM largest)"""


class GrowingPostgreSQL(Growing):
    name = "postgresql"

    def __init__(self, folder: Path) -> None:
        self._server = shared_server()
        self._name = f"b{uuid4().hex[:12]}"
        run_sql(self._server, "CREATE EXTENSION IF NOT EXISTS pageinspect")

    def open(self) -> Checkpointer:
        return postgresql_checkpointer(
            dsn=self._server.url, table_name=self._name, cache_mb=0, partitions=self.partitions
        )

    def weigh(self) -> dict[str, Weight]:
        found = {}
        for name in ("threads", "checkpoints", "runs", "search", "indexed"):
            target = f"{self._name}_{name}"
            run_sql(self._server, f"VACUUM ANALYZE {target}")
            ((rows, index, largest, entries, depth),) = run_sql(self._server, _WEIGHTS.format(table=target))
            found[name] = Weight(int(rows), int(index), int(largest), int(entries), int(depth))
        return found

    def move(self) -> None:
        run_sql(self._server, PostgreSQLBackend.ddl(self._name, partitions=PARTITIONS, from_unpartitioned=True))
        run_sql(self._server, f'DROP SCHEMA "{self._name}_unpartitioned" CASCADE')

    def remove(self) -> None:
        found = run_sql(
            self._server,
            f"SELECT tablename FROM pg_tables t WHERE tablename LIKE '{self._name}%' AND NOT EXISTS"
            " (SELECT 1 FROM pg_inherits WHERE inhrelid = tablename::regclass)",
        )
        run_sql(self._server, f"DROP TABLE {', '.join(name for (name,) in found)}")


class GrowingPartitions(GrowingPostgreSQL):
    name = f"postgresql, {PARTITIONS} partitions"
    partitions = PARTITIONS


async def fill(handle: Checkpointer, first: int, count: int) -> None:
    """Threads from `first` on, a turn of each after the other, in ever another order."""
    order = Random(first)
    for number in range(TURNS):
        threads = order.sample(range(first, first + count), count)
        for at in range(0, count, AT_ONCE):
            await asyncio.gather(*(take_turn(handle, thread, number) for thread in threads[at : at + AT_ONCE]))


async def take_turn(handle: Checkpointer, thread: int, number: int) -> None:
    thread_id = f"thread-{thread:08}"
    state = await handle.load(thread_id, last=50) if number else AgentState(agent_id="bench")
    if state is None:
        raise RuntimeError("a thread that was saved is not there")
    # A hundred conversations are enough: nothing compares the texts of two threads.
    grown = after(state, turn_content(number, thread % 100))
    await handle.save(grown, thread_id, metadata={"user": f"u{thread % 1_000}"})


def constants_of(
    store: Growing, before: dict[str, Weight], weights: dict[str, Weight], added: int, threads: int
) -> StoreConstants:
    """What each of the threads that were added has added."""

    def one(name: str, weight: Weight) -> TableConstants:
        unit, old = UNITS.get(name, "checkpoint"), before[name]
        units = added * (1 if unit == "thread" else TURNS)
        rows, index = (weight.rows - old.rows) / units, (weight.index - old.index) / units
        if name in FULL_TEXT or not weight.entries:
            return TableConstants(unit, rows, index, depth=weight.depth)
        entries = weight.entries - old.entries
        return TableConstants(
            unit, rows, index, (weight.largest - old.largest) / entries, entries / units, weight.depth
        )

    found = {name: one(name, weight) for name, weight in weights.items()}
    return StoreConstants(
        store.name, threads, threads * TURNS, found, partitions=store.partitions, page_bytes=store.page_bytes
    )


def checks_of(store: StoreConstants, weights: dict[str, Weight], threads: int) -> list[Check]:
    """What was predicted for so many threads, beside what they take."""
    predicted = project(store, threads, threads * TURNS)
    content = [weight for name, weight in weights.items() if name not in FULL_TEXT]
    pairs: dict[str, tuple[float, float]] = {
        "rows": (predicted.rows, sum(weight.rows for weight in content)),
        "indexes": (predicted.index, sum(weight.index for weight in content)),
    }
    if predicted.depth is not None:
        pairs[LEVELS] = (predicted.depth, max(weight.depth for weight in content))
    return [
        Check(store.name, threads, threads * TURNS, what, expected, found) for what, (expected, found) in pairs.items()
    ]


async def timed(work: Callable[[], Any]) -> float:
    started = perf_counter()
    await work()
    return perf_counter() - started


async def measure_store(kind: type[Growing], folder: Path, threads: int) -> tuple[StoreConstants, list[Check], Growing]:
    """Its constants, and how they fit a store ten times as large, which is left to the caller."""
    store = kind(folder)
    async with store.open() as handle:
        first = threads // SMALLER
        await fill(handle, 0, first)
        before = store.weigh()
        await fill(handle, first, threads - first)
        found = constants_of(store, before, store.weigh(), threads - first, threads)
        look = await timed(lambda: handle.vacuum(older_than_days=1)) / threads * 1_000
        await fill(handle, threads, threads * (TIMES - 1))
        checks = checks_of(found, store.weigh(), threads * TIMES)
    full_text, check, remove = await measure_full_text(kind, folder, max(SMALLER, threads // TIMES))
    content = {name: one for name, one in found.tables.items() if name not in FULL_TEXT}
    found = replace(found, tables=content | full_text, look_seconds=look, remove_seconds=remove)
    return found, [*checks, check], store


async def measure_full_text(
    kind: type[Growing], folder: Path, threads: int
) -> tuple[dict[str, TableConstants], Check, float]:
    """The constants of the full text, how they fit ten times as many threads, and what it takes to remove checkpoints.

    A store of its own, with fewer threads: indexing takes longer than saving.
    """
    store = kind(folder)
    try:
        async with store.open() as handle:
            weights = []
            for first, end in ((0, threads // SMALLER), (threads // SMALLER, threads), (threads, threads * TIMES)):
                await fill(handle, first, end - first)
                await index_all(handle)
                weights.append(store.weigh())
            removing = await timed(lambda: handle.vacuum(keep_last=1)) / (threads * TIMES) * 1_000
    finally:
        store.remove()
    before, after_some, after_all = weights
    found = constants_of(store, before, after_some, threads - threads // SMALLER, threads)
    predicted = project(found, threads * TIMES, threads * TIMES * TURNS).search
    taken = sum(weight.rows + weight.index for name, weight in after_all.items() if name in FULL_TEXT)
    check = Check(store.name, threads * TIMES, threads * TIMES * TURNS, "full text", predicted, taken)
    return {name: one for name, one in found.tables.items() if name in FULL_TEXT}, check, removing


async def index_all(handle: Checkpointer) -> None:
    """A search of a handle ends in time, whether everything is indexed or not."""
    engine = handle.store.engine
    assert isinstance(engine, Searches)
    await engine.search(["tomorrow"], 1)


async def measure_calls(stores: Sequence[Growing], threads: int, rounds: int) -> list[tuple[float, float]]:
    """Milliseconds of a save and of a load in each store, in turn."""
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in stores]
    order, handles = Random(3), [store.open() for store in stores]
    try:
        for number in range(rounds + 10):
            thread = f"thread-{order.randrange(threads):08}"
            for lane in order.sample(range(len(stores)), len(stores)):
                started = perf_counter()
                state = await handles[lane].load(thread)
                loaded = perf_counter()
                assert state is not None
                grown = after(state, turn_content(TURNS + number))
                began = perf_counter()
                await handles[lane].save(grown, thread)
                if number >= 10:  # by then all statements are prepared
                    times[lane][0].append((perf_counter() - began) * 1e3)
                    times[lane][1].append((loaded - started) * 1e3)
    finally:
        for handle in handles:
            await handle.close()
    return [(median(saves), median(loads)) for saves, loads in times]


async def weigh_subject(name: str, folder: Path, threads: int) -> StoreConstants:
    """A store that only tells what it takes as a whole."""
    from benchmarks.subjects import SUBJECTS

    subject = SUBJECTS[name](folder / name)
    try:
        async with subject.open() as handle:
            await fill(handle, 0, threads)
        content, search = subject.occupied()
    finally:
        await subject.remove()
    checkpoints = threads * TURNS
    found = {"everything": TableConstants("checkpoint", content / checkpoints, 0.0)}
    if search:
        found["search"] = TableConstants("checkpoint", search / checkpoints, 0.0)
    requests = None
    if name == "s3":
        counts, _ = (await counted_requests(100)).operations["100 saves"]
        requests = counts["put"] / 100
    return StoreConstants(name.partition(" ")[0], threads, checkpoints, found, requests=requests)


async def measure(
    folder: Path,
    threads: int,
    subjects: Sequence[str],
    rounds: int = ROUNDS,
    keep: Callable[[Constants], object] = lambda _found: None,
) -> Constants:
    """`keep` is called with what was measured so far, again and again."""
    content = sum(len(encoded(turn_content(number, one)).encode()) for number in range(TURNS) for one in range(100))
    machine, turn_bytes = describe(folder), content // (TURNS * 100)
    kinds: tuple[type[Growing], ...] = (GrowingSQLite, GrowingPostgreSQL, GrowingPartitions)
    found: list[StoreConstants] = []
    checks: list[Check] = []
    stores: list[Growing] = []
    try:
        for kind in kinds:
            constants, checked, store = await measure_store(kind, folder, threads)
            found.append(constants)
            checks += checked
            stores.append(store)
            keep(Constants(machine, turn_bytes, found, checks))
        calls = await measure_calls(stores, threads * TIMES, rounds)
        found = [replace(one, save_ms=save, load_ms=load) for one, (save, load) in zip(found, calls, strict=True)]
        started = perf_counter()
        stores[1].move()
        found[1] = replace(found[1], move_seconds=(perf_counter() - started) / (threads * TIMES) * 1_000)
        keep(Constants(machine, turn_bytes, found, checks))
    finally:
        for store in stores:
            store.remove()
    for name in subjects:
        found.append(await weigh_subject(name, folder, min(FEW, threads)))
        keep(Constants(machine, turn_bytes, found, checks))
    return Constants(machine, turn_bytes, found, checks)


def write_constants(found: Constants) -> None:
    DATA.write_text(json.dumps(found.as_dict(), indent=1) + "\n", encoding="utf-8")


def read_constants(path: Path = DATA) -> Constants:
    return Constants.from_dict(json.loads(path.read_text(encoding="utf-8")))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.growing", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--measure", action="store_true", help="measure the constants anew")
    made.add_argument("--threads", type=int, default=THREADS, help="of the store that the constants come from")
    made.add_argument("--subjects", default="redis always,opensearch,s3", help="what else is weighed, as a whole")
    made.add_argument("--publish", action="store_true", help="put the tables into docs/growing.md")
    for name, value in asdict(Prices()).items():
        kind = type(value)
        made.add_argument(f"--{name}", type=kind, default=value, help=f"see `Prices`; {value} unless given")
    return made


def main() -> None:
    options = parser().parse_args()
    if options.measure:
        subjects = [name for name in options.subjects.split(",") if name]
        with tempfile.TemporaryDirectory(prefix="locus-bench-") as folder:
            asyncio.run(measure(Path(folder), options.threads, subjects, keep=write_constants))
    prices = Prices(**{name: getattr(options, name) for name in asdict(Prices())})
    text = "\n\n".join(tables(read_constants(), prices))
    if options.publish:
        put_between_comments(PAGE, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
