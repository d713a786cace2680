"""Reading from PostgreSQL, where it can do better than the steps that all SQL backends share."""

from __future__ import annotations

from locus.memory.backends.postgresql.schema import PostgreSQLFlavour
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sql.read import stored_of, which_one, with_metadata
from locus.memory.backends.sql.schema import RUN_INFO, CheckpointRow, of
from locus.memory.model.codec import encode
from locus.memory.model.manifest import check_named, wanted
from locus.memory.model.records import Entry, Run, Stored

_FIELDS = CheckpointRow._fields[: CheckpointRow._fields.index("thread")]
_FOUND = ", ".join(_FIELDS)
_NO_CHECKPOINT = ", ".join(["NULL"] * len(_FIELDS))


def read(sql: PostgreSQLFlavour, thread_id: str, namespace: str, checkpoint_id: str | None) -> Steps[Stored | None]:
    """A checkpoint with its runs in one statement, so that all of it is as of one instant.

    The manifest says which runs. Each extent needs the newest run that begins at or before its start, and all later.
    """
    which, values = which_one(sql, thread_id, namespace, checkpoint_id)
    rows = yield (
        f"""WITH found ({_FOUND}, thread, lines) AS MATERIALIZED (
    SELECT {sql.stored}, c.manifest FROM {sql.joined} WHERE {which}
), cuts AS (
    SELECT thread, line -> 1 AS cut FROM found, json_array_elements(lines) AS line
), extents AS (
    SELECT DISTINCT thread, cut #>> '{{}}' AS branch, 0 AS run, 0 AS skip FROM cuts WHERE json_typeof(cut) = 'string'
    UNION ALL
    SELECT DISTINCT thread, extent ->> 0, (extent ->> 1)::integer, (extent ->> 2)::integer FROM cuts,
        json_array_elements(CASE json_typeof(cut) WHEN 'array' THEN cut ELSE '[]' END) AS extent
)
SELECT NULL AS branch, NULL::integer, NULL::integer, NULL::integer, NULL, NULL, {_FOUND} FROM found
UNION ALL
SELECT {of("r", RUN_INFO)}, r.items::text, r.items_before, {_NO_CHECKPOINT}
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
    for branch, number, start, length, items, before, *checkpoint in rows:
        if branch is None:
            found = stored_of(sql, CheckpointRow(*checkpoint), runs)
        else:
            runs.setdefault(branch, []).append(Run(branch, number, start, length, sql.read_json(items), before))
    if found is not None:
        check_named(wanted(found.manifest), runs, since=False)
    return found


def find(sql: PostgreSQLFlavour, key: str, value: str, limit: int, prefix: str = "") -> Steps[list[Entry]]:
    """Find candidates by containment, which has an index. It takes 1 for 1.0, and a part for the whole: check each."""
    # Metadata with NUL in a key, or with one key that looks like a tag, is kept as a list of pairs.
    forms = [f'{{"$locus:dict":[{sql.json(f"[{encode(key)},{value}]")}]}}']
    if "\0" not in key:
        forms.append(f"{{{encode(key)}:{sql.json(value)}}}")
    contained = " OR ".join(["c.metadata @> ?::jsonb"] * len(forms))
    condition = f"c.metadata <> '{{}}' AND ({contained})"
    return (yield from with_metadata(sql, sql.joined, condition, forms, key, value, limit, prefix))
