"""Full-text search in PostgreSQL.

A save does not pay for search: the next search indexes, in portions, what was saved since the last one. The sequence
numbers of one thread are given out in the order of commits, because each save holds the thread's lock. So one number a
thread says how far its index has got. (There is no such number for all threads together: of two checkpoints, the one
with the lower number may be committed later.) The server compares it with the thread's last one whenever the row is
written, and an index has the threads that are behind. Only the first save after a search changes that index.

`locus.memory.model.ids.words` says what a word is, for all backends alike; PostgreSQL gets its vectors ready-made. It
refuses a vector of more than a megabyte. Such a row has no vector, and every search reads the row itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.flavour import Row, Steps
from locus.memory.backends.sql.read import within
from locus.memory.backends.sql.search import THREADS_AT_ONCE, row_hits
from locus.memory.model.ids import digest, words
from locus.memory.model.matching import best_hits, score, searchable
from locus.memory.model.records import Hit

PORTION = 500
MOST_BYTES = 900_000
MOST_POSITION, MOST_POSITIONS = 16_383, 255
LONGEST_WORD = 255
MOST_TERMS = 32
"""The number of words that a query may have. Of more words the longest are looked up, and hits are checked for all."""


class ThreadPortion(NamedTuple):
    """The rows of one thread to index next, up to a sequence number."""

    thread: int
    after: int
    up_to: int
    rows: list[Row]


def lexeme(word: str) -> str:
    """A word as the index has it: in quotes, and short. No word holds a quote or a backslash."""
    short = word if len(word.encode()) <= LONGEST_WORD else f"#{digest(word)}"
    return f"'{short}'"


def vector(text: str) -> str | None:
    """The `tsvector` of a JSON text, or None if it would be too large."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for position, word in enumerate(words(searchable(text)), 1):
        positions = places[word]
        if len(positions) < MOST_POSITIONS:
            positions.append(str(min(position, MOST_POSITION)))
    made = " ".join(f"{lexeme(word)}:{','.join(dict.fromkeys(positions))}" for word, positions in places.items())
    size = sum(len(word.encode()) + 8 + 2 * len(positions) for word, positions in places.items())
    return made if size < MOST_BYTES else None


def behind(sql: PostgreSQLFlavour, prefix: str, after: str) -> Steps[list[Row]]:
    """List the next threads of a prefix that have something to index: id as stored, key, how far the index has got.

    Ids are in order. With an end to their number, no statistics make the server read all threads instead of the index.
    """
    here, bounds = within(sql, prefix)
    up_to = f"SELECT i.up_to FROM {sql.indexed} i WHERE i.thread = t.id"
    return (
        yield (
            f"SELECT t.thread_id, t.id, coalesce(({up_to}), 0) FROM {sql.threads} t"
            f" WHERE t.unindexed AND {here} AND t.thread_id > ? ORDER BY t.thread_id LIMIT {THREADS_AT_ONCE}",
            (*bounds, after),
        )
    )


def next_portion(sql: PostgreSQLFlavour, thread: int, after: int) -> Steps[ThreadPortion]:
    """Choose the rows of a thread to index next; a portion ends between two sequence numbers."""
    ((last,),) = yield (
        "SELECT max(seq) FROM ("
        f"SELECT seq FROM {sql.checkpoints} WHERE thread = ? AND seq > ?"
        f" UNION ALL SELECT seq FROM {sql.runs} WHERE thread = ? AND seq > ? ORDER BY seq LIMIT {PORTION}) found",
        (thread, after, thread, after),
    )
    if last is None:
        ((last,),) = yield f"SELECT max(last_seq) FROM {sql.threads} WHERE id = ?", (thread,)
        return ThreadPortion(thread, after, last or after, [])
    rows = yield (
        "SELECT seq, NULL::text, NULL::integer, '[' || head::text || ',' || metadata::text || ']'"
        f" FROM {sql.checkpoints} WHERE thread = ? AND seq > ? AND seq <= ?"
        f" UNION ALL SELECT seq, branch, number, items::text FROM {sql.runs} WHERE thread = ? AND seq > ? AND seq <= ?",
        (thread, after, last, thread, after, last),
    )
    return ThreadPortion(thread, after, last, rows)


def add(sql: PostgreSQLFlavour, portion: ThreadPortion, vectors: Sequence[str | None]) -> Steps[int | None]:
    """Index a portion, unless somebody else has. Return how far the index has got, None if the thread is gone.

    The thread is locked meanwhile, so that nothing is indexed that is being deleted.
    """
    if not (yield f"SELECT 1 FROM {sql.threads} WHERE id = ?{sql.lock}", (portion.thread,)):
        return None
    ((done,),) = yield f"SELECT coalesce(max(up_to), 0) FROM {sql.indexed} WHERE thread = ?", (portion.thread,)
    if done != portion.after:
        return int(done)
    seqs, branches, numbers, _ = zip(*portion.rows, strict=True) if portion.rows else ((), (), (), ())
    yield (
        f"INSERT INTO {sql.search} (thread, seq, branch, number, words)"
        " SELECT $1, n.seq, n.branch, n.number, n.words::tsvector"
        " FROM unnest($2::bigint[], $3::text[], $4::integer[], $5::text[]) AS n (seq, branch, number, words)"
        f" WHERE CASE WHEN n.branch IS NULL THEN EXISTS (SELECT 1 FROM {sql.checkpoints} c"
        f" WHERE c.thread = $1 AND c.seq = n.seq) ELSE EXISTS (SELECT 1 FROM {sql.runs} r"
        " WHERE r.thread = $1 AND r.branch = n.branch AND r.number = n.number) END",
        (portion.thread, list(seqs), list(branches), list(numbers), list(vectors)),
    )
    yield (
        f"INSERT INTO {sql.indexed} (thread, up_to) VALUES ($1, $2)"
        " ON CONFLICT (thread) DO UPDATE SET up_to = excluded.up_to",
        (portion.thread, portion.up_to),
    )
    yield f"UPDATE {sql.threads} SET indexed_seq = ? WHERE id = ?", (portion.up_to, portion.thread)
    return portion.up_to


def vectors_of(sql: PostgreSQLFlavour, portion: ThreadPortion) -> list[str | None]:
    return [vector(sql.read_json(text)) for *_, text in portion.rows]


def search(sql: PostgreSQLFlavour, terms: Sequence[str], limit: int, prefix: str) -> Steps[list[Hit]]:
    """Find checkpoints with a row that has all terms, best first. The rank of a row depends on nothing but the row."""
    chosen = sorted(set(terms), key=len, reverse=True)[:MOST_TERMS]
    query = " & ".join(map(lexeme, chosen))
    hits = yield from _large_hits(sql, terms, prefix)
    here, bounds = _in_threads(sql, prefix)
    skip, size = 0, limit * 2 + 10
    while True:
        rows = yield (
            "SELECT s.thread, s.seq, s.branch, s.number, ts_rank(s.words, q.query, 1) AS points"
            f" FROM {sql.search} s, (SELECT ?::tsquery AS query) q"
            f" WHERE s.words @@ q.query{here} ORDER BY points DESC, s.thread, s.seq, s.branch LIMIT ? OFFSET ?",
            (query, *bounds, size, skip),
        )
        for *row, points in rows:
            hits += yield from row_hits(sql, row, float(points), terms)
        # Several rows may belong to one checkpoint, so a full page may not be enough.
        best = best_hits(hits, limit)
        if len(best) >= limit or len(rows) < size:
            return best
        skip += len(rows)


def _in_threads(sql: PostgreSQLFlavour, prefix: str) -> tuple[str, list[Any]]:
    """A condition on rows `s`, after AND, and its values: the id of their thread starts with the prefix."""
    if not prefix:
        return "", []
    here, bounds = within(sql, prefix)
    return f" AND s.thread IN (SELECT t.id FROM {sql.threads} t WHERE {here})", bounds


def _large_hits(sql: PostgreSQLFlavour, terms: Sequence[str], prefix: str) -> Steps[list[Hit]]:
    """Find hits in the rows that have no vector."""
    here, bounds = _in_threads(sql, prefix)
    rows = yield f"SELECT s.thread, s.seq, s.branch, s.number FROM {sql.search} s WHERE s.words IS NULL{here}", bounds
    hits: list[Hit] = []
    for row in rows:
        text = yield from _text(sql, row)
        points = score(terms, searchable(text)) if text is not None else 0.0
        if points:
            hits += yield from row_hits(sql, row, points, terms)
    return hits


def _text(sql: PostgreSQLFlavour, row: Row) -> Steps[str | None]:
    thread, seq, branch, number = row
    if branch is None:
        statement = (
            f"SELECT '[' || head::text || ',' || metadata::text || ']' FROM {sql.checkpoints}"
            " WHERE thread = ? AND seq = ?"
        )
        values: tuple[Any, ...] = (thread, seq)
    else:
        statement = f"SELECT items::text FROM {sql.runs} WHERE thread = ? AND branch = ? AND number = ?"
        values = (thread, branch, number)
    rows = yield statement, values
    return sql.read_json(rows[0][0]) if rows else None
