"""Oracle Database 21c and later, 26ai included: threads in JSON columns that many processes share."""

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
