"""Reading from MySQL where it can do better than the shared steps."""

from __future__ import annotations

from locus.memory.backends.mysql_flavour import MySQLFlavour
from locus.memory.backends.mysql_threads import TOO_MANY, metadata_key
from locus.memory.backends.sql import Steps
from locus.memory.backends.sql_rows import entry_of, now
from locus.memory.codec import encode_trusted
from locus.memory.matching import has_value
from locus.memory.records import Entry, Run, Stored

PAGE = 200
_NAME = "varchar(64) CHARACTER SET ascii COLLATE ascii_bin"


def read(sql: MySQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """A checkpoint with its runs in one statement, so that all of it is as of one instant.

    The manifest says which runs; each extent needs those from the newest that begins at its start, or before, on.
    """
    values = [thread_id, now(sql), namespace]
    which = "ORDER BY c.seq DESC LIMIT 1"
    if checkpoint_id is not None:
        which = "AND c.checkpoint_id = ?"
        values.append(checkpoint_id)
    rows = yield (
        f"""WITH found AS (
    SELECT t.thread_id, c.namespace, c.checkpoint_id, c.parent_id, c.seq, c.rev, c.created_at,
        c.metadata, c.head, c.manifest, c.thread, {sql.passed} AS passed
    FROM {sql.joined} WHERE t.thread_id = ? AND {sql.alive} AND c.namespace = ? {which}
), named AS (
    SELECT DISTINCT f.thread, COALESCE(e.branch, e.large) AS branch,
        COALESCE(e.run, 0) AS run, COALESCE(e.skip, 0) AS skip
    FROM found f, JSON_TABLE(f.manifest, '$[*]' COLUMNS (
        large {_NAME} PATH '$[1]',
        NESTED PATH '$[1][*]' COLUMNS (branch {_NAME} PATH '$[0]', run bigint PATH '$[1]', skip bigint PATH '$[2]')
    )) e
), extents AS (
    SELECT n.thread, n.branch, n.run, (
        SELECT o.number FROM {sql.runs} o WHERE o.thread = n.thread AND o.branch = n.branch AND o.number <= n.run
        AND o.start <= n.skip ORDER BY o.number DESC LIMIT 1) AS oldest
    FROM named n
)
SELECT thread_id, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata, head, manifest, passed,
    NULL, NULL, NULL FROM found
UNION ALL
SELECT NULL, NULL, NULL, r.branch, NULL, NULL, NULL, NULL, r.items, NULL, NULL, r.number, r.start, r.count
FROM extents e JOIN {sql.runs} r
    ON r.thread = e.thread AND r.branch = e.branch AND r.number BETWEEN e.oldest AND e.run""",
        values,
    )
    found: Stored | None = None
    runs: dict[str, dict[int, Run]] = {}
    for row in rows:
        if row[0] is None:
            branch, items, (number, start, count) = row[3], sql.read_json(row[8]), row[11:]
            runs.setdefault(branch, {})[number] = Run(branch, number, start, count, items)
    for row in rows:
        if row[0] is not None:
            ordered = {branch: list(members.values()) for branch, members in runs.items()}
            found = Stored(entry_of(sql, row), sql.read_json(row[8]), sql.read_json(row[9]), ordered, bool(row[10]))
    return found


def find(sql: MySQLFlavour, key: str, value: str, limit: int) -> Steps[list[Entry]]:
    """By the index of pairs; `value` is canonical JSON. What has too many pairs for the index is looked at itself."""
    wanted = encode_trusted([metadata_key(key, value), TOO_MANY])
    found: list[Entry] = []
    page, place = "", list[int]()
    while len(found) < limit:
        rows = yield (
            f"SELECT {sql.entry}, c.id FROM {sql.joined} WHERE {sql.alive}"
            f" AND JSON_OVERLAPS(c.metadata_keys, CAST(? AS JSON)){page} ORDER BY c.id DESC LIMIT {PAGE}",
            (now(sql), wanted, *place),
        )
        entries = (entry_of(sql, row) for row in rows)
        found += [entry for entry in entries if has_value(entry.metadata, key, value)]
        if len(rows) < PAGE:
            break
        page, place = " AND c.id < ?", [rows[-1][8]]
    return found[:limit]
