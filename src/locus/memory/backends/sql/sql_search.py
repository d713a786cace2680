"""From a row that has the words to the checkpoint that shows them, for the SQL engines.

Each engine finds rows with its own full-text index: runs, and checkpoints by what their head and metadata say.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from locus.memory.backends.sql.flavour import Flavour, Steps
from locus.memory.backends.sql.read import entry_of, now
from locus.memory.model.matching import score, searchable, shown_text, snippet
from locus.memory.model.payloads import wanted
from locus.memory.model.records import Hit, Run


def checkpoint_hit(sql: Flavour, key: int, points: float, terms: Sequence[str]) -> Steps[Hit | None]:
    """The hit for the checkpoint with this row id, unless it has ended."""
    rows = yield (
        f"SELECT {sql.entry}, {sql.json_column('c.head')} FROM {sql.joined} WHERE {sql.alive} AND c.id = ?",
        (now(sql), key),
    )
    if not rows:
        return None
    entry = entry_of(sql, rows[0])
    return Hit(entry, points, snippet(terms, head_text(sql.read_json(rows[0][8]), entry.metadata)))


def head_text(head: str, metadata: str) -> str:
    """What search sees of a checkpoint itself."""
    return searchable(f"[{head},{metadata}]")


def run_hit(
    sql: Flavour, thread: int, branch: str, number: int, points: float, terms: Sequence[str]
) -> Steps[Hit | None]:
    """The hit for the first checkpoint that shows the words of a run: the one that brought it, if it is left."""
    rows = yield (
        f"SELECT start, count, seq, {sql.json_column('items')} FROM {sql.runs}"
        " WHERE thread = ? AND branch = ? AND number = ?",
        (thread, branch, number),
    )
    if not rows:
        return None
    start, length, seq, items = rows[0]
    run = Run(branch, number, start, length, sql.read_json(items))
    newer = yield (
        f"SELECT number, start FROM {sql.runs} WHERE thread = ? AND branch = ? AND number > ? ORDER BY number",
        (thread, branch, number),
    )
    # From each newer run on, what is left of this one ends where the newer ones begin.
    numbers = [row[0] for row in newer]
    cuts = list(accumulate((row[1] for row in newer), min))
    rows = yield (
        f"SELECT {sql.entry}, {sql.json_column('c.manifest')} FROM {sql.joined}"
        f" WHERE {sql.alive} AND c.thread = ? AND c.seq >= ? ORDER BY c.seq",
        (now(sql), thread, seq),
    )
    found: dict[tuple[int, int], str] = {}
    for row in rows:
        for extent in wanted(sql.read_json(row[8])):
            if extent.branch != branch or extent.run < number:
                continue
            passed = bisect_right(numbers, extent.run)
            end = min(start + length, extent.skip + extent.length, *cuts[passed - 1 : passed])
            piece = (max(start, extent.skip) - start, end - start)
            if piece[0] < piece[1]:
                if piece not in found:
                    text = shown_text(run, *piece)
                    found[piece] = text if score(terms, text) else ""
                if found[piece]:
                    return Hit(entry_of(sql, row), points, snippet(terms, found[piece]))
    return None
