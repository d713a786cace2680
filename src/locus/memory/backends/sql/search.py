"""Search in SQL databases: by the words of a text, and by the value at a path of the payload.

Each backend finds rows with its own full-text index: runs, and checkpoints by their head and metadata. `run_hit` and
`checkpoint_hit` lead from such a row to the checkpoint that shows the words. `indexed`, `spelt` and `metadata_key`
write words and metadata so that no database's own idea of a word or of equality matters.

`search_data` finds checkpoints by the value at a path. The database narrows the search down to threads that contain the
value anywhere, if it can; the rest is checked here. The items of a thread are read once, however many of its
checkpoints show them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
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
    """Tell whether `value` is at `path`. On the way, and at the end, a list stands for each of its items.

    A dict matches a dict that has at least the same values under its keys. Anything else has to be equal.
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
    """Find a plain value, as JSON, that every match has to contain; None if there is none."""
    if isinstance(value, _CONTAINERS):
        inner = value.values() if isinstance(value, dict) else value
        return next((leaf for item in inner if (leaf := leaf_of(item)) is not None), None)
    return encode(value)


class RunItems:
    """The runs of one thread, and which of their items match a value."""

    def __init__(self, runs: Iterable[Run], value: Any) -> None:
        self.branches: defaultdict[str, list[Run]] = defaultdict(list)
        for run in sorted(runs):
            self.branches[run.branch].append(run)
        self._value = value
        self._found: dict[tuple[str, int, Path], list[int]] = {}

    def shown(self, extents: Sequence[Extent], rest: Path) -> bool:
        """Tell whether one of the items that these extents show has the value at the rest of the path."""
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
    """Tell whether the payload of a checkpoint has the value at the path."""
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
    """List entries of checkpoints that have the value at the path, newest first."""
    hits: list[tuple[int, Entry]] = []
    for thread, newest in (yield from _candidates(sql, leaf_of(value))):
        if len(hits) == limit and (not hits or hits[-1][0] > newest):
            break
        hits += yield from _in_thread(sql, thread, path, value)
        hits = sorted(hits, key=lambda hit: hit[0], reverse=True)[:limit]
    return [entry for _, entry in hits]


def _candidates(sql: Flavour, leaf: str | None) -> Steps[list[Row]]:
    """List threads that may contain a leaf, with the id of their newest checkpoint, newest first."""
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
    matching = []
    for row in (CheckpointRow(*row) for row in rows):
        stored = sql.read_checkpoint(row, items.branches)
        if holds(stored, path, value, items):
            matching.append((row.key, stored.entry))
    return matching


def checkpoint_hit(sql: Flavour, key: int, points: float | None, terms: Sequence[str]) -> Steps[Hit | None]:
    """Make the hit for the checkpoint with this row id; None if its thread has expired.

    Without `points`, the words of the checkpoint's own text are counted.
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
    """The text of a checkpoint itself that search looks into."""
    return searchable(f"[{head},{metadata}]")


def run_hit(
    sql: Flavour, thread: int, branch: str, number: int, points: float | None, terms: Sequence[str]
) -> Steps[Hit | None]:
    """Make the hit for the words of a run: the oldest checkpoint left that shows them.

    If `points` is None, they are counted in what that checkpoint shows of the run.
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
    texts: dict[tuple[int, int], str] = {}
    for checkpoint in (CheckpointRow(*row) for row in rows):
        for extent in wanted(sql.read_json(checkpoint.manifest)):
            if extent.branch != branch or extent.run < number:
                continue
            passed = bisect_right(numbers, extent.run)
            end = min(start + length, extent.skip + extent.length, *cuts[passed - 1 : passed])
            piece = (max(start, extent.skip) - start, end - start)
            if piece[0] < piece[1]:
                if piece not in texts:
                    text = shown_text(run, *piece)
                    texts[piece] = text if score(terms, text) else ""
                if texts[piece]:
                    rank = score(terms, texts[piece]) if points is None else points
                    return Hit(sql.read_entry(checkpoint), rank, snippet(terms, texts[piece]))
    return None


def row_hits(sql: Flavour, row: Row, points: float, terms: Sequence[str]) -> Steps[list[Hit]]:
    """Make the hits for a row of the full text: thread, seq, branch (None for a checkpoint), number."""
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
    """A thread with something to index: everything after one sequence number, up to another."""

    key: int
    after: int
    up_to: int


class TextPortion(NamedTuple):
    """The texts that are indexed for search next. `threads` says which part of each thread they are.

    A row begins with the thread, the id of a checkpoint (None for a run), branch and number (None for a checkpoint).
    With `is_full`, there is more to index after this portion.
    """

    threads: list[ThreadToIndex]
    rows: list[Row]
    is_full: bool


class PortionIndexing(NamedTuple):
    """How a database brings its full text up to date, a portion at a time."""

    next_portion: Callable[[Any, str], Steps[TextPortion]]
    """Reads the next texts of threads whose ids start with a prefix."""
    texts_of: Callable[[Any, TextPortion], list[str]]
    """Makes the text to index of each row; that takes long, and happens in a thread."""
    index_portion: Callable[[Any, TextPortion, Sequence[str]], Steps[None]]
    """Writes them."""


def portion_of(rows: Sequence[Row]) -> TextPortion:
    """Choose threads for the next portion, without its rows.

    Each of `rows` has the key of a thread, the last sequence number that is indexed, and the last one that there is.
    """
    threads, left = [], PORTION
    for key, after, last in rows:
        if left > 0:
            threads.append(ThreadToIndex(key, after, min(last, after + left)))
            left -= last - after
    return TextPortion(threads, [], bool(threads) and (left <= 0 or len(rows) == THREADS_AT_ONCE))


def ranges(threads: Sequence[ThreadToIndex]) -> tuple[str, list[int]]:
    """A condition, with its values, for everything of these threads that is to be indexed."""
    condition = " OR ".join(["(thread = ? AND seq > ? AND seq <= ?)"] * len(threads))
    return condition, [value for thread in threads for value in thread]


def still_to_index(sql: Flavour, portion: TextPortion) -> Steps[list[ThreadToIndex]]:
    """Lock the threads of a portion, and list those that no other process has indexed meanwhile.

    The lock keeps texts from being indexed while they are deleted.
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
    """Spell a word so that no parser splits it or leaves it out: 3 to 40 ASCII letters and digits, and no stopword."""
    return f"xx{word}" if word.isascii() and len(word) <= LONGEST_PLAIN else f"xu{digest(word)}"


def indexed(text: str) -> str:
    """The spelt words of a JSON text. A very long text has each word once, which costs only some rank."""
    found: Sequence[str] = words(searchable(text))
    if len(text) > LARGE_TEXT:
        found = list(dict.fromkeys(found))
    return " ".join(map(spelt, found))


def metadata_key(key: str, value: str) -> str:
    """The digest of a metadata key and a value (canonical JSON).

    A key may hold anything, so it is written as JSON, too.
    """
    return digest(f"{canonical(key)}:{value}")
