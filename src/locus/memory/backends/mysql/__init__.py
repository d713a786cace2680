"""MySQL: threads in the tables of a server that many processes share. 8.0.17 and later; MariaDB is not MySQL."""

from locus.memory.backends.mysql.backend import MySQLBackend, from_location
from locus.memory.backends.mysql.config import MySQLConfig

__all__ = ["MySQLBackend", "MySQLConfig", "from_location"]
