"""What the SQL backends share of search: by the words of a text, and by the value at a path of the payload.

Each backend finds rows with its own full-text index: runs, and checkpoints by what their head and metadata say.
`run_hit` and `checkpoint_hit` lead from such a row to the checkpoint that shows the words. `indexed`, `spelt` and
`metadata_key` write words and metadata so that no database's own idea of a word or of equality matters.

`search_data` finds checkpoints by the value at a path. The database narrows it down to threads that contain the value
anywhere, if it can; the rest is checked here. The items of a thread are read once, however many of its checkpoints
show them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from locus.memory.backends.sql.flavour import Flavour, Row, Steps, marks
from locus.memory.backends.sql.schema import CheckpointRow
from locus.memory.model.codec import canonical, decode, encode
from locus.memory.model.ids import digest, words
from locus.memory.model.manifest import decode_manifest, walk, wanted
from locus.memory.model.matching import score, searchable, shown_text, snippet
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Entry, Extent, Hit, Path, Run, Stored

_CONTAINERS = (dict, list)


def matches(node: Any, path: Path, value: Any) -> bool:
    """Whether `value` is at `path`. On the way, and at the end, a list stands for each of its items.

    A dict matches one that has the same values under its keys, and perhaps more keys. Anything else has to be equal.
    """
    if isinstance(node, list):
        return any(matches(item, path, value) for item in node) or (not path and _equal(node, value))
    if path:
        return isinstance(node, dict) and path[0] in node and matches(node[path[0]], path[1:], value)
    if isinstance(value, dict) and isinstance(node, dict):
        return all(key in node and matches(node[key], (), item) for key, item in value.items())
    return _equal(node, value)


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and canonical(one) == canonical(other)


def leaf_of(value: Any) -> str | None:
    """JSON of a plain value that every match has to contain; None if there is none."""
    if isinstance(value, _CONTAINERS):
        inner = value.values() if isinstance(value, dict) else value
        return next((leaf for item in inner if (leaf := leaf_of(item)) is not None), None)
    return encode(value)


class RunItems:
    """The runs of one thread, and which of their items match the value."""

    def __init__(self, runs: Iterable[Run], value: Any) -> None:
        self.branches: defaultdict[str, list[Run]] = defaultdict(list)
        for run in sorted(runs):
            self.branches[run.branch].append(run)
        self._value = value
        self._found: dict[tuple[str, int, Path], list[int]] = {}

    def shown(self, extents: Sequence[Extent], rest: Path) -> bool:
        """Whether one of the items that these extents show has the value at the rest of the path."""
        for extent in extents:
            for index, low, high in walk(extent, self.branches[extent.branch]):
                if any(low <= found < high for found in self._matching(extent.branch, index, rest)):
                    return True
        return False

    def _matching(self, branch: str, index: int, rest: Path) -> list[int]:
        key = (branch, index, rest)
        if key not in self._found:
            items = decode(self.branches[branch][index].items)
            self._found[key] = [at for at, item in enumerate(items) if matches(item, rest, self._value)]
        return self._found[key]


def holds(stored: Stored, path: Path, value: Any, items: RunItems) -> bool:
    """Whether the payload of a checkpoint has the value at the path."""
    cuts = decode_manifest(stored.manifest)
    if isinstance(value, _CONTAINERS) and any(cut[: len(path)] == path for cut in cuts):
        return matches(dict_from(stored), path, value)
    for cut, place in cuts.items():
        if cut == path[: len(cut)]:
            extents = (Extent(place, 0, 0, 1),) if isinstance(place, str) else place
            if items.shown(extents, path[len(cut) :]):
                return True
    # A cut leaves an empty list, or null, in the head.
    return path not in cuts and matches(decode(stored.head), path, value)


def search_data(sql: Flavour, path: Path, value: Any, limit: int) -> Steps[list[Entry]]:
    """Entries of checkpoints that have the value at the path, newest first."""
    found: list[tuple[int, Entry]] = []
    for thread, newest in (yield from _candidates(sql, leaf_of(value))):
        if len(found) == limit and (not found or found[-1][0] > newest):
            break
        found += yield from _in_thread(sql, thread, path, value)
        found = sorted(found, key=lambda hit: hit[0], reverse=True)[:limit]
    return [entry for _, entry in found]


def _candidates(sql: Flavour, leaf: str | None) -> Steps[list[Row]]:
    """Threads that may contain it, with the id of their newest checkpoint, the newest first."""
    condition, values = "1 = 1", []
    if leaf is not None and sql.holds("c.head"):
        condition = (
            f"({sql.holds('c.head')} OR EXISTS (SELECT 1 FROM {sql.runs} r"
            f" WHERE r.thread = c.thread AND {sql.holds('r.items')}))"
        )
        values = [sql.leaf(leaf)] * 2
    return (
        yield (
            f"SELECT c.thread, max(c.id) FROM {sql.joined} WHERE {sql.alive} AND {condition}"
            " GROUP BY c.thread ORDER BY 2 DESC",
            (sql.now(), *values),
        )
    )


def _in_thread(sql: Flavour, thread: int, path: Path, value: Any) -> Steps[list[tuple[int, Entry]]]:
    rows = yield (
        f"SELECT {sql.run} FROM {sql.runs} WHERE thread = ?",
        (thread,),
    )
    items = RunItems(map(sql.read_run, rows), value)
    rows = yield (
        f"SELECT {sql.columns('head', 'manifest', 'key')} FROM {sql.joined} WHERE c.thread = ? ORDER BY c.id DESC",
        (thread,),
    )
    found = []
    for row in (CheckpointRow(*row) for row in rows):
        stored = sql.read_checkpoint(row, items.branches)
        if holds(stored, path, value, items):
            found.append((row.key, stored.entry))
    return found


def checkpoint_hit(sql: Flavour, key: int, points: float | None, terms: Sequence[str]) -> Steps[Hit | None]:
    """The hit for the checkpoint with this row id, unless its thread has expired.

    Without points, those that its own text has.
    """
    rows = yield (
        f"SELECT {sql.columns('head')} FROM {sql.joined} WHERE {sql.alive} AND c.id = ?",
        (sql.now(), key),
    )
    if not rows:
        return None
    row = CheckpointRow(*rows[0])
    entry = sql.read_entry(row)
    text = head_text(sql.read_json(row.head), entry.metadata)
    return Hit(entry, score(terms, text) if points is None else points, snippet(terms, text))


def head_text(head: str, metadata: str) -> str:
    """What search sees of a checkpoint itself."""
    return searchable(f"[{head},{metadata}]")


def run_hit(
    sql: Flavour, thread: int, branch: str, number: int, points: float | None, terms: Sequence[str]
) -> Steps[Hit | None]:
    """The hit for the first checkpoint that shows the words of a run: the one that added it, if it still exists.

    Without points, those that its own text has.
    """
    rows = yield (
        f"SELECT seq, {sql.run} FROM {sql.runs} WHERE thread = ? AND branch = ? AND number = ?",
        (thread, branch, number),
    )
    if not rows:
        return None
    seq, *row = rows[0]
    run = sql.read_run(row)
    start, length = run.start, run.length
    newer = yield (
        f"SELECT number, start FROM {sql.runs} WHERE thread = ? AND branch = ? AND number > ? ORDER BY number",
        (thread, branch, number),
    )
    # From each newer run on, what is left of this one ends where the newer ones begin.
    numbers = [later for later, _ in newer]
    cuts = list(accumulate((begin for _, begin in newer), min))
    rows = yield (
        f"SELECT {sql.columns('manifest')} FROM {sql.joined}"
        f" WHERE {sql.alive} AND c.thread = ? AND c.seq >= ? ORDER BY c.seq",
        (sql.now(), thread, seq),
    )
    found: dict[tuple[int, int], str] = {}
    for checkpoint in (CheckpointRow(*row) for row in rows):
        for extent in wanted(sql.read_json(checkpoint.manifest)):
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
                    rank = score(terms, found[piece]) if points is None else points
                    return Hit(sql.read_entry(checkpoint), rank, snippet(terms, found[piece]))
    return None


def row_hits(sql: Flavour, row: Row, points: float, terms: Sequence[str]) -> Steps[list[Hit]]:
    """The hits for a row of the full text: thread, seq, branch and number; a checkpoint's own text has no branch."""
    thread, seq, branch, number = row
    if branch is not None:
        hits = [(yield from run_hit(sql, thread, branch, number, points, terms))]
    else:
        keys = yield f"SELECT id FROM {sql.checkpoints} WHERE thread = ? AND seq = ?", (thread, seq)
        hits = []
        for (key,) in keys:
            hits.append((yield from checkpoint_hit(sql, key, points, terms)))
    return [hit for hit in hits if hit is not None]


PORTION = 500
THREADS_AT_ONCE = 100


class ThreadToIndex(NamedTuple):
    """A thread with something to index: what came after one sequence number, up to another."""

    key: int
    after: int
    up_to: int


class Portion(NamedTuple):
    """What is to be indexed next, where a thread's row has `indexed_seq`: how far its index has got.

    A row begins with the thread, what tells a checkpoint (None for a run), branch and number (None for a checkpoint).
    """

    threads: list[ThreadToIndex]
    rows: list[Row]
    is_full: bool


def portion_of(rows: Sequence[Row]) -> Portion:
    """The next portion, still without its rows. Given are threads: key, `indexed_seq` and `last_seq`."""
    threads, left = [], PORTION
    for key, after, last in rows:
        if left > 0:
            threads.append(ThreadToIndex(key, after, min(last, after + left)))
            left -= last - after
    return Portion(threads, [], bool(threads) and (left <= 0 or len(rows) == THREADS_AT_ONCE))


def ranges(threads: Sequence[ThreadToIndex]) -> tuple[str, list[int]]:
    """A condition for everything of these threads that is to be indexed, with its values."""
    condition = " OR ".join(["(thread = ? AND seq > ? AND seq <= ?)"] * len(threads))
    return condition, [value for thread in threads for value in thread]


def still_to_index(sql: Flavour, portion: Portion) -> Steps[list[ThreadToIndex]]:
    """The threads of a portion that no other process has indexed meanwhile.

    They stay locked, so that nothing is indexed that is being deleted.
    """
    keys = [thread.key for thread in portion.threads]
    locked = yield (
        f"SELECT id, indexed_seq FROM {sql.threads} WHERE id IN {marks(len(keys))} ORDER BY id FOR UPDATE",
        keys,
    )
    at = dict(locked)
    return [thread for thread in portion.threads if at.get(thread.key) == thread.after]


LONGEST_PLAIN = 38
LARGE_TEXT = 4_000_000


def spelt(word: str) -> str:
    """A word that no parser splits or leaves out: 3 to 40 ASCII letters and digits, and no stopword."""
    return f"xx{word}" if word.isascii() and len(word) <= LONGEST_PLAIN else f"xu{digest(word)}"


def indexed(text: str) -> str:
    """The words of a JSON text, spelt. Of a very long text each word once, which costs it only some rank."""
    found: Sequence[str] = words(searchable(text))
    if len(text) > LARGE_TEXT:
        found = list(dict.fromkeys(found))
    return " ".join(map(spelt, found))


def metadata_key(key: str, value: str) -> str:
    """The digest of a key and a value (canonical JSON). A key may hold anything, so it is written as JSON, too."""
    return digest(f"{canonical(key)}:{value}")
