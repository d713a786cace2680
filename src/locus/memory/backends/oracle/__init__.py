"""Oracle Database: threads in the JSON columns of a server that many processes share. 21c and later, 26ai included."""

from locus.memory.backends.oracle.backend import (
    OracleBackend,
    OracleCheckpointSaver,
    OracleSyncBackend,
    OracleSyncCheckpointSaver,
    from_location,
)

__all__ = [
    "OracleBackend",
    "OracleCheckpointSaver",
    "OracleSyncBackend",
    "OracleSyncCheckpointSaver",
    "from_location",
]
