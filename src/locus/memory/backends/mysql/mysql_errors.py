"""What MySQL's errors mean. The driver's own are kept as causes."""

from __future__ import annotations

from locus.errors import BackendUnavailableError, CheckpointError, CorruptCheckpointError, SerializationError
from locus.memory.backends.sql.engine import Trouble

NOT_NULL, DUPLICATE = 1048, 1062
NO_TABLE, NO_COLUMN = 1146, 1054
DEADLOCK, LOCK_TIMEOUT = 1213, 1205


class MySQLError(Exception):
    """An error of the server or of the driver, with its number (0 if it has none)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"({code}) {message}" if code else message)
        self.code = code


DRIVER_ERRORS: tuple[type[BaseException], ...] = (MySQLError, OSError)

_LOST = {1040, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1203, 1317, 1927, 2002, 2003, 2006, 2013, 2055, 3169, 4031}
_HINTS = {
    1044: "the user may not use this database",
    1045: "it does not let this user in: check user and password",
    1049: "the database is not there: create it, or name another",
    1130: "it does not take connections from this host",
    1698: "it does not let this user in: check user and password",
    2059: "it asks for a way to log in that the driver does not know: use caching_sha2_password",
    1021: "its disk is full",
    1114: "a table, or its disk, is full",
    1040: "it has no connection left: lower max_pool_size, or raise max_connections",
    1203: "the user has no connection left: lower max_pool_size, or raise max_user_connections",
    1142: "the user may not do that: see the page on MySQL for what has to be granted",
    1143: "the user may not do that: see the page on MySQL for what has to be granted",
    1227: "the user may not do that: see the page on MySQL for what has to be granted",
    1290: "it is read-only: a replica, or a server that is being replaced; connect to the primary",
    1792: "it is read-only: a replica, or a server that is being replaced; connect to the primary",
    1836: "it is read-only: a replica, or a server that is being replaced; connect to the primary",
    LOCK_TIMEOUT: "another transaction holds a lock for too long",
    DEADLOCK: "transactions got into each other's way again and again",
}
_TOO_MUCH = {
    1153: "it is larger than the server's max_allowed_packet: raise that, or save less at once",
    1406: "it is too long for its column",
    3151: "a key of an object has more than 65,535 bytes",
    3157: "it is nested too deeply",
    3150: "it is too large for a JSON column",
}
_CORRUPT = {NO_COLUMN, NO_TABLE, 1034, 1035, 1194, 1712, 1932, 3140, 3141, 3144}


def code_of(error: BaseException) -> int:
    """The number of an error; 2013, "connection lost", for one of the system's."""
    return error.code if isinstance(error, MySQLError) else 2013


def trouble_of(error: BaseException) -> Trouble:
    if isinstance(error, TimeoutError):
        return Trouble.FINAL
    code = code_of(error)
    if code == DEADLOCK:
        return Trouble.ROLLED_BACK
    # Whoever holds the lock may let go of it, but not for the sake of twenty attempts of as many seconds each.
    return Trouble.LOST if code in _LOST or code == LOCK_TIMEOUT else Trouble.FINAL


def translated(error: BaseException, where: str) -> CheckpointError:
    code = code_of(error)
    if code in _TOO_MUCH:
        return SerializationError(f"MySQL cannot hold a value: {_TOO_MUCH[code]} ({error})")
    if code in _CORRUPT:
        return CorruptCheckpointError(f"the tables at {where} are damaged, or not what they were: {error}")
    if code in _HINTS:
        return BackendUnavailableError(f"MySQL at {where} cannot be used, because {_HINTS[code]} ({error})")
    if code in _LOST:
        return BackendUnavailableError(f"MySQL at {where} cannot be reached, or ended the connection: {error}")
    return BackendUnavailableError(f"MySQL at {where} failed: {error}")
