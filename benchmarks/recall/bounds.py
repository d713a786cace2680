"""What a search of long-term memory takes, on SQLite: in one user's items, and in those of everybody.

`python -m benchmarks --topics recall`. Vectors have 384 numbers, lie around 200 centres, and are given to the search:
no embedding is timed. Words are as frequent as in texts: few are in most items, most are in few.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

from benchmarks.clock import timed
from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.tables import ms, table
from locus.memory import LongTermMemory
from locus.memory.backends import sqlite_checkpointer
from locus.memory.long_term.ranking import By

DIMENSION, CENTRES, VOCABULARY = 384, 200, 20_000
EVERYBODY = ()
PUTS = 2_000
SEARCHES = 9


class Row(NamedTuple):
    """A kind of search, and the milliseconds that it may take."""

    what: str
    prefix: tuple[str, ...]
    by: By
    wanted: dict[str, Any]
    limit: float | None


ROWS = (
    Row("in one user's items", ("users", "7"), "hybrid", {}, 1),
    Row("by words, in all", EVERYBODY, "words", {}, None),
    Row("by vectors, in all", EVERYBODY, "vector", {}, 10),
    Row("hybrid, in all", EVERYBODY, "hybrid", {}, 15),
    Row("hybrid, a filter that 1 % pass", EVERYBODY, "hybrid", {"kind": "rare"}, 20),
)


class Texts:
    """Texts and vectors that are the same in each run."""

    def __init__(self) -> None:
        self._random = Random(1)
        self._words = [f"word{number}" for number in range(VOCABULARY)]
        self._weights = list(accumulate(1 / (number + 1) for number in range(VOCABULARY)))
        self._centres = [[self._random.gauss(0, 1) for _ in range(DIMENSION)] for _ in range(CENTRES)]

    def text(self, length: int) -> str:
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=length))

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        return [[0.7 * part + self._random.gauss(0, 1) for part in self._random.choice(self._centres)] for _ in texts]


async def recall_section(settings: Settings, folder: Path) -> Section:
    texts, count = Texts(), settings.facts
    folder.mkdir(parents=True, exist_ok=True)
    memory = LongTermMemory(
        sqlite_checkpointer(folder / "facts.db"), embed=texts.vectors, embed_model="bench", index_mb=1_000
    )
    for start in range(0, count, PUTS):
        numbers = range(start, min(count, start + PUTS))
        await memory.put_batch(
            (
                ("users", str(number % 100), "memories"),
                f"fact-{number}",
                {"text": texts.text(12), "kind": "often" if number % 100 else "rare"},
            )
            for number in numbers
        )
    figures, rows = list[Figure](), list[list[str]]()
    for row in ROWS:
        times = []
        for _ in range(1 + SEARCHES):
            query = texts.text(5)
            vector = None if row.by == "words" else texts.vectors([query])[0]
            search = partial(memory.search, row.prefix, query, vector=vector, by=row.by, filter=row.wanted)
            times.append(await timed(search))
        cold, held = times[0], median(times[1:])
        rows.append([row.what, ms(cold), ms(held)])
        if row.limit is not None:
            what = f"a search {row.what}, of {count:,} items"
            figures.append(Figure(what, "sqlite FULL", f"≤ {row.limit:g} ms", f"{ms(held)} ms", held <= row.limit))
    await memory.engine.close()
    return Section("Searches of long-term memory", figures, table(["search", "first ms", "held ms"], rows))
