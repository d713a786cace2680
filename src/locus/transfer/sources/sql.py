"""Reading tables of somebody else's in an SQL server, by the connections of our own backends; nothing is set up."""

from __future__ import annotations

from typing import Any, cast

from locus.errors import ConfigurationError
from locus.memory.backends.sql.backend import SQLBackend
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.model.codec import decode
from locus.memory.registry import get_checkpointer


def sql_engine(url: str) -> tuple[SQLServerEngine[Any], str | None, str | None]:
    """The engine for a server that a URL names, and the table and the schema, if it names them."""
    backend = getattr(get_checkpointer(url), "backend", None)
    if not isinstance(backend, SQLBackend):
        raise ConfigurationError("this is not the URL of an SQL server")
    config: Any = getattr(backend, "config", backend)  # a backend for Oracle Database is its own
    table = config.table_name if "table_name" in config.model_fields_set else None
    return cast(SQLServerEngine[Any], backend.threads.engine), table, getattr(config, "schema_name", None)


async def columns_of(engine: SQLServerEngine[Any], table: str, schema: str | None) -> set[str]:
    """The names of the columns of a table, none if it is not there."""
    if engine.identity.startswith("oracle"):
        return await _columns_in_oracle(engine, table, schema)
    here = "current_schema()" if engine.identity.startswith("postgresql") else "database()"
    rows = await engine.ask(
        (
            "SELECT column_name FROM information_schema.columns WHERE table_name = ?"
            f" AND table_schema = {'?' if schema else here}",
            (table, schema) if schema else (table,),
        )
    )
    return {str(column).lower() for (column,) in rows}


async def _columns_in_oracle(engine: SQLServerEngine[Any], table: str, schema: str | None) -> set[str]:
    """Names without quotes are in upper case there."""
    owner = "?" if schema else "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
    rows = await engine.ask(
        (
            f"SELECT column_name FROM all_tab_columns WHERE table_name = ? AND owner = {owner}",
            (table.upper(), schema.upper()) if schema else (table.upper(),),
        )
    )
    return {str(column).lower() for (column,) in rows}


def json_in(engine: SQLServerEngine[Any], value: Any) -> Any:
    """What a column holds, where JSON is text; in Oracle Database somebody may have made a column of JSON of it."""
    return decode(engine.sql.read_json(value) if isinstance(value, dict | list) else value)


def place_of(engine: SQLServerEngine[Any]) -> str:
    """Where a server is, for people: without the tables of ours, which are not meant."""
    return engine.identity.rpartition("/")[0]
