"""PostgreSQL: threads in the tables of a server that many processes share."""

from locus.memory.backends.postgresql.backend import PostgreSQLBackend, PostgreSQLConfig, from_location

__all__ = ["PostgreSQLBackend", "PostgreSQLConfig", "from_location"]
