"""Reads that PostgreSQL does better than the steps in `sql.read`.

A checkpoint comes with its runs, or with those that a part or a reader needs, in one statement, so that all of it is as
of one instant. The manifest names the runs: `extents` takes it apart, and `spans` has the oldest run of which an extent
shows something. If there are many more runs than the extent has items, later ones hide most of them, and only the
others are read. An index has where runs begin, so that is known without their items.

The driver spends time on every column of every row. So runs and checkpoint share seven columns, and the last one holds
all other columns of a checkpoint.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql import read as sql_read
from locus.memory.backends.sql.flavour import Steps, time_in_json
from locus.memory.backends.sql.read import (
    FEW,
    held_by,
    in_line,
    is_parent,
    new_extents,
    with_metadata,
    write_list,
    write_of,
)
from locus.memory.backends.sql.schema import RUN_INFO, CheckpointRow, of
from locus.memory.model.codec import TAG, decode, encode
from locus.memory.model.manifest import check_named, wanted
from locus.memory.model.parts import Ends, Part, Window, needed
from locus.memory.model.records import (
    Ancestor,
    AncestorQuery,
    Base,
    Entry,
    Extent,
    Path,
    Run,
    Stored,
    Write,
    writes_order,
)

_OF_TASK = -1
"""Stands where a run begins in the row of a pending write."""
_RUNS = "<runs>"
"""Stands for the table of runs, whose name the user chooses."""
_ITEMS = "json_array_elements(CASE json_typeof(cut) WHEN 'array' THEN cut ELSE '[]' END)"
_NUMBERS = "(extent ->> 1)::integer AS run, (extent ->> 2)::integer AS skip, (extent ->> 3)::integer AS length"
_LARGE = "SELECT DISTINCT thread, cut #>> '{}' AS branch, 0 AS run, 0 AS skip, 1 AS length FROM cuts"

_WHOLE = f"""named AS (
    {_LARGE} WHERE json_typeof(cut) = 'string'
    UNION ALL SELECT DISTINCT thread, extent ->> 0, {_NUMBERS} FROM cuts, {_ITEMS} AS extent
), extents AS (SELECT *, -1 AS after FROM named)"""

# What a reader has of an extent, as `sql_read.continued` says; and the newer runs go on where that ends, or before.
_SINCE = f"""{_WHOLE.rpartition(", extents")[0]}, known AS (
    SELECT line ->> 1 AS branch, 0 AS run, 0 AS skip, 1 AS length FROM held, json_array_elements(lines) AS line
    WHERE json_typeof(line -> 1) = 'string'
    UNION ALL SELECT extent ->> 0, {_NUMBERS}
    FROM (SELECT line -> 1 AS cut FROM held, json_array_elements(lines) AS line) c, {_ITEMS} AS extent
), extents AS (
    SELECT n.*, coalesce(h.run, -1) AS after FROM named n LEFT JOIN LATERAL (
        SELECT k.run FROM known k WHERE k.branch = n.branch AND k.skip <= n.skip AND CASE
            WHEN k.run = n.run THEN n.skip::bigint + n.length <= k.skip::bigint + k.length
            WHEN k.run < n.run THEN k.skip::bigint + k.length >= (SELECT min(r.start) FROM {_RUNS} r
                WHERE r.thread = n.thread AND r.branch = n.branch AND r.number > k.run AND r.number <= n.run) END
        ORDER BY k.run DESC LIMIT 1
    ) h ON true
    WHERE n.run > coalesce(h.run, -1)
)"""

_PART = f"""asked (paths, start, count, above) AS (SELECT ?::jsonb, ?::bigint, ?::bigint, ?::jsonb
), pieces AS (
    SELECT thread, path::jsonb IN (SELECT jsonb_array_elements(paths) FROM asked) AS is_asked, extent ->> 0 AS branch,
        {_NUMBERS}, sum((extent ->> 3)::integer) OVER (PARTITION BY line) AS total,
        sum((extent ->> 3)::integer) OVER (PARTITION BY line ORDER BY place) - (extent ->> 3)::integer AS at
    FROM cuts, {_ITEMS} WITH ORDINALITY AS extents (extent, place)
), bounds AS (
    SELECT p.*, count, CASE WHEN NOT is_asked THEN 0 WHEN start < 0 THEN greatest(0, total + start)
        ELSE least(start, total) END AS low
    FROM pieces p, asked WHERE is_asked OR above IS NULL
), extents AS (
    SELECT DISTINCT thread, branch, run, (skip + first)::integer AS skip, (last - first)::integer AS length, -1 AS after
    FROM bounds, LATERAL (SELECT greatest(low - at, 0) AS first,
        least(CASE WHEN is_asked THEN low + count - at ELSE length END, length) AS last) b
    WHERE first < last
    UNION ALL {_LARGE.replace(" FROM", ", -1 FROM")}, asked WHERE json_typeof(cut) = 'string'
        AND (above IS NULL OR path::jsonb IN (SELECT jsonb_array_elements(above)))
)"""


@lru_cache(maxsize=64)
def _statement(sql: PostgreSQLFlavour, which: str, extents: str, *, with_writes: bool) -> str:
    held = ""
    if extents is _SINCE:
        held = f"""held AS (
    SELECT h.manifest AS lines FROM found f, LATERAL (SELECT manifest FROM {sql.checkpoints}
        WHERE thread = f.thread AND namespace = ? AND checkpoint_id = ? AND rev = ? OFFSET 0) h
), """
    writes = (
        f"""
UNION ALL
SELECT w.task_id, w.idx, {_OF_TASK}, NULL, w.value::text, w.channel,
    json_build_array(w.task_path, encode(w.packed, 'base64'))::text
FROM found f, LATERAL (SELECT * FROM {sql.writes} WHERE thread = f.thread AND namespace = f.namespace
    AND checkpoint_id = f.checkpoint_id OFFSET 0) w"""
        if with_writes
        else ""
    )
    here = f"{sql.runs} WHERE thread = e.thread AND branch = e.branch AND number <= e.run"
    many = f"2::bigint * e.length + {FEW}"
    return f"""WITH found AS MATERIALIZED (
    SELECT c.*, {sql.passed} AS passed FROM {sql.joined} WHERE {which}
), {held}cuts AS (
    SELECT thread, line, content -> 0 AS path, content -> 1 AS cut
    FROM found, json_array_elements(manifest) WITH ORDINALITY AS lines (content, line)
), {extents.replace(_RUNS, sql.runs)}, spans AS MATERIALIZED (
    SELECT e.*, e.skip::bigint + e.length AS until, CASE WHEN e.skip = 0 AND e.run - e.after <= {many} THEN e.after + 1
        ELSE coalesce((SELECT number FROM {here} AND number > e.after AND start <= e.skip
            ORDER BY number DESC LIMIT 1), e.after + 1) END AS oldest
    FROM extents e
)
SELECT NULL AS branch, seq, passed::integer, NULL::integer, head::text, NULL, json_build_array(
    checkpoint_id, parent_id, rev, created_at, metadata::text, manifest::text,
    {"(SELECT lines::text FROM held)" if held else "NULL"})::text FROM found
UNION ALL
SELECT {of("r", RUN_INFO)}, r.items::text, r.items_before, NULL FROM spans e, LATERAL (
    SELECT * FROM {here} AND number >= e.oldest AND (start < e.until OR number = e.run)
    AND e.run - e.oldest < {many} OFFSET 0
) r
UNION ALL
SELECT {of("r", RUN_INFO)}, r.items::text, r.items_before, NULL FROM spans e, LATERAL (
    SELECT max(number) AS number FROM (
        SELECT number, min(start) OVER (ORDER BY number DESC ROWS UNBOUNDED PRECEDING) AS lowest
        FROM {here} AND number >= e.oldest AND (start < e.until OR number = e.run)
        AND e.run - e.oldest >= {many} OFFSET 0
    ) v GROUP BY lowest OFFSET 0
) v, LATERAL (SELECT * FROM {here} AND number = v.number OFFSET 0) r{writes}"""


def read(sql: PostgreSQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """Read a checkpoint with its runs."""
    stored, _ = yield from _read(sql, thread_id, namespace, checkpoint_id, _WHOLE, ())
    return stored if stored is None else _checked(stored, wanted(stored.manifest))


def read_with_writes(
    sql: PostgreSQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base | None
) -> Steps[tuple[Stored, list[Write]] | None]:
    """Read a checkpoint with its runs, or with those that a reader of `held` lacks, and its pending writes."""
    writes: list[Write] = []
    place = (thread_id, namespace, checkpoint_id)
    if held is not None:
        stored = yield from read_since(sql, *place, held, writes)
    else:
        stored, _ = yield from _read(sql, *place, _WHOLE, (), writes)
        stored = stored if stored is None else _checked(stored, wanted(stored.manifest))
    return None if stored is None else (stored, sorted(writes, key=writes_order))


def read_part(
    sql: PostgreSQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part
) -> Steps[Stored | None]:
    """Read a checkpoint with the runs that hold a part of it. The statement chooses extents as `parts.needed` does."""
    if isinstance(part, Ends):
        return (yield from sql_read.read(sql, thread_id, namespace, checkpoint_id, part, at_once=False))
    if isinstance(part, Window):
        values: tuple[Any, ...] = (_paths(sql, part.paths), -part.last, part.last, None)
    else:
        above = [part.path[:length] for length in range(1, len(part.path) + 1)]
        values = (_paths(sql, [part.path]), part.start, part.count, _paths(sql, above))
    stored, _ = yield from _read(sql, thread_id, namespace, checkpoint_id, _PART, values)
    return stored if stored is None else _checked(stored, needed(stored.manifest, part))


def _paths(sql: PostgreSQLFlavour, paths: Iterable[Path]) -> str:
    """Write paths as a manifest has them."""
    return sql.manifest_json(encode([list(path) for path in paths]))


def read_since(
    sql: PostgreSQLFlavour,
    thread_id: str,
    namespace: str,
    checkpoint_id: str | None,
    held: Base,
    writes: list[Write] | None = None,
) -> Steps[Stored | None]:
    """Read a checkpoint without the runs of items that a reader of the checkpoint `held` has already."""
    place = tuple(map(sql.text, (namespace, held.checkpoint_id, held.rev)))
    stored, manifest = yield from _read(sql, thread_id, namespace, checkpoint_id, _SINCE, place, writes)
    if stored is None or manifest is None:
        return stored if stored is None else _checked(stored, wanted(stored.manifest))
    new = new_extents(wanted(stored.manifest), held_by(sql.read_json(manifest)))
    return replace(_checked(stored, new), since=held)


def ancestors(sql: PostgreSQLFlavour, query: AncestorQuery) -> Steps[list[Ancestor]]:
    """Read the ancestors of a checkpoint, a page with one statement."""
    return (yield from in_line(query, partial(_page_before, sql)))


def _page_before(sql: PostgreSQLFlavour, query: AncestorQuery) -> Steps[list[Ancestor]]:
    which, values = sql.which_one(*query[:3])
    thread_id, namespace = sql.text(query.thread_id), sql.text(query.namespace)
    channels = [sql.text(channel) for channel in query.channels]
    rows = yield _line_statement(sql, which), (*values, query.limit - 1, channels, list(query.known))
    found: dict[int, Ancestor] = {}
    writes: dict[int, list[Write]] = {}
    for place, *row, about in rows:
        task_id, seq, name, rev, head, _ = row
        if task_id is not None:
            writes.setdefault(place, []).append(write_of(sql, row))
            continue
        stored: Stored | None = None
        if about is not None:
            parent_id, created_at, metadata, manifest = decode(about)
            columns = (thread_id, namespace, name, parent_id, seq, rev, time_in_json(created_at))
            stored = sql.read_checkpoint(CheckpointRow(*columns, metadata, head, manifest))
        found[place] = Ancestor(sql.read_text(name), rev, stored, [])
    for place, ancestor in found.items():
        ancestor.writes.extend(sorted(writes.get(place, ()), key=writes_order))
    return [found[place] for place in sorted(found)]


@lru_cache(maxsize=64)
def _line_statement(sql: PostgreSQLFlavour, which: str) -> str:
    """A statement for a page of ancestors and their pending writes. A write has a task, and a checkpoint has none."""
    parent = "LATERAL (SELECT * FROM {} p WHERE " + is_parent("p") + " OFFSET 0) p"
    about = "json_build_array(p.parent_id, p.created_at, p.metadata::text, p.manifest::text)::text"
    return f"""WITH RECURSIVE line (place, thread, namespace, parent_id) AS (
    SELECT 0, c.thread, c.namespace, c.parent_id FROM {sql.joined} WHERE {which}
    UNION ALL SELECT l.place + 1, p.thread, p.namespace, p.parent_id
    FROM line l, {parent.format(sql.checkpoints)} WHERE l.place < ?
)
SELECT l.place, {write_list(sql, "p")}, NULL FROM line l, {parent.format(sql.writes)} WHERE p.channel = ANY(?)
UNION ALL
SELECT p.place, NULL, p.seq, p.checkpoint_id, p.rev, CASE WHEN is_new THEN p.head::text END, NULL,
    CASE WHEN is_new THEN {about} END
FROM (SELECT l.place, p.*, p.rev <> ALL(?) AS is_new FROM line l, {parent.format(sql.checkpoints)}) p"""


def _checked(stored: Stored, extents: Sequence[Extent]) -> Stored:
    check_named(extents, stored.runs, since=False)
    return stored


def _read(
    sql: PostgreSQLFlavour,
    thread_id: str,
    namespace: str,
    checkpoint_id: str | None,
    extents: str,
    more: Sequence[Any],
    writes: list[Write] | None = None,
) -> Steps[tuple[Stored | None, str | None]]:
    """Read a checkpoint with the runs of these extents, and the manifest of the checkpoint that a reader has.

    Its pending writes are added to `writes`.
    """
    which, values = sql.which_one(thread_id, namespace, checkpoint_id)
    rows = yield _statement(sql, which, extents, with_writes=writes is not None), (*values, *more)
    stored: Stored | None = None
    manifest: str | None = None
    runs: dict[str, list[Run]] = {}
    for branch, number, start, length, items, before, about in rows:
        if about is None:
            # Few texts need more than this look, and a load of a long thread has thousands.
            text = items if TAG not in items else sql.read_json(items)
            runs.setdefault(branch, []).append(Run(branch, number, start, length, text, before))
            continue
        if start == _OF_TASK and writes is not None:
            task_path, packed = decode(about)
            data = None if packed is None else b64decode(packed)
            writes.append(write_of(sql, (branch, number, task_path, before, items, data)))
            continue
        name, parent_id, rev, created_at, metadata, stored_manifest, manifest = decode(about)
        place = (sql.text(thread_id), sql.text(namespace), name, parent_id, number, rev, time_in_json(created_at))
        stored = sql.read_checkpoint(CheckpointRow(*place, metadata, items, stored_manifest, start), runs)
    return stored, manifest


def find(sql: PostgreSQLFlavour, key: str, value: str, limit: int, prefix: str = "") -> Steps[list[Entry]]:
    """Find checkpoints by metadata, newest first.

    Candidates are found by containment, which has an index. It takes 1 for 1.0, and a part for the whole, so each
    candidate is checked.
    """
    # Metadata with NUL in a key, or with one key that looks like a tag, is kept as a list of pairs.
    forms = [f'{{"$locus:dict":[{sql.json(f"[{encode(key)},{value}]")}]}}']
    if "\0" not in key:
        forms.append(f"{{{encode(key)}:{sql.json(value)}}}")
    contained = " OR ".join(["c.metadata @> ?::jsonb"] * len(forms))
    condition = f"c.metadata <> '{{}}' AND ({contained})"
    return (yield from with_metadata(sql, sql.joined, condition, forms, key, value, limit, prefix))
