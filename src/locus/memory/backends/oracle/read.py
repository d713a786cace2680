"""Queries by metadata in Oracle Database, by digests of pairs."""

from __future__ import annotations

from locus.memory.backends.oracle.schema import OracleFlavour
from locus.memory.backends.sql.flavour import Steps
from locus.memory.backends.sql.read import with_metadata
from locus.memory.backends.sql.search import metadata_key
from locus.memory.model.records import Entry


def find(sql: OracleFlavour, key: str, value: str, limit: int, prefix: str) -> Steps[list[Entry]]:
    """Find checkpoints by the digest of a pair; `value` is canonical JSON."""
    tables = (
        f"{sql.metadata_pairs} p"
        f" JOIN {sql.checkpoints} c ON c.thread = p.thread AND c.namespace = p.namespace AND c.seq = p.seq"
        f" JOIN {sql.threads} t ON t.id = c.thread"
    )
    return (yield from with_metadata(sql, tables, "p.pair = ?", [metadata_key(key, value)], key, value, limit, prefix))
