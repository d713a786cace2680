"""What a store of any size takes, worked out from the constants of a small one. Arithmetic, not measurement.

Every table grows with the threads, or with the checkpoints. A constant is what one more of them takes, in bytes: of
rows, and of indexes. `growing` measures the constants, and keeps them as JSON. Everything here is a pure function of
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from benchmarks.tables import ms, table

Unit = Literal["thread", "checkpoint"]
FULL_TEXT = ("search", "indexed")
"""The tables that are there only if somebody searches."""


@dataclass(frozen=True)
class TableConstants:
    """What one more thread, or one more checkpoint, adds to a table."""

    unit: Unit
    rows: float
    index: float
    entry: float = 0.0
    """Bytes that an entry takes in the largest index of the table; 0 where that is not known."""
    entries: float = 0.0
    """Entries of that index for one unit."""
    depth: int = 0
    """The levels of that index, the leaves included, as measured."""


@dataclass(frozen=True)
class StoreConstants:
    """What was measured of one kind of store."""

    name: str
    threads: int
    checkpoints: int
    """How many there were when it was measured."""
    tables: Mapping[str, TableConstants]
    partitions: int = 0
    page_bytes: int = 8_192
    look_seconds: float | None = None
    """For 1,000 threads: a vacuum that finds nothing to remove."""
    remove_seconds: float | None = None
    """For 1,000 threads: a vacuum that keeps the last checkpoint of each."""
    save_ms: float | None = None
    load_ms: float | None = None
    move_seconds: float | None = None
    """For 1,000 threads: into partitions."""
    requests: float | None = None
    """PUT requests a save, where they are what is paid for."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        tables = {name: TableConstants(**one) for name, one in data["tables"].items()}
        return cls(**{**data, "tables": tables})

    @property
    def kind(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True)
class Check:
    """What was predicted for a store ten times as large, and what was then measured."""

    name: str
    threads: int
    checkpoints: int
    what: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """How much more was predicted than there is, as a fraction of it."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Constants:
    """All that was measured in one run."""

    machine: Mapping[str, str]
    turn_bytes: int
    """The content that one checkpoint added, as compact JSON."""
    stores: Sequence[StoreConstants] = ()
    checks: Sequence[Check] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        stores = [StoreConstants.from_dict(one) for one in data["stores"]]
        return cls(data["machine"], data["turn_bytes"], stores, [Check(**one) for one in data["checks"]])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Projection:
    """What a store of some size takes."""

    name: str
    threads: int
    checkpoints: int
    rows: float
    index: float
    search: float
    """The full text, rows and indexes together. It is there only if somebody searches."""
    depth: int | None
    """The levels of the deepest index."""
    look_hours: float | None
    remove_hours: float | None
    """To remove a tenth of all checkpoints."""
    move_hours: float | None
    requests: float | None

    @property
    def bytes(self) -> float:
        return self.rows + self.index + self.search


def project(store: StoreConstants, threads: int, checkpoints: int) -> Projection:
    """Everything grows in proportion; the depth of an index with the logarithm."""
    units = {"thread": threads, "checkpoint": checkpoints}
    content = {name: one for name, one in store.tables.items() if name not in FULL_TEXT}
    full_text = [one for name, one in store.tables.items() if name in FULL_TEXT]
    depths = [_depth(one, units[one.unit], store) for one in content.values() if one.entry]
    share = checkpoints / store.checkpoints * store.threads / 1_000
    return Projection(
        name=store.name,
        threads=threads,
        checkpoints=checkpoints,
        rows=sum(one.rows * units[one.unit] for one in content.values()),
        index=sum(one.index * units[one.unit] for one in content.values()),
        search=sum((one.rows + one.index) * units[one.unit] for one in full_text),
        depth=max(depths, default=None),
        look_hours=None if store.look_seconds is None else store.look_seconds * share / 3_600,
        remove_hours=None if store.remove_seconds is None else _removal(store) * checkpoints / 10 / 3_600,
        move_hours=None if store.move_seconds is None else store.move_seconds * share / 3_600,
        requests=None if store.requests is None else store.requests * checkpoints,
    )


def _removal(store: StoreConstants) -> float:
    """Seconds for one checkpoint. Of each thread all were removed but the last."""
    assert store.remove_seconds is not None
    return store.remove_seconds / 1_000 / (store.checkpoints / store.threads - 1)


def _depth(one: TableConstants, units: int, store: StoreConstants) -> int:
    """The levels of a B-tree: as many as it takes until one page names all pages below it."""
    pages = one.entry * one.entries * units / max(1, store.partitions) / store.page_bytes
    fan_out = store.page_bytes / one.entry
    return 1 + max(0, math.ceil(math.log(max(pages, 1), fan_out)))


@dataclass(frozen=True)
class Prices:
    """What you pay for a month, in your currency. These are round numbers to begin with, and nobody's price list."""

    disk: float = 0.10
    """A gigabyte on the disk of a database server."""
    memory: float = 4.00
    """A gigabyte of memory."""
    objects: float = 0.02
    """A gigabyte in an object store."""
    requests: float = 5.00
    """A million PUT requests."""
    copies: int = 2
    """How many copies of everything you keep: a standby, a replica of each shard. An object store keeps its own."""

    def monthly(self, found: Projection) -> float:
        """What the bytes cost in a month; machines and traffic are not counted."""
        gigabytes = found.bytes / 1e9
        if found.name.startswith("s3"):
            return gigabytes * self.objects
        return gigabytes * self.copies * (self.memory if found.name.startswith("redis") else self.disk)

    def once(self, found: Projection) -> float | None:
        """What the requests of all saves cost, whenever they are made."""
        return None if found.requests is None else found.requests / 1e6 * self.requests


SIZES = ((100_000, 10_000_000), (1_000_000, 100_000_000), (10_000_000, 1_000_000_000))
"""Threads and checkpoints of the stores that are worked out."""
LEVELS = "levels of an index"


def tables(constants: Constants, prices: Prices | None = None) -> Iterator[str]:
    """The tables of the page, in Markdown."""
    known = constants.machine
    yield (
        f"Measured with version {known['Locus']} on {known['date']}: {known['system']}, Python {known['Python']}, "
        f"SQLite {known['SQLite']}. Others used the machine, too (load {known['load at the start']}), so compare "
        f"times with each other only. The full text was measured with fewer threads. "
        f"Each checkpoint added {constants.turn_bytes:,} bytes of content to its thread."
    )
    yield "### What was measured"
    yield constants_table(constants)
    yield times_table(constants)
    yield "### How far off the arithmetic is"
    yield check_table(constants)
    for threads, checkpoints in SIZES:
        yield f"### Worked out: {threads:,} threads, {checkpoints:,} checkpoints"
        yield projection_table(constants, threads, checkpoints, prices or Prices())


def constants_table(constants: Constants) -> str:
    rows = []
    for store in constants.stores:
        for name, one in store.tables.items():
            sizes = [f"{one.rows:,.0f}", f"{one.index:,.0f}" if one.index else "–"]
            depth = f"{one.depth}" if one.depth else "–"
            rows.append([store.name, f"{store.threads:,}", name, one.unit, *sizes, depth])
    head = ["store", "threads", "table", "for each", "bytes of rows", "bytes of indexes", "levels of the largest one"]
    return table(head, rows)


def times_table(constants: Constants) -> str:
    rows = [
        [store.name, ms(store.save_ms), ms(store.load_ms), _seconds(store.look_seconds), _seconds(store.remove_seconds),
         _seconds(store.move_seconds)]
        for store in constants.stores
        if store.look_seconds is not None
    ]  # fmt: skip
    head = [
        *("store", "save, ms", "load, ms", "vacuum that removes nothing, s for 1,000 threads"),
        "vacuum that keeps one of three checkpoints, s for 1,000 threads",
        "moving into partitions, s for 1,000 threads",
    ]
    return table(head, rows)


def check_table(constants: Constants) -> str:
    rows = []
    for one in constants.checks:
        shown = [f"{value:.0f}" if one.what == LEVELS else _amount(value) for value in (one.predicted, one.measured)]
        error = f"{one.predicted - one.measured:+.0f}" if one.what == LEVELS else f"{one.error:+.1%}"
        rows.append([one.name, f"{one.threads:,}", one.what, *shown, error])
    return table(["store", "threads", "what", "predicted", "measured", "error"], rows)


def projection_table(constants: Constants, threads: int, checkpoints: int, prices: Prices) -> str:
    rows = []
    for store in constants.stores:
        found = project(store, threads, checkpoints)
        once = prices.once(found)
        rows.append(
            [
                store.name,
                _amount(found.rows),
                _amount(found.index),
                _amount(found.search),
                "–" if found.depth is None else f"{found.depth}",
                _hours(found.look_hours),
                _hours(found.remove_hours),
                _hours(found.move_hours),
                f"{prices.monthly(found):,.0f}" + ("" if once is None else f" (once for the requests: {once:,.0f})"),
            ]
        )
    head = [
        *("store", "rows", "indexes", "full text", LEVELS, "vacuum that removes nothing"),
        *("vacuum that removes a tenth", "moving into partitions", "cost a month"),
    ]
    return table(head, rows)


def _amount(value: float) -> str:
    """Bytes for people."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}" if value < 100 * size else f"{value / size:,.0f} {unit}"
    return "–" if not value else f"{value:,.0f} B"


def _hours(value: float | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("h", 1.0), ("min", 1 / 60)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value * 3_600:,.0f} s"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
