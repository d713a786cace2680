"""Looks for faults of a PostgreSQL server, and for missing indexes, for `locus doctor`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import psycopg

from locus.memory.backends.postgresql.client import PostgreSQLConnection
from locus.memory.backends.postgresql.schema import PARTITIONED, PostgreSQLFlavour
from locus.memory.backends.sql.flavour import Row
from locus.memory.model.findings import clock, missing_indexes, not_told
from locus.memory.model.records import Finding

_INDEX = re.compile(r'CREATE (?:UNIQUE )?INDEX "(\w+)"')
_INDEXES = """\
SELECT i.relname, x.indisvalid FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
WHERE x.indrelid IN (to_regclass(?), to_regclass(?), to_regclass(?), to_regclass(?), to_regclass(?))"""
_PARTITIONS = """\
SELECT p.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_class p LEFT JOIN pg_inherits i ON i.inhparent = p.oid
LEFT JOIN pg_class c ON c.oid = i.inhrelid WHERE p.relkind = 'p' AND p.oid
IN (to_regclass(?), to_regclass(?), to_regclass(?), to_regclass(?), to_regclass(?))"""
_MODULUS = re.compile(r"modulus (\d+)")
_SETTINGS = """\
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names')"""
# What consumes changes one by one is no standby, and nobody fails over to it.
_STANDBYS = """\
SELECT r.sync_state FROM pg_stat_replication r
WHERE r.state IS DISTINCT FROM 'backup' AND NOT EXISTS
    (SELECT 1 FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')"""


async def findings(
    connection: PostgreSQLConnection, sql: PostgreSQLFlavour, backend: str = "PostgreSQLBackend"
) -> list[Finding]:
    """Examine a server. `backend` is the class whose `ddl` the advice names."""
    before = datetime.now(UTC)
    ((now, in_recovery),) = await connection.execute("SELECT clock_timestamp(), pg_is_in_recovery()")
    results = [*clock(now, before), *_indexes(sql, await connection.execute(_INDEXES, _tables(sql)))]
    results += partitioning(sql, await partitions_of(connection, sql), backend)
    rows = await _asked(connection, _SETTINGS)
    settings = {str(name): value for name, value in rows or ()}
    if rows is None:
        results.append(not_told("how it writes to its disk"))
    else:
        results += durability(settings)
    if in_recovery:
        return [*results, _STANDBY]
    standbys = await _asked(connection, _STANDBYS)
    states = None if standbys is None else [state for (state,) in standbys]
    return [*results, *replication(states, settings)]


async def _asked(connection: PostgreSQLConnection, query: str, values: Sequence[Any] = ()) -> Sequence[Row] | None:
    """Ask the server; None if it does not tell this user, or lacks what only PostgreSQL has."""
    try:
        return await connection.execute(query, values)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return None


def _tables(sql: PostgreSQLFlavour) -> tuple[str, ...]:
    return sql.threads, sql.checkpoints, sql.runs, sql.writes, sql.search


def _indexes(sql: PostgreSQLFlavour, rows: Sequence[Row]) -> list[Finding]:
    statements = [statement for script in sql.scripts for statement in sql.migration(script)]
    wanted = {name: statement for statement in statements for name in _INDEX.findall(statement)}
    invalid = [
        Finding(
            "error",
            f"the index {name} is not valid: it was not built to its end, and is not used",
            f'build it again with REINDEX INDEX CONCURRENTLY "{name}"',
        )
        for name, is_valid in rows
        if not is_valid
    ]
    return [*missing_indexes(wanted, {name for name, _ in rows}), *invalid]


Partitions = Mapping[str, Sequence[int]]
"""The modulus of each partition, by the name of the partitioned table."""


async def partitions_of(connection: PostgreSQLConnection, sql: PostgreSQLFlavour) -> Partitions:
    """Read the partitions of the tables. A server that is not PostgreSQL may not tell; then there are none."""
    moduli: defaultdict[str, list[int]] = defaultdict(list)
    for table, bound in await _asked(connection, _PARTITIONS, tuple(map(sql.table, PARTITIONED))) or ():
        moduli[table] += map(int, _MODULUS.findall(bound or ""))
    return moduli


def partitioning(sql: PostgreSQLFlavour, partitions: Partitions, backend: str) -> list[Finding]:
    """Make findings of the partitions of the tables."""
    lacking = [table for table, moduli in partitions.items() if sum(Fraction(1, modulus) for modulus in moduli) != 1]
    results = [
        Finding(
            "error",
            f"the table {table} lacks partitions, or has some that are not by hash: saves to some threads fail",
            "create them, FOR VALUES WITH (MODULUS …, REMAINDER …), until every remainder has one",
        )
        for table in sorted(lacking)
    ]
    if partitions:
        counts = sorted({len(moduli) for moduli in partitions.values()})
        results.append(
            Finding(
                "note",
                f"the tables are partitioned by thread: {' or '.join(map(str, counts))} partitions each",
                "nothing has to be done; each is vacuumed and analyzed by itself",
            )
        )
    return [*results, *asked_for(sql, partitions, backend)]


def asked_for(sql: PostgreSQLFlavour, partitions: Partitions, backend: str) -> list[Finding]:
    """Make a finding if partitions were asked for, and the tables have others. They are used as they are."""
    wanted, counts = sql.partitions, {len(moduli) for moduli in partitions.values()}
    if not wanted or counts == {wanted}:
        return []
    if not counts:
        call = f"{backend}.ddl(partitions={wanted}, from_unpartitioned=True)"
        advice = f"leave out the option, or have an administrator run what {call} returns"
        return [Finding("note", f"{wanted} partitions were asked for, and the tables are not partitioned", advice)]
    has = " or ".join(map(str, sorted(counts)))
    advice = "the number is chosen when the tables are made. To change it, `locus copy` to tables with another name"
    return [Finding("note", f"{wanted} partitions were asked for, and the tables have {has}", advice)]


_STANDBY = Finding(
    "error",
    "this server is a standby: it can be read, and nothing can be saved",
    "connect to the primary, with target_session_attrs=read-write among several hosts",
)

_LOSSES = {
    "fsync": "a crash of the machine may damage the whole database, because fsync is off",
    "full_page_writes": "a crash of the machine may leave torn pages behind, because full_page_writes is off",
    "synchronous_commit": "a crash of the server loses the saves of the last moments: synchronous_commit is off",
}


def durability(settings: Mapping[str, Any]) -> list[Finding]:
    """Make findings of losses that a crash may cause, by the settings of the server and of this user."""
    return [
        Finding("warning", loss, f"set {name} = on, unless everything in this database can be made anew")
        for name, loss in _LOSSES.items()
        if settings.get(name) == "off"
    ]


def replication(states: Sequence[str | None] | None, settings: Mapping[str, Any] | None = None) -> list[Finding]:
    """Make findings of losses that a failover may cause, by the settings of the server and of this user.

    `states` has the `sync_state` of each standby; None if it is not told.
    """
    settings = settings or {}
    waits = bool(settings.get("synchronous_standby_names"))
    if waits and settings.get("synchronous_commit") in ("local", "off"):
        return [
            Finding(
                "warning",
                f"saves do not wait for the synchronous standby, because synchronous_commit is "
                f"{settings['synchronous_commit']}: a failover may lose those of the last moments",
                "set synchronous_commit = on for this user",
            )
        ]
    if states is None or (states and all(state is None for state in states)):
        return [not_told("whether its standbys are synchronous")]
    if any(state in ("sync", "quorum") for state in states) or not (states or waits):
        return []
    if waits:
        return [
            Finding(
                "error",
                "no synchronous standby is connected: every save waits for one, and fails after command_timeout",
                "start the standby, or name in synchronous_standby_names one that is connected",
            )
        ]
    return [
        Finding(
            "warning",
            "all standbys are asynchronous: a failover may lose the saves of the last moments",
            "name one in synchronous_standby_names, if that must not be; each save then waits for it",
        )
    ]
