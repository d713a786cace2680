"""What long-term memory costs on SQLite: puts and reads, and searches in one user's items and in those of everybody.

`python -m benchmarks --topics recall`. Vectors have 384 numbers, lie around 200 centres, and are given to the search:
no embedding is timed. Words are as frequent as in texts: few are in most items, most are in few. Times are those of the
processor, which other programs on the machine disturb least; what a disk takes is not in them.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.clock import settled
from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.tables import ms, table
from locus.memory import LongTermMemory
from locus.memory.backends import sqlite_checkpointer
from locus.memory.long_term.ranking import By
from locus.memory.long_term.vectors import Vectors, vectors_of

DIMENSION, CENTRES, VOCABULARY = 384, 200, 20_000
EVERYBODY = ()
PUTS = 2_000
SEARCHES, CALLS = 9, 200
USERS = 100
COMPARED, QUESTIONS, FIRST = 5_000, 100, 10
BACKEND = "sqlite FULL"


class Row(NamedTuple):
    """A kind of search, and the milliseconds that the first one and a later one may take."""

    what: str
    prefix: tuple[str, ...]
    by: By
    wanted: dict[str, Any]
    first: float | None
    held: float | None


ROWS = (
    Row("in one user's items", ("users", "7"), "hybrid", {}, 25, 1),
    Row("by words, in all", EVERYBODY, "words", {}, 10_000, None),
    Row("by vectors, in all", EVERYBODY, "vector", {}, 10_000, 10),
    Row("hybrid, in all", EVERYBODY, "hybrid", {}, None, 15),
    Row("hybrid, a filter that 1 % pass", EVERYBODY, "hybrid", {"kind": "rare"}, None, 20),
)


class Texts:
    """Texts and vectors that are the same in each run."""

    def __init__(self) -> None:
        self._random = Random(1)
        self._words = [f"word{number}" for number in range(VOCABULARY)]
        self._weights = list(accumulate(1 / (number + 1) for number in range(VOCABULARY)))
        self._numbers = np.random.default_rng(1)
        self._centres = self._numbers.standard_normal((CENTRES, DIMENSION))

    def text(self, length: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        around = self._centres[self._numbers.integers(0, CENTRES, len(texts))]
        vectors: list[list[float]] = (0.7 * around + self._numbers.standard_normal(around.shape)).tolist()
        return vectors


class _Measured:
    """What was measured so far."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.rows: list[list[str]] = []

    def row(self, what: str, first: float | None, usual: float) -> None:
        self.rows.append([what, ms(first), ms(usual)])

    def figure(self, what: str, value: float, limit: float, unit: str = "ms", *, least: bool = False) -> None:
        is_met = value >= limit if least else value <= limit
        target = f"{'≥' if least else '≤'} {limit:,g} {unit}".strip()
        self.figures.append(Figure(what, BACKEND, target, f"{ms(value)} {unit}".strip(), is_met))


async def recall_section(settings: Settings, folder: Path) -> Section:
    texts, count, measured = Texts(), settings.facts, _Measured()
    folder.mkdir(parents=True, exist_ok=True)
    durabilities: dict[Literal["full", "normal"], float] = {"full": 0.7, "normal": 0.4}
    for durability, limit in durabilities.items():
        path = folder / f"{durability}.db"
        calls = {}
        for items in (10, count):
            memory = LongTermMemory(sqlite_checkpointer(path, durability=durability))
            await _fill(memory, texts, items, f"before-{items}")
            calls[items] = await _calls(memory)
            await memory.engine.close()
        few, many = calls.values()
        for what in few:
            measured.row(f"{what}, {durability}: of 10, of {count:,} items", few[what], many[what])
        measured.figure(f"a put, {durability}, among {count:,} items", many["put"], limit)
        measured.figure(f"a put, {durability}: among {count:,} items ÷ among 10", many["put"] / few["put"], 1.1, "")
        if durability == "full":
            measured.figure(f"a get among {count:,} items", many["get"], 0.5)
            measured.figure(f"a deletion among {count:,} items", many["delete"], 1)
    await _searches(texts, count, folder / "facts.db", measured)
    recalled = _recalled(texts)
    measured.figure(f"recall@{FIRST} against single precision, of {COMPARED:,} vectors", recalled, 0.99, "", least=True)
    return Section("Long-term memory", measured.figures, table(["what", "first CPU ms", "CPU ms"], measured.rows))


async def _searches(texts: Texts, count: int, path: Path, measured: _Measured) -> None:
    memory = _opened(texts, path)
    await _fill(memory, texts, count, "fact")
    for row in ROWS:
        times = []
        for _ in range(1 + SEARCHES):
            query = texts.text(5)
            vector = None if row.by == "words" else texts.vectors([query])[0]
            search = partial(memory.search, row.prefix, query, vector=vector, by=row.by, filter=row.wanted)
            times.append(await _of_processor(search))
        first, held = times[0], median(times[1:])
        measured.row(f"a search {row.what}", first, held)
        if row.first is not None:
            measured.figure(f"the first search {row.what}, of {count:,} items", first, row.first)
        if row.held is not None:
            measured.figure(f"a search {row.what}, of {count:,} items", held, row.held)
    await memory.put(("users", "7", "memories"), "one-more", {"text": texts.text(12)})
    after = await _of_processor(partial(memory.search, EVERYBODY, texts.text(5), by="words"))
    measured.row("a search by words, in all, after a put", None, after)
    await memory.engine.close()
    measured.figure(f"bytes of an item, of {count:,}", path.stat().st_size / count, 1_000, "")

    memory = _opened(texts, path)
    await memory.search(("nobody",), "any", vector=texts.vectors([""])[0])  # what it imports is not held for items
    gc.collect()
    tracemalloc.start()
    await memory.search(EVERYBODY, texts.text(5), vector=texts.vectors([""])[0], by="hybrid")
    gc.collect()
    measured.figure(f"held memory of {count:,} items", tracemalloc.get_traced_memory()[0] / 1e6, 60, "MB")
    tracemalloc.stop()
    await memory.engine.close()


def _opened(texts: Texts, path: Path) -> LongTermMemory:
    return LongTermMemory(sqlite_checkpointer(path), embed=texts.vectors, embed_model="bench", index_mb=1_000)


async def _fill(memory: LongTermMemory, texts: Texts, count: int, name: str) -> None:
    for start in range(0, count, PUTS):
        numbers = range(start, min(count, start + PUTS))
        await memory.put_batch(
            (
                ("users", str(number % USERS), "memories"),
                f"{name}-{number}",
                {"text": texts.text(12), "kind": "often" if number % 100 else "rare"},
            )
            for number in numbers
        )


async def _calls(memory: LongTermMemory) -> dict[str, float]:
    """What a put of a new item, a get of it and its deletion take."""
    calls: dict[str, Callable[[str], Awaitable[object]]] = {
        "put": lambda key: memory.put(("users", "7"), key, {"text": "Drinks green tea in the morning."}),
        "get": lambda key: memory.get(("users", "7"), key),
        "delete": lambda key: memory.delete(("users", "7"), key),
    }
    found = {}
    for what, call in calls.items():
        times = []
        for number in range(CALLS):
            started = process_time()
            await call(f"call-{number}")
            times.append((process_time() - started) * 1e3)
        found[what] = median(times)
    return found


async def _of_processor(call: Callable[[], Awaitable[object]]) -> float:
    """The milliseconds of the processor that a call takes."""
    await settled()
    gc.collect()
    started = process_time()
    await call()
    return (process_time() - started) * 1e3


def _recalled(texts: Texts) -> float:
    """How many of the nearest are so by stored vectors, too."""
    made, asked = texts.vectors([""] * COMPARED), np.array(texts.vectors([""] * QUESTIONS))
    stored: list[Vectors] = [vectors_of("bench", DIMENSION, [vector]) for vector in made]
    first = [
        np.argsort(-(asked @ some.T) / np.linalg.norm(some, axis=1), axis=1)[:, :FIRST]
        for some in (np.array(made), np.array([vectors.numbers[0] for vectors in stored], np.float64))
    ]
    return float(np.mean([len(set(one) & set(other)) / FIRST for one, other in zip(*first, strict=True)]))
