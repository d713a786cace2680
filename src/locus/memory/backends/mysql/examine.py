"""Looks for faults of a MySQL server, and for missing indexes, for `locus doctor`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from locus.memory.backends.mysql.client import MySQLConnection, MySQLError
from locus.memory.backends.mysql.schema import MIGRATIONS, MySQLFlavour
from locus.memory.backends.sql.flavour import Row
from locus.memory.backends.sql.schema import statements_in
from locus.memory.model.findings import clock, missing_indexes, not_told
from locus.memory.model.records import Finding

_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS `(\w+)`")
_KEY = re.compile(r"^ +((?:UNIQUE |FULLTEXT )?KEY (\w+) \(.*\)),?$", re.MULTILINE)
_INDEXES = "SELECT DISTINCT TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()"
_SETTINGS = ("innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog", "read_only", "super_read_only")
_NOT_TOLD = {1044, 1142, 1143, 1193, 1227, 1064}
"""Errors that say the user lacks a privilege, or the server has no such variable or statement."""


async def findings(connection: MySQLConnection, sql: MySQLFlavour) -> list[Finding]:
    before = datetime.now(UTC)
    ((now,),) = await connection.execute("SELECT UTC_TIMESTAMP(6)")
    indexes = {f"{table}.{index}" for table, index in await connection.execute(_INDEXES)}
    results = [*clock(sql.read_time(now), before), *missing_indexes(wanted_indexes(sql), indexes)]
    values = await _asked(connection, f"SELECT {', '.join(f'@@global.{name}' for name in _SETTINGS)}")
    if values is None:
        results.append(not_told("how it writes to its disk"))
    else:
        results += settings(dict(zip(_SETTINGS, values[0], strict=True)))
    source = await _asked(connection, "SHOW REPLICA STATUS")
    replicas = await _asked(connection, "SHOW REPLICAS")
    waits = await _asked(connection, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_status'")
    limits = await _asked(connection, "SHOW GLOBAL VARIABLES LIKE 'rpl_semi_sync_%_timeout'")
    if source is None or replicas is None:
        results.append(not_told("whether it is replicated"))
    statuses = {str(name): status for name, status in waits or ()}
    seconds = [int(milliseconds) / 1_000 for _, milliseconds in limits or ()]
    return [*results, *replication(bool(source), len(replicas or ()), statuses, min(seconds, default=None))]


async def _asked(connection: MySQLConnection, query: str) -> Sequence[Row] | None:
    try:
        return await connection.execute(query)
    except MySQLError as error:
        if error.code not in _NOT_TOLD:
            raise
        return None


def wanted_indexes(sql: MySQLFlavour) -> dict[str, str]:
    """The statement that adds each index that the migrations make, by `table.index`."""
    indexes: dict[str, str] = {}
    for script in MIGRATIONS:
        for statement in statements_in(script, prefix=sql.prefix):
            for table in _TABLE.findall(statement):
                for key, name in _KEY.findall(statement):
                    indexes[f"{table}.{name}"] = f"ALTER TABLE `{table}` ADD {key}"
    return indexes


def settings(values: Mapping[str, Any]) -> list[Finding]:
    """Make findings of the settings of the server: values that it refuses, and saves that a crash may lose."""
    results: list[Finding] = []
    if values["read_only"] or values["super_read_only"]:
        results.append(
            Finding(
                "error",
                "this server is read-only: nothing can be saved, unless the user may do everything",
                "connect to the source, or set read_only and super_read_only to OFF",
            )
        )
    if str(values["innodb_flush_log_at_trx_commit"]) != "1":
        results.append(
            Finding(
                "warning",
                "a crash may lose the saves of about the last second, because innodb_flush_log_at_trx_commit is not 1",
                "set innodb_flush_log_at_trx_commit = 1",
            )
        )
    if values["log_bin"] and str(values["sync_binlog"]) != "1":
        results.append(
            Finding(
                "warning",
                "after a crash the binary log may lack the last saves, and replicas and restores with it, because "
                "sync_binlog is not 1",
                "set sync_binlog = 1",
            )
        )
    return results


LONG_WAIT = 3_600
"""The seconds from which on a source is taken to wait for its replicas on purpose."""


def replication(
    is_replica: bool, replicas: int, waits: Mapping[str, str], seconds: float | None = None
) -> list[Finding]:
    """Make findings of the replication of the server.

    `waits` has the status of semisynchronous replication, under its names in several versions; `seconds` is how long
    the source waits for a replica.
    """
    results: list[Finding] = []
    if is_replica:
        results.append(
            Finding(
                "error",
                "this server is a replica: what is saved here is not on the source, and may stop the replication",
                "connect to the source",
            )
        )
    if replicas and "ON" not in waits.values():
        results.append(
            Finding(
                "warning",
                "all replicas are asynchronous: a failover may lose the saves of the last moments",
                "switch semisynchronous replication on, if that must not be; each save then waits for a replica",
            )
        )
    elif replicas and seconds is not None and seconds < LONG_WAIT:
        results.append(
            Finding(
                "warning",
                f"a save that no replica confirms within {seconds:g} s is acknowledged all the same, and those after "
                "it don't wait at all: a failover may lose them",
                "raise rpl_semi_sync_source_timeout, if that must not be; saves then wait until a replica is back",
            )
        )
    return results
