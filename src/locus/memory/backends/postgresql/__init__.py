"""PostgreSQL: threads in the tables of a server that many processes share."""

from locus.memory.backends.postgresql.backend import PostgreSQLBackend, from_location
from locus.memory.backends.postgresql.config import PostgreSQLConfig

__all__ = ["PostgreSQLBackend", "PostgreSQLConfig", "from_location"]
