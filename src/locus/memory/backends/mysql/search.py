"""Full-text search in MySQL.

A save does not pay for it. Each search first indexes, in portions, what was saved since the last one. Within a
thread, sequence numbers are in the order of commits, because each save holds the thread's lock. So one number per
thread says how far its index has got. (There is no such number for all threads together: of two checkpoints, the one
with the lower number may be committed later.)

`words` in `model.ids` defines what a word is, for all backends alike. MySQL gets each word as `spelt` in `sql.search`
spells it, because its own parser skips short words, long words and a list of common ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from locus.errors import CapabilityError
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.flavour import Row, Steps, marks, portions
from locus.memory.backends.sql.read import within
from locus.memory.backends.sql.search import (
    LONGEST_PLAIN,
    THREADS_AT_ONCE,
    PortionIndexing,
    TextPortion,
    checkpoint_hit,
    indexed,
    portion_of,
    ranges,
    run_hit,
    spelt,
    still_to_index,
)
from locus.memory.model.matching import RANKED, best_hits
from locus.memory.model.records import Hit

AT_ONCE_BYTES = 4_000_000
"""The approximate size of one INSERT; a single row may be larger."""


def check_parser(sql: MySQLFlavour) -> Steps[None]:
    """Refuse a server whose settings would skip words."""
    ((least, most),) = yield "SELECT @@innodb_ft_min_token_size, @@innodb_ft_max_token_size", ()
    if int(least) > 3 or int(most) < LONGEST_PLAIN + 2:
        raise CapabilityError(
            f"this server's full-text index takes words of {least} to {most} characters, and search needs 3 to "
            f"{LONGEST_PLAIN + 2}: set innodb_ft_min_token_size=3 and innodb_ft_max_token_size=84"
        )


def next_portion(sql: MySQLFlavour, prefix: str) -> Steps[TextPortion]:
    """Choose the texts to index next. A row: thread, checkpoint, branch, number, JSON text."""
    here, bounds = within(sql, prefix)
    rows = yield (
        f"SELECT t.id, t.indexed_seq, t.last_seq FROM {sql.threads} t WHERE t.unindexed = 1 AND {here}"
        f" ORDER BY t.id LIMIT {THREADS_AT_ONCE}",
        bounds,
    )
    portion = portion_of(rows)
    if portion.threads:
        where, places = ranges(portion.threads)
        portion.rows.extend((yield f"SELECT thread, NULL, branch, number, items FROM {sql.runs} WHERE {where}", places))
        texts = "JSON_ARRAY(head, metadata)"
        portion.rows.extend(
            (yield f"SELECT thread, id, NULL, NULL, {texts} FROM {sql.checkpoints} WHERE {where}", places)
        )
    return portion


def texts_of(sql: MySQLFlavour, portion: TextPortion) -> list[str]:
    """Make the text to index of each row."""
    return [indexed(sql.read_json(text)) for *_, text in portion.rows]


class RowToIndex(NamedTuple):
    """A row of a portion: a checkpoint, or a run, which has a branch and a number."""

    thread: int
    checkpoint: int | None
    branch: str | None
    number: int | None
    text: str

    @classmethod
    def of(cls, row: Row, text: str) -> RowToIndex:
        """Make a row with the text to index in the place of the JSON."""
        return cls(*row)._replace(text=text)

    @property
    def place(self) -> tuple[Any, ...]:
        return self.thread, self.checkpoint, self.branch, self.number


def index_portion(sql: MySQLFlavour, portion: TextPortion, texts: Sequence[str]) -> Steps[None]:
    """Write a portion, except for threads that another process has indexed meanwhile."""
    ours = yield from still_to_index(sql, portion)
    if not ours:
        return
    chosen = {thread.key for thread in ours}
    rows = [RowToIndex.of(row, text) for row, text in zip(portion.rows, texts, strict=True)]
    still_there = yield from _still_there(sql, [row for row in rows if row.thread in chosen])
    for some in _in_size([row for row in rows if row.text and row.place in still_there]):
        yield (
            f"INSERT INTO {sql.search} (thread, checkpoint, branch, number, words)"
            f" VALUES {', '.join([marks(5)] * len(some))}",
            [value for row in some for value in row],
        )
    cases = " ".join(["WHEN ? THEN ?"] * len(ours))
    yield (
        f"UPDATE {sql.threads} SET indexed_seq = CASE id {cases} ELSE indexed_seq END WHERE id IN {marks(len(ours))}",
        [*(value for thread in ours for value in (thread.key, thread.up_to)), *chosen],
    )


def _still_there(sql: MySQLFlavour, rows: Sequence[RowToIndex]) -> Steps[set[tuple[Any, ...]]]:
    """List the rows that have not been deleted meanwhile."""
    stored: set[tuple[Any, ...]] = set()
    for some in portions([row for row in rows if row.checkpoint is None]):
        names = [value for row in some for value in (row.thread, row.branch, row.number)]
        places = ", ".join([marks(3)] * len(some))
        left = yield (
            f"SELECT thread, branch, number FROM {sql.runs} WHERE (thread, branch, number) IN ({places})",
            names,
        )
        stored |= {(thread, None, branch, number) for thread, branch, number in left}
    for some in portions([row for row in rows if row.checkpoint is not None]):
        ids = [row.checkpoint for row in some]
        left = yield f"SELECT thread, id FROM {sql.checkpoints} WHERE id IN {marks(len(ids))}", ids
        stored |= {(thread, key, None, None) for thread, key in left}
    return stored


def _in_size(rows: Sequence[RowToIndex]) -> list[list[RowToIndex]]:
    """Split rows into lists that fit into one statement."""
    lists: list[list[RowToIndex]] = []
    size = AT_ONCE_BYTES
    for row in rows:
        if size + len(row.text) > AT_ONCE_BYTES:
            lists.append([])
            size = 0
        lists[-1].append(row)
        size += len(row.text)
    return lists


INDEXING = PortionIndexing(next_portion, texts_of, index_portion)

_MATCHING = "MATCH (words) AGAINST (? IN BOOLEAN MODE)"


def _query(terms: Sequence[str]) -> str:
    return " ".join(f"+{spelt(term)}" for term in terms)


def search(sql: MySQLFlavour, terms: Sequence[str], limit: int) -> Steps[list[Hit]]:
    """Find checkpoints with a row that contains all terms, best first."""
    query = _query(terms)
    hits: list[Hit] = []
    skip, size = 0, limit * 2 + 10
    while True:
        rows = yield (
            f"SELECT thread, checkpoint, branch, number, {_MATCHING} AS points FROM {sql.search}"
            f" WHERE {_MATCHING} ORDER BY points DESC, id LIMIT ? OFFSET ?",
            (query, query, size, skip),
        )
        for *row, points in rows:
            hits += yield from _row_hits(sql, row, float(points), terms)
        # Several rows may belong to one checkpoint, so a full page may not be enough.
        best = best_hits(hits, limit)
        if len(best) >= limit or len(rows) < size:
            return best
        skip += len(rows)


def search_within(sql: MySQLFlavour, terms: Sequence[str], limit: int, prefix: str) -> Steps[list[Hit]]:
    """Find checkpoints with a row that contains all terms, in threads whose ids start with a prefix, best first.

    MySQL's own points depend on how many rows of all threads have a word. So the rows that were indexed last are ranked
    by their own texts.
    """
    here, bounds = within(sql, prefix)
    rows = yield (
        f"SELECT s.thread, s.checkpoint, s.branch, s.number FROM {sql.search} s"
        f" JOIN {sql.threads} t ON t.id = s.thread WHERE {_MATCHING} AND {here} ORDER BY s.id DESC LIMIT ?",
        (_query(terms), *bounds, max(RANKED, limit * 2 + 10)),
    )
    hits: list[Hit] = []
    for row in rows:
        hits += yield from _row_hits(sql, row, None, terms)
    return best_hits(hits, limit)


def _row_hits(sql: MySQLFlavour, row: Row, points: float | None, terms: Sequence[str]) -> Steps[list[Hit]]:
    """Make the hit for a row of the full text, if there is one.

    Without `points`, the words of its own text are counted.
    """
    thread, checkpoint, branch, number = row
    if checkpoint is None:
        hit = yield from run_hit(sql, thread, branch, number, points, terms)
    else:
        hit = yield from checkpoint_hit(sql, checkpoint, points, terms)
    return [] if hit is None else [hit]
