"""Reads that MySQL does better than the steps in `sql.read`: a whole checkpoint at once, and queries by metadata."""

from __future__ import annotations

from collections import defaultdict

from locus.memory.backends.mysql.commit import TOO_MANY
from locus.memory.backends.mysql.schema import MySQLFlavour
from locus.memory.backends.sql.flavour import Steps, time_in_json
from locus.memory.backends.sql.read import FEW, with_metadata
from locus.memory.backends.sql.schema import CheckpointRow
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.codec import TAG, decode, encode_trusted
from locus.memory.model.manifest import check_named, wanted
from locus.memory.model.records import Entry, Run, Stored

_NAME = "varchar(64) CHARACTER SET ascii COLLATE ascii_bin"


def read(sql: MySQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """Read a checkpoint with its runs in one statement, so that all of it is as of one instant.

    The manifest names the runs. Each extent needs the newest run that begins at or before its start, and those after
    it. If these are many more than the extent has items, later ones hide most of them, and only the others are read.

    The driver spends time on every column of every row. So runs and checkpoint share seven columns, and the last one
    holds all other columns of a checkpoint.
    """
    which, values = sql.which_one(thread_id, namespace, checkpoint_id)
    many, run = f"2 * e.length + {FEW}", "r.branch, r.number, r.start, r.count, r.items, r.items_before, NULL"
    rows = yield (
        f"""WITH found AS (
    SELECT c.checkpoint_id, c.parent_id, c.seq, c.rev, c.created_at,
        c.metadata, c.head, c.manifest, c.thread, {sql.passed} AS passed
    FROM {sql.joined} WHERE {which}
), named AS (
    SELECT DISTINCT f.thread, COALESCE(e.branch, e.large) AS branch,
        COALESCE(e.run, 0) AS run, COALESCE(e.skip, 0) AS skip, COALESCE(e.length, 1) AS length
    FROM found f, JSON_TABLE(f.manifest, '$[*]' COLUMNS (
        large {_NAME} PATH '$[1]',
        NESTED PATH '$[1][*]' COLUMNS (
            branch {_NAME} PATH '$[0]', run bigint PATH '$[1]', skip bigint PATH '$[2]', length bigint PATH '$[3]')
    )) e
), extents AS (
    SELECT e.thread, e.branch, e.run, e.length, CASE WHEN e.skip = 0 AND e.run < {many} THEN 0 ELSE (
        SELECT o.number FROM {sql.runs} o WHERE o.thread = e.thread AND o.branch = e.branch AND o.number <= e.run
        AND o.start <= e.skip ORDER BY o.number DESC LIMIT 1) END AS oldest
    FROM named e
)
SELECT parent_id, seq, passed, NULL, head, NULL,
    JSON_ARRAY(checkpoint_id, rev, created_at, CAST(metadata AS CHAR), CAST(manifest AS CHAR))
FROM found
UNION ALL
SELECT {run} FROM extents e JOIN {sql.runs} r
    ON r.thread = e.thread AND r.branch = e.branch AND r.number BETWEEN e.oldest AND e.run
WHERE e.run - e.oldest < {many}
UNION ALL
SELECT {run} FROM extents e JOIN LATERAL (
    SELECT MAX(v.number) AS number FROM (
        SELECT o.number, MIN(o.start) OVER (ORDER BY o.number DESC ROWS UNBOUNDED PRECEDING) AS lowest
        FROM {sql.runs} o
        WHERE o.thread = e.thread AND o.branch = e.branch AND o.number BETWEEN e.oldest AND e.run
    ) v GROUP BY v.lowest
) shown JOIN {sql.runs} r ON r.thread = e.thread AND r.branch = e.branch AND r.number = shown.number
WHERE e.run - e.oldest >= {many}""",
        values,
    )
    runs: defaultdict[str, dict[int, Run]] = defaultdict(dict)
    for branch, number, start, count, items, before, about in rows:
        if about is None:
            text = items if TAG not in items else sql.read_json(items)
            runs[branch][number] = Run(branch, number, start, count, text, before)
    for parent_id, seq, passed, _, head, _, about in rows:
        if about is not None:
            name, rev, created_at, metadata, manifest = decode(about)
            texts = (metadata, head, manifest)
            row = CheckpointRow(
                thread_id, namespace, name, parent_id, seq, rev, time_in_json(created_at), *texts, passed
            )
            stored = sql.read_checkpoint(row, {branch: list(members.values()) for branch, members in runs.items()})
            check_named(wanted(stored.manifest), stored.runs, since=False)
            return stored
    return None


def find(sql: MySQLFlavour, key: str, value: str, limit: int, prefix: str) -> Steps[list[Entry]]:
    """Find checkpoints by a pair in the index; `value` is canonical JSON.

    Rows with more pairs than the index holds are checked here.
    """
    wanted = encode_trusted([metadata_key(key, value), TOO_MANY])
    condition = "JSON_OVERLAPS(c.metadata_keys, CAST(? AS JSON))"
    return (yield from with_metadata(sql, sql.joined, condition, [wanted], key, value, limit, prefix))
