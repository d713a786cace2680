"""MySQL 8.0.17 and later: threads in tables that many processes share. MariaDB is not supported."""

from locus.memory.backends.mysql.backend import MySQLBackend, from_location
from locus.memory.backends.mysql.config import MySQLConfig

__all__ = ["MySQLBackend", "MySQLConfig", "from_location"]
