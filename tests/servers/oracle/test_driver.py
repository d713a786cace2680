from __future__ import annotations

import oracledb

from tests.servers.oracle.fixtures import OracleDatabase


async def test_a_value_goes_in_and_out(oracle_database: OracleDatabase) -> None:
    async with oracledb.connect_async(**oracle_database.parameters) as connection:
        await connection.execute(
            f"CREATE TABLE {oracle_database.prefix}t (id NUMBER(9) PRIMARY KEY, name VARCHAR2(20))"
        )
        await connection.execute(f"INSERT INTO {oracle_database.prefix}t VALUES (:1, :2)", [1, "one"])
        await connection.commit()
        assert await connection.fetchall(f"SELECT id, name FROM {oracle_database.prefix}t") == [(1, "one")]
