"""Reading from PostgreSQL, where it can do better than the steps that all SQL backends share."""

from __future__ import annotations

from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sql.read import entry_of, now
from locus.memory.model.codec import encode
from locus.memory.model.matching import has_value
from locus.memory.model.records import Entry, Run, Stored

PAGE = 200

_ENTRY = "thread_id, namespace, checkpoint_id, parent_id, seq, rev, created_at, metadata"


def read(sql: PostgreSQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """A checkpoint with its runs in one statement, so that all of it is as of one instant.

    The manifest says which runs. Each extent needs the newest run that begins at or before its start, and all later.
    """
    values = [sql.text(thread_id), now(sql), sql.text(namespace)]
    which = f"{sql.in_order('c.namespace')} = ? ORDER BY c.seq DESC LIMIT 1"
    if checkpoint_id is not None:
        which = "c.namespace = ? AND c.checkpoint_id = ?"
        values.append(sql.text(checkpoint_id))
    rows = yield (
        f"""WITH found AS MATERIALIZED (
    SELECT t.thread_id, c.namespace, c.checkpoint_id, c.parent_id, c.seq, c.rev, c.created_at,
        c.metadata::text AS metadata, c.head::text AS head, c.manifest, c.thread, {sql.passed} AS passed
    FROM {sql.joined} WHERE {sql.of_thread} AND {sql.alive} AND {which}
), cuts AS (
    SELECT thread, line -> 1 AS cut FROM found, json_array_elements(manifest) AS line
), extents AS (
    SELECT DISTINCT thread, cut #>> '{{}}' AS branch, 0 AS run, 0 AS skip FROM cuts WHERE json_typeof(cut) = 'string'
    UNION ALL
    SELECT DISTINCT thread, extent ->> 0, (extent ->> 1)::integer, (extent ->> 2)::integer FROM cuts,
        json_array_elements(CASE json_typeof(cut) WHEN 'array' THEN cut ELSE '[]' END) AS extent
)
SELECT {_ENTRY}, head, manifest::text, passed, NULL::integer, NULL::integer, NULL::integer FROM found
UNION ALL
SELECT NULL, NULL, NULL, r.branch, NULL, NULL, NULL, NULL, r.items::text, NULL, NULL, r.number, r.start, r.count
FROM extents e, LATERAL (
    SELECT * FROM {sql.runs} WHERE thread = e.thread AND branch = e.branch AND number <= e.run AND number >= (
        SELECT number FROM {sql.runs} WHERE thread = e.thread AND branch = e.branch AND number <= e.run
        AND start <= e.skip ORDER BY number DESC LIMIT 1)
    OFFSET 0
) r""",
        values,
    )
    found: Stored | None = None
    runs: dict[str, list[Run]] = {}
    for row in rows:
        if row[0] is not None:
            found = Stored(entry_of(sql, row), sql.read_json(row[8]), sql.read_json(row[9]), runs, bool(row[10]))
        else:
            runs.setdefault(row[3], []).append(Run(row[3], row[11], row[12], row[13], sql.read_json(row[8])))
    return found


def find(sql: PostgreSQLFlavour, key: str, value: str, limit: int) -> Steps[list[Entry]]:
    """Find candidates by containment, which has an index. It takes 1 for 1.0, and a part for the whole: check each."""
    # Metadata with NUL in a key, or with one key that looks like a tag, is kept as a list of pairs.
    forms = [f'{{"$locus:dict":[{sql.json(f"[{encode(key)},{value}]")}]}}']
    if "\0" not in key:
        forms.append(f"{{{encode(key)}:{sql.json(value)}}}")
    contained = " OR ".join(["c.metadata @> ?::jsonb"] * len(forms))
    found: list[Entry] = []
    place: list[int]
    page, place = "", []
    while len(found) < limit:
        rows = yield (
            f"SELECT {sql.entry}, c.id FROM {sql.joined} WHERE {sql.alive} AND c.metadata <> '{{}}' AND ({contained})"
            f"{page} ORDER BY c.id DESC LIMIT {PAGE}",
            (now(sql), *forms, *place),
        )
        entries = (entry_of(sql, row) for row in rows)
        found += [entry for entry in entries if has_value(entry.metadata, key, value)]
        if len(rows) < PAGE:
            break
        page, place = " AND c.id < ?", [rows[-1][8]]
    return found[:limit]
