"""What the errors of Oracle Database, and of its driver, mean.

Numbers with ORA- are the server's, those with DPY- the driver's; it often puts one of its own before the server's.
"""

from __future__ import annotations

import re
from typing import Any

from locus.errors import (
    BackendUnavailableError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from locus.extras import require
from locus.memory.backends.sql.engine import Trouble

oracledb: Any = require("oracledb", "oracle")

DRIVER_ERRORS: tuple[type[BaseException], ...] = (oracledb.Error, OSError)

_CODE = re.compile(r"^((?:ORA-[0-9]{5}|DPY-[0-9]{4})):", re.MULTILINE)

DUPLICATE, NO_PARENT = "ORA-00001", "ORA-02291"
NO_TABLE, NO_COLUMN, NAME_IN_USE, MAY_NOT = "ORA-00942", "ORA-00904", "ORA-00955", "ORA-01031"

_ROLLED_BACK = {DUPLICATE, NO_PARENT, "ORA-00060", "ORA-08177"}
"""Another transaction was faster (a key is taken, a row that is referred to is gone), or two waited for each other."""
_LOST = {
    "DPY-1001", "DPY-4011", "DPY-4033", "DPY-6000", "DPY-6001", "DPY-6003", "DPY-6005",
    "ORA-00018", "ORA-00020", "ORA-00028", "ORA-01012", "ORA-01033", "ORA-01034", "ORA-01089", "ORA-01090",
    "ORA-01092", "ORA-02391", "ORA-02396", "ORA-03113", "ORA-03114", "ORA-03135", "ORA-12153", "ORA-12170",
    "ORA-12203", "ORA-12514", "ORA-12516", "ORA-12518", "ORA-12519", "ORA-12520", "ORA-12528", "ORA-12537",
    "ORA-12541", "ORA-12543", "ORA-12547", "ORA-12570", "ORA-12571", "ORA-12757", "ORA-25408",
}  # fmt: skip
_LOCKED = {"ORA-00054", "ORA-04021", "ORA-30006"}
_HINTS = {
    "ORA-01017": "it does not let this user in: check user and password",
    "ORA-01005": "it does not let this user in: no password was given",
    "DPY-4001": "it does not let this user in: no password was given",
    "ORA-01045": "this user may not log on: GRANT CREATE SESSION",
    "ORA-28000": "the user's account is locked: have it unlocked, and its password checked",
    "ORA-28001": "the user's password has expired: have it changed",
    "ORA-28759": "the wallet cannot be opened: check wallet_location",
    "ORA-01031": "the user may not do that: see the page on Oracle for what has to be granted",
    "ORA-01536": "the user's quota of disk space is used up: raise it",
    "ORA-01950": "the user has no quota of disk space: ALTER USER … QUOTA UNLIMITED ON its tablespace",
    "ORA-01652": "a tablespace is full",
    "ORA-01653": "a tablespace is full: add or extend a data file",
    "ORA-01654": "a tablespace is full: add or extend a data file",
    "ORA-01658": "a tablespace is full: add or extend a data file",
    "ORA-01691": "a tablespace is full: add or extend a data file",
    "ORA-01692": "a tablespace is full: add or extend a data file",
    "ORA-30036": "its undo tablespace is full",
    "ORA-00257": "its archiver is stuck: its recovery area is full",
    "ORA-16000": "it is open for reading only: connect to the primary",
    "ORA-00020": "it has no process left: lower max_pool_size, or raise processes",
    "ORA-00018": "it has no session left: lower max_pool_size, or raise sessions",
    "ORA-02391": "the user has no session left: lower max_pool_size, or raise sessions_per_user",
    "ORA-00054": "another transaction holds a lock for too long",
    "ORA-04021": "another transaction holds a lock for too long",
    "ORA-30006": "another transaction holds a lock for too long",
    "ORA-00060": "transactions got into each other's way again and again",
    "ORA-08177": "transactions got into each other's way again and again",
    "DPY-4024": "a statement took longer than command_timeout",
    "DPY-6001": "it does not know this service: check service_name, or wait until the database is open",
    "DPY-6003": "it does not know this SID: give a service_name",
    "ORA-40467": "the JSON search index is not there: run what OracleBackend.ddl() says about it",
    "ORA-29861": "the JSON search index is unusable: have it dropped, and run what OracleBackend.ddl() says about it",
}
_TOO_MUCH = {
    "ORA-12899": "a text is too long for its column",
    "ORA-01461": "a text is too long for its column",
    "ORA-40478": "it is larger than the 32 MB that a JSON column holds",
    "ORA-40591": "it is larger than the 32 MB that a JSON column holds",
    "DPY-3020": "a key is too long",
}
_CORRUPT = {NO_TABLE, NO_COLUMN, "ORA-01578", "ORA-08103", "ORA-01410", "DPY-3019", "DPY-3021", "DPY-5004"}
_MISCONFIGURED = {
    "DPY-4000": "the TNS alias is in no tnsnames.ora: check dsn and config_dir",
    "DPY-4026": "tnsnames.ora cannot be read: config_dir (or wallet_location) is the folder that it is in",
    "DPY-4027": "dsn is a TNS alias, and config_dir (or wallet_location) has to say where its tnsnames.ora is",
    "DPY-4017": "dsn cannot be understood",
    "DPY-4018": "dsn cannot be understood",
    "DPY-4021": "the protocol is tcp or tcps",
    "DPY-2018": "a file of the wallet is missing: wallet_location is the folder with ewallet.pem",
    "DPY-2049": "dsn names no address",
    "DPY-2053": "this program has called init_oracle_client(), and in thick mode the driver cannot be async",
    "DPY-3010": "it is too old: 21c or later is needed",
    "DPY-3040": "its character set is none that the driver knows",
    "DPY-6002": "its certificate is for another server",
}


def codes_of(error: BaseException) -> list[str]:
    """The numbers of an error, each before the one that explains it; none for an error of the system's."""
    if not isinstance(error, oracledb.Error) or not error.args:
        return []
    code = getattr(error.args[0], "code", 0)
    return [*_CODE.findall(str(error)), *([f"ORA-{code:05}"] if code else [])]


def has_code(error: BaseException, *codes: str) -> bool:
    return not set(codes).isdisjoint(codes_of(error))


def told(error: BaseException) -> str:
    """The first line of each part of an error's text, without the addresses of help pages."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("Help: ")]
    return "; ".join(lines[:3])


def trouble_of(error: BaseException) -> Trouble:
    if isinstance(error, TimeoutError):
        return Trouble.FINAL
    codes = codes_of(error)
    if not _ROLLED_BACK.isdisjoint(codes):
        return Trouble.ROLLED_BACK
    # Whoever holds a lock may let go of it, but not for the sake of twenty attempts of as many seconds each.
    return Trouble.LOST if not codes or not (_LOST | _LOCKED).isdisjoint(codes) else Trouble.FINAL


def _found(table: dict[str, str], codes: list[str]) -> str:
    return next((table[code] for code in reversed(codes) if code in table), "")


def misconfigured(error: BaseException, where: str) -> ConfigurationError | None:
    """Our error for options that cannot work, whatever the server does."""
    hint = _found(_MISCONFIGURED, codes_of(error))
    return ConfigurationError(f"Oracle Database at {where} cannot be used: {hint} ({told(error)})") if hint else None


def translated(error: BaseException, where: str, secrets: list[str]) -> CheckpointError:
    """Our error. The server's text is told, a password never."""
    text = told(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    codes = codes_of(error)
    too_much, hint = _found(_TOO_MUCH, codes), _found(_HINTS, codes)
    if too_much:
        return SerializationError(f"Oracle Database cannot hold a value: {too_much} ({text})")
    if not _CORRUPT.isdisjoint(codes):
        return CorruptCheckpointError(f"the tables at {where} are damaged, or not what they were: {text}")
    if hint:
        return BackendUnavailableError(f"Oracle Database at {where} cannot be used, because {hint} ({text})")
    if trouble_of(error) is Trouble.LOST:
        return BackendUnavailableError(
            f"Oracle Database at {where} cannot be reached, or ended the connection: {text or type(error).__name__}"
        )
    return BackendUnavailableError(f"Oracle Database at {where} failed: {text or type(error).__name__}")
