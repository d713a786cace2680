"""Full-text search in SQLite.

A save does not pay for search: the next search indexes, in portions, what was saved since the last one. A row of the
index is a run (even row ids), or the head and metadata of a checkpoint (odd row ids). `locus.memory.model.ids.words`
says what a word is, for all backends alike; SQLite gets each word spelt in letters that it cannot split.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from locus.errors import CorruptCheckpointError
from locus.memory.backends.sql.flavour import Flavour
from locus.memory.backends.sql.read import within
from locus.memory.backends.sql.search import checkpoint_hit, run_hit
from locus.memory.backends.sqlite.client import Query, execute
from locus.memory.backends.sqlite.schema import SQL
from locus.memory.model.ids import words
from locus.memory.model.matching import RANKED, best_hits, score, searchable
from locus.memory.model.records import Hit, Hits

PORTION = 2_000
PORTION_CHARACTERS = 2_000_000
"""The approximate size of a portion. Saves wait while one is indexed."""
MERGED_PAGES = 500
FORGOTTEN = "forgotten"
"""The row of `locus_indexed` that is 1 while words of removed content may be left in the index."""
_SELECT = {
    "runs": "SELECT id, items FROM locus_runs",
    "checkpoints": "SELECT id, '[' || head || ',' || metadata || ']' FROM locus_checkpoints",
}


def _spelt(word: str) -> str:
    return f"a{word}" if word.isascii() else f"u{word.encode().hex()}"


def _indexed(text: str) -> str:
    """The text to index for a JSON text."""
    return " ".join(map(_spelt, words(searchable(text))))


def _row_id(what: str, key: int) -> int:
    return key * 2 + (what == "checkpoints")


def index_more(connection: sqlite3.Connection) -> bool:
    """Index the next portion. True if it was full and there may be more.

    A portion that was not full ends the indexing, so that saves in the meantime do not keep it going.
    """
    # Created when it is first needed: an SQLite without FTS5 can do everything else.
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS locus_search USING fts5 (text, content='', tokenize='ascii')"
    )
    full = False
    for what, select in _SELECT.items():
        up_to = _up_to(connection, what)
        rows = connection.execute(f"{select} WHERE id > ? ORDER BY id LIMIT ?", (up_to, PORTION))
        count = size = 0
        for key, text in rows:
            connection.execute(
                "INSERT INTO locus_search (rowid, text) VALUES (?, ?)", (_row_id(what, key), _indexed(text))
            )
            up_to, count, size = key, count + 1, size + len(text)
            if size > PORTION_CHARACTERS:
                full = True
                break
        rows.close()
        if count:
            connection.execute("UPDATE locus_indexed SET up_to = ? WHERE what = ?", (up_to, what))
        full = full or count == PORTION
    return full


def _up_to(connection: sqlite3.Connection, what: str) -> int:
    """The key of the last row that is indexed."""
    row = connection.execute("SELECT up_to FROM locus_indexed WHERE what = ?", (what,)).fetchone()
    if row is None or type(row[0]) is not int:
        raise CorruptCheckpointError(f"the SQLite database is damaged: which {what} are indexed is lost")
    return int(row[0])


def lower_up_to(connection: sqlite3.Connection) -> None:
    """Keep a row id that SQLite gives out again, after a removal, from counting as indexed."""
    for what in _SELECT:
        connection.execute(
            f"UPDATE locus_indexed SET up_to = min(up_to, (SELECT coalesce(max(id), 0) FROM locus_{what}))"
            " WHERE what = ?",
            (what,),
        )


def forget_run(connection: sqlite3.Connection, thread: int, branch: str, number: int) -> None:
    """Remove a run, which is about to be removed, from the index."""
    place = (thread, branch, number)
    _forget(connection, "runs", f"{_SELECT['runs']} WHERE thread = ? AND branch = ? AND number = ?", place)


def forget_checkpoint(connection: sqlite3.Connection, key: int) -> None:
    _forget(connection, "checkpoints", f"{_SELECT['checkpoints']} WHERE id = ?", (key,))


def _forget(connection: sqlite3.Connection, what: str, select: str, values: tuple[Any, ...]) -> None:
    rows = connection.execute(f"{select} AND id <= ?", (*values, _up_to(connection, what))).fetchall()
    for key, text in rows:
        connection.execute(
            "INSERT INTO locus_search (locus_search, rowid, text) VALUES ('delete', ?, ?)",
            (_row_id(what, key), _indexed(text)),
        )
    if rows:
        connection.execute("INSERT OR REPLACE INTO locus_indexed VALUES (?, 1)", (FORGOTTEN,))


def clear_forgotten(connection: sqlite3.Connection, *, begin: bool) -> bool:
    """Write a part of the index anew, without the words of removed rows. True if there is more to do.

    FTS5 only notes that a row was removed. Its words stay until the part of the index that has them is merged.
    """
    row = connection.execute("SELECT up_to FROM locus_indexed WHERE what = ?", (FORGOTTEN,)).fetchone()
    if row is None or not row[0]:
        return False
    before = connection.total_changes
    # A negative number begins to merge everything; the others go on with it.
    connection.execute(
        "INSERT INTO locus_search (locus_search, rank) VALUES ('merge', ?)", (-MERGED_PAGES if begin else MERGED_PAGES,)
    )
    if connection.total_changes - before > 1:  # the command itself counts as one
        return True
    connection.execute("UPDATE locus_indexed SET up_to = 0 WHERE what = ?", (FORGOTTEN,))
    return False


def search(connection: sqlite3.Connection, query: Query, terms: Sequence[str], limit: int) -> list[Hit]:
    """Find checkpoints with a row that has all terms, best first."""
    wanted = " ".join(map(_spelt, terms))
    hits: list[Hit] = []
    skip = 0
    while True:
        rows = connection.execute(
            "SELECT rowid, -bm25(locus_search) FROM locus_search WHERE locus_search MATCH ?"
            " ORDER BY 2 DESC LIMIT ? OFFSET ?",
            (wanted, limit * 2 + 10, skip),
        ).fetchall()
        hits += [hit for row_id, points in rows if (hit := _hit(connection, query, row_id, points, terms)) is not None]
        # Several rows may belong to one checkpoint, so a full page may not be enough.
        best = best_hits(hits, limit)
        if len(best) >= limit or not rows:
            return best
        skip += len(rows)


def search_within(
    connection: sqlite3.Connection, query: Query, terms: Sequence[str], limit: int, prefix: str, sql: Flavour = SQL
) -> list[Hit]:
    """Find checkpoints with a row that has all terms, in threads whose ids start with a prefix, best first.

    SQLite's own points depend on how many rows of all threads have a word. So the newest runs and the newest
    checkpoints are ranked by their own texts.
    """
    wanted, most = " ".join(map(_spelt, terms)), max(RANKED, limit * 2 + 10)
    here, bounds = within(sql, prefix)
    hits: list[Hit] = []
    for what in _SELECT:
        rows = connection.execute(
            f"SELECT s.rowid FROM locus_search s CROSS JOIN locus_{what} x ON x.id = s.rowid / 2"
            f" CROSS JOIN locus_threads t ON t.id = x.thread"
            f" WHERE s.locus_search MATCH ? AND s.rowid % 2 = ? AND {here} ORDER BY s.rowid DESC LIMIT ?",
            (wanted, _row_id(what, 0), *bounds, most),
        ).fetchall()
        hits += [hit for (row_id,) in rows if (hit := _hit(connection, query, row_id, None, terms, sql)) is not None]
    return best_hits(hits, limit)


MOST_SCANNED = 20_000
MOST_SCANNED_CHARACTERS = 50_000_000
"""The rows and characters that a search looks at, of those that are not indexed, if it may not index them."""


def search_reading(
    connection: sqlite3.Connection, query: Query, terms: Sequence[str], limit: int, prefix: str, sql: Flavour
) -> Hits:
    """Search without writing: in the index as it is, and in the newest rows that are not indexed."""
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'locus_search'").fetchone()
    hits = search_within(connection, query, terms, limit, prefix, sql) if exists else []
    here, bounds = within(sql, prefix)
    complete = True
    for what in _SELECT:
        after = _up_to(connection, what) if exists else 0
        scanned = characters = 0
        keys = connection.execute(
            f"SELECT x.id FROM locus_{what} x CROSS JOIN locus_threads t ON t.id = x.thread"
            f" WHERE x.id > ? AND {here} ORDER BY x.id DESC",
            (after, *bounds),
        )
        for (key,) in keys:
            if query.is_over() or scanned >= MOST_SCANNED or characters > MOST_SCANNED_CHARACTERS:
                complete = False
                break
            ((_, text),) = connection.execute(f"{_SELECT[what]} WHERE id = ?", (key,)).fetchall()
            scanned, characters = scanned + 1, characters + len(text)
            if score(terms, searchable(text)):
                try:
                    hit = _hit(connection, query, _row_id(what, key), None, terms, sql)
                except TimeoutError:
                    complete = False
                    break
                hits += [] if hit is None else [hit]
        keys.close()
    return Hits(best_hits(hits, limit), complete)


def _hit(
    connection: sqlite3.Connection,
    query: Query,
    row_id: int,
    points: float | None,
    terms: Sequence[str],
    sql: Flavour = SQL,
) -> Hit | None:
    if row_id % 2:
        steps = checkpoint_hit(sql, row_id // 2, points, terms)
    else:
        run = connection.execute(
            "SELECT thread, branch, number FROM locus_runs WHERE id = ?", (row_id // 2,)
        ).fetchone()
        if run is None:
            raise CorruptCheckpointError("the SQLite database is damaged: an indexed run is not there")
        thread, branch, number = run
        steps = run_hit(sql, thread, branch, number, points, terms)
    try:
        return execute(connection, steps, query)
    except TypeError:
        raise CorruptCheckpointError("the SQLite database is damaged: a number in a row is none") from None
