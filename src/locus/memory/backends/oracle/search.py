"""Full-text search in Oracle Database: JSON_TEXTCONTAINS over a JSON search index.

A save does not pay for it. Each search first indexes, in portions, what was saved since the last one. Within a
thread, sequence numbers are in the order of commits, because each save holds the thread's lock. So one number per
thread says how far its index has got.

`words` in `model.ids` defines what a word is, for all backends alike. Oracle Text gets each word as `spelt` in
`sql.search` spells it: in ASCII letters and digits, so that its lexer neither splits nor skips it. The query of
JSON_TEXTCONTAINS has to be a constant of the statement (ORA-40483), and words spelt like this cannot end one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from locus.memory.backends.oracle.client import BindRows
from locus.memory.backends.oracle.schema import OracleFlavour, unindexed
from locus.memory.backends.sql.flavour import Row, Steps, marks, portions
from locus.memory.backends.sql.read import within
from locus.memory.backends.sql.search import (
    THREADS_AT_ONCE,
    PortionIndexing,
    TextPortion,
    ThreadToIndex,
    indexed,
    portion_of,
    ranges,
    row_hits,
    spelt,
    still_to_index,
)
from locus.memory.model.codec import encode_trusted
from locus.memory.model.matching import best_hits
from locus.memory.model.records import Hit

MOST_TERMS = 32
"""The number of words that a query may have. Of more words the longest are looked up, and hits are checked for all."""
MOST_ROWS = 2_000
"""The number of rows that are looked at, the newest ones, if more rows have all words."""
PAGE = 200
_SAFE = re.compile(r"x[xu][0-9a-z]+")


def next_portion(sql: OracleFlavour, prefix: str) -> Steps[TextPortion]:
    """Choose the texts to index next. A row: thread, seq (of a checkpoint), branch, number (of a run), JSON values."""
    here, bounds = within(sql, prefix)
    rows = yield (
        f"SELECT t.id, t.indexed_seq, t.last_seq FROM {sql.threads} t WHERE {unindexed()} > 0 AND {here}"
        f" ORDER BY {unindexed()} LIMIT {THREADS_AT_ONCE}",
        bounds,
    )
    portion = portion_of(rows)
    if portion.threads:
        where, places = ranges(portion.threads)
        runs = yield f"SELECT thread, branch, number, items FROM {sql.runs} WHERE {where}", places
        portion.rows.extend((thread, None, branch, number, (items,)) for thread, branch, number, items in runs)
        heads = yield f"SELECT thread, seq, head, metadata FROM {sql.checkpoints} WHERE {where}", places
        portion.rows.extend((thread, seq, None, None, (head, metadata)) for thread, seq, head, metadata in heads)
    return portion


def texts_of(sql: OracleFlavour, portion: TextPortion) -> list[str]:
    """Make the text to index of each row."""
    return [indexed(f"[{','.join(map(sql.read_json, values))}]") for *_, values in portion.rows]


def index_portion(sql: OracleFlavour, portion: TextPortion, texts: Sequence[str]) -> Steps[None]:
    """Write a portion, except for threads that another process has indexed meanwhile."""
    ours = yield from still_to_index(sql, portion)
    if not ours:
        return
    still_there = yield from _still_there(sql, ours)
    rows = BindRows(
        (*row[:4], sql.json(encode_trusted({"words": text})))
        for row, text in zip(portion.rows, texts, strict=True)
        if text and tuple(row[:4]) in still_there
    )
    for some in portions(rows):
        yield f"INSERT INTO {sql.search} (thread, seq, branch, number, words) VALUES {marks(5)}", BindRows(some)
    yield (
        f"UPDATE {sql.threads} SET indexed_seq = ? WHERE id = ?",
        BindRows((thread.up_to, thread.key) for thread in ours),
    )


def _still_there(sql: OracleFlavour, threads: Sequence[ThreadToIndex]) -> Steps[set[tuple[Any, ...]]]:
    """List the rows that have not been deleted meanwhile."""
    where, places = ranges(threads)
    runs = yield f"SELECT thread, branch, number FROM {sql.runs} WHERE {where}", places
    stored: set[tuple[Any, ...]] = {(thread, None, branch, number) for thread, branch, number in runs}
    heads = yield f"SELECT thread, seq FROM {sql.checkpoints} WHERE {where}", places
    return stored | {(thread, seq, None, None) for thread, seq in heads}


INDEXING = PortionIndexing(next_portion, texts_of, index_portion)


def search(sql: OracleFlavour, terms: Sequence[str], limit: int, prefix: str) -> Steps[list[Hit]]:
    """Find checkpoints with a row that contains all terms, best first.

    A row's points come from its own words alone: other rows, and how rare a word is, change nothing.
    """
    wanted = [spelt(term) for term in terms]
    here, bounds = "", list[Any]()
    if prefix:
        condition, bounds = within(sql, prefix)
        here = f" AND s.thread IN (SELECT t.id FROM {sql.threads} t WHERE {condition})"
    ranked: list[tuple[float, Row]] = []
    page, after = "", list[int]()
    while len(ranked) < MOST_ROWS:
        rows = yield (
            f"SELECT s.id, s.thread, s.seq, s.branch, s.number, s.words FROM {sql.search} s"
            f" WHERE JSON_TEXTCONTAINS(s.words, '$.words', '{query(wanted)}'){here}{page}"
            f" ORDER BY s.id DESC LIMIT {PAGE}",
            [*bounds, *after],
        )
        ranked += [(points, row) for _, *row, words in rows if (points := _points(words, wanted))]
        if len(rows) < PAGE:
            break
        page, after = " AND s.id < ?", [rows[-1][0]]
    ranked.sort(key=lambda pair: pair[0], reverse=True)
    hits: list[Hit] = []
    for points, row in ranked:
        hits += yield from row_hits(sql, row, points, terms)
        # Several rows may belong to one checkpoint.
        if len(best_hits(hits, limit)) >= limit:
            break
    return best_hits(hits, limit)


def query(wanted: Sequence[str]) -> str:
    """The query of JSON_TEXTCONTAINS for rows with all of these words."""
    chosen = sorted(wanted, key=len, reverse=True)[:MOST_TERMS]
    if not all(map(_SAFE.fullmatch, chosen)):
        raise ValueError("a word is not spelt as the index has it")
    return " & ".join(chosen)


def _points(stored: Any, wanted: Sequence[str]) -> float:
    """The points of a row, by how well it matches; 0 if a word is missing."""
    words = stored["words"].split()
    counts = Counter(words)
    if any(word not in counts for word in wanted):
        return 0.0
    return sum(counts[word] for word in wanted) / (len(words) + 10)
