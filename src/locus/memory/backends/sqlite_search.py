"""Full-text search in SQLite.

A save does not pay for it: what was saved since the last search is indexed when the next one comes, in
portions. A row of the index is a run (even row ids) or what else a checkpoint says (odd row ids). What a word
is, is said in `keys.words`, for all backends alike; SQLite gets the words spelt in letters that it cannot split.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from locus.memory.backends.sqlite_rows import ALIVE, ENTRY, JOINED, Connection, now, to_entry
from locus.memory.keys import words
from locus.memory.matching import best_hits, score, searchable, shown_text, snippet
from locus.memory.payloads import wanted
from locus.memory.records import Entry, Hit, Run

PORTION = 2_000
_SELECT = {
    "runs": "SELECT id, items FROM locus_runs",
    "checkpoints": "SELECT id, '[' || head || ',' || metadata || ']' FROM locus_checkpoints",
}


def _spelt(word: str) -> str:
    return f"a{word}" if word.isascii() else f"u{word.encode().hex()}"


def _indexed(text: str) -> str:
    """What the index has of a JSON text."""
    return " ".join(map(_spelt, words(searchable(text))))


def _row_id(what: str, key: int) -> int:
    return key * 2 + (what == "checkpoints")


def index_more(connection: Connection) -> bool:
    """Index the next portion; False if it was not full, so that those who save meanwhile do not keep it going."""
    # Made when it is first needed: an SQLite without FTS5 can do everything else.
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS locus_search USING fts5 (text, content='', tokenize='ascii')"
    )
    full = False
    for what, select in _SELECT.items():
        (mark,) = connection.execute("SELECT up_to FROM locus_indexed WHERE what = ?", (what,)).fetchone()
        rows = connection.execute(f"{select} WHERE id > ? ORDER BY id LIMIT ?", (mark, PORTION)).fetchall()
        for key, text in rows:
            connection.execute(
                "INSERT INTO locus_search (rowid, text) VALUES (?, ?)", (_row_id(what, key), _indexed(text))
            )
        if rows:
            connection.execute("UPDATE locus_indexed SET up_to = ? WHERE what = ?", (rows[-1][0], what))
        full = full or len(rows) == PORTION
    return full


def lower_marks(connection: Connection) -> None:
    """After a removal: a row id that is given out again must not count as indexed."""
    for what in _SELECT:
        connection.execute(
            f"UPDATE locus_indexed SET up_to = min(up_to, (SELECT coalesce(max(id), 0) FROM locus_{what}))"
            " WHERE what = ?",
            (what,),
        )


def forget_runs(connection: Connection, condition: str, values: tuple[Any, ...]) -> None:
    """Take runs that are about to be removed out of the index."""
    _forget(connection, "runs", f"{_SELECT['runs']} WHERE {condition}", values)


def forget_checkpoint(connection: Connection, key: int) -> None:
    _forget(connection, "checkpoints", f"{_SELECT['checkpoints']} WHERE id = ?", (key,))


def _forget(connection: Connection, what: str, select: str, values: tuple[Any, ...]) -> None:
    (mark,) = connection.execute("SELECT up_to FROM locus_indexed WHERE what = ?", (what,)).fetchone()
    for key, text in connection.execute(f"{select} AND id <= ?", (*values, mark)).fetchall():
        connection.execute(
            "INSERT INTO locus_search (locus_search, rowid, text) VALUES ('delete', ?, ?)",
            (_row_id(what, key), _indexed(text)),
        )


def search(connection: Connection, terms: Sequence[str], limit: int) -> list[Hit]:
    """Checkpoints with a row that has all terms, best first."""
    query = " ".join(map(_spelt, terms))
    hits: list[Hit] = []
    skip = 0
    while True:
        rows = connection.execute(
            "SELECT rowid, -bm25(locus_search) FROM locus_search WHERE locus_search MATCH ?"
            " ORDER BY 2 DESC LIMIT ? OFFSET ?",
            (query, limit * 2 + 10, skip),
        ).fetchall()
        for row_id, points in rows:
            hits += _hits(connection, row_id, points, terms)
        # Several rows may speak of one checkpoint, so a full page may not be enough.
        found = best_hits(hits, limit)
        if len(found) >= limit or not rows:
            return found
        skip += len(rows)


def _hits(connection: Connection, row_id: int, points: float, terms: Sequence[str]) -> Iterator[Hit]:
    if row_id % 2:
        text, entry = _checkpoint(connection, row_id // 2)
    else:
        text, entry = _first_with(connection, row_id // 2, terms)
    if entry is not None:
        yield Hit(entry, points, snippet(terms, text))


def _checkpoint(connection: Connection, key: int) -> tuple[str, Entry | None]:
    ((_, text),) = connection.execute(f"{_SELECT['checkpoints']} WHERE id = ?", (key,))
    return searchable(text), next((entry for entry, _ in _entries(connection, "c.id = ?", (key,))), None)


def _first_with(connection: Connection, key: int, terms: Sequence[str]) -> tuple[str, Entry | None]:
    """A run's text as the first checkpoint shows it that has the terms: the one that brought it, if it is left."""
    thread, branch, number, start, length, seq, items = connection.execute(
        "SELECT thread, branch, number, start, count, seq, items FROM locus_runs WHERE id = ?", (key,)
    ).fetchone()
    newer = connection.execute(
        "SELECT number, start FROM locus_runs WHERE thread = ? AND branch = ? AND number > ? ORDER BY number",
        (thread, branch, number),
    ).fetchall()
    # From each newer run on, what is left of this one ends where the newer ones begin.
    numbers = [row[0] for row in newer]
    cuts = list(accumulate((row[1] for row in newer), min))
    found: dict[tuple[int, int], str] = {}
    for entry, manifest in _entries(connection, "c.thread = ? AND c.seq >= ? ORDER BY c.seq", (thread, seq)):
        for extent in wanted(manifest):
            if extent.branch != branch or extent.run < number:
                continue
            passed = bisect_right(numbers, extent.run)
            end = min(start + length, extent.skip + extent.length, *cuts[passed - 1 : passed])
            piece = (max(start, extent.skip) - start, end - start)
            if piece[0] < piece[1]:
                if piece not in found:
                    text = shown_text(Run(branch, number, start, length, items), *piece)
                    found[piece] = text if score(terms, text) else ""
                if found[piece]:
                    return found[piece], entry
    return "", None


def _entries(connection: Connection, condition: str, values: tuple[Any, ...]) -> Iterator[tuple[Entry, str]]:
    rows = connection.execute(
        f"SELECT {ENTRY}, c.manifest FROM {JOINED} WHERE {ALIVE} AND {condition}",
        (now(), *values),
    )
    for row in rows:
        yield to_entry(row), row[8]
