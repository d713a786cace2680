"""Quotas: how many saves, and how many bytes, each token may send in a day. Days begin at midnight UTC.

Counting is exact, and needs no query to the store. A save is a request that saves a checkpoint or pending writes. Its
bytes are those of its JSON body, after decompression. A copy counts as one save for each checkpoint. Requests that fail
do not count, and neither do loads, searches and deletions.

All workers of a server count in one SQLite file, which survives restarts if the operator has named it. It holds ids of
tokens, which do not reveal them:

    usage  token, day, saves, bytes
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from locus.errors import ConfigurationError
from locus.memory.model.arguments import possible_path
from locus.server.logs import LOGGER, error_facts
from locus.wire.problems import Problem

KEPT_DAYS = 35
"""How many days the file keeps the counts of a day."""

MEGABYTE = 1024 * 1024
_NO_LIMIT = 2**62
_WAIT_SECONDS = 0.2
_WORD = re.compile(r"(saves|megabytes)=(\d{1,12}|unlimited)", re.ASCII)
_TABLE = """
CREATE TABLE IF NOT EXISTS usage (
    token TEXT, day TEXT, saves INTEGER NOT NULL, bytes INTEGER NOT NULL, PRIMARY KEY (token, day)
) WITHOUT ROWID
"""
_CHARGE = """
INSERT INTO usage VALUES (:token, :day, :saves, :bytes) ON CONFLICT (token, day)
DO UPDATE SET saves = saves + :saves, bytes = bytes + :bytes
WHERE saves + :saves <= :most_saves AND bytes + :bytes <= :most_bytes
"""
_REFUND = "UPDATE usage SET saves = saves - :saves, bytes = bytes - :bytes WHERE token = :token AND day = :day"


@dataclass(frozen=True)
class Quota:
    """The quota of a token for a day. `None` means no limit."""

    saves: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for value in (self.saves, self.bytes):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ConfigurationError("a quota is a whole number of saves or bytes in a day, or None")

    def __bool__(self) -> bool:
        return self.saves is not None or self.bytes is not None


@dataclass(frozen=True)
class OwnQuota:
    """The quota in the line of a token. Each limit is a number, None for no limit, or "" if the line has none."""

    saves: int | str | None = ""
    bytes: int | str | None = ""

    @classmethod
    def parse(cls, words: list[str]) -> Self:
        """Remove the words about a quota from the end of a line, and read them: `saves=1000`, `megabytes=unlimited`."""
        limits: dict[str, int | None] = {}
        while words and (word := _WORD.fullmatch(words[-1])):
            words.pop()
            unit, name = (1, "saves") if word[1] == "saves" else (MEGABYTE, "bytes")
            if name in limits:
                raise ConfigurationError(f"a line of tokens says {word[1]}= once")
            limits[name] = None if word[2] == "unlimited" else int(word[2]) * unit
        return cls(**limits)

    def over(self, default: Quota) -> Quota:
        """The quota that applies to the token: its own limits, and those of `default` where it has none."""
        saves = default.saves if isinstance(self.saves, str) else self.saves
        size = default.bytes if isinstance(self.bytes, str) else self.bytes
        return Quota(saves, size)


@dataclass
class Charge:
    """A save that was counted against a token's quota, and that can be taken back."""

    token: str
    day: str
    saves: int
    bytes: int
    ledger: QuotaLedger | None

    def refund(self) -> None:
        """Remove the save from the count, because it failed."""
        ledger, self.ledger = self.ledger, None
        if ledger is not None:
            ledger.refund(self)


class QuotaLedger:
    """Counts the saves of each token, in the file `place`, or else in memory until this process ends."""

    def __init__(self, place: str | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._path = None if place is None else Path(place).absolute()
        self._clock = clock
        self._owner = os.getpid()
        self._cleaned = ""
        self._database: sqlite3.Connection | None = None
        if place is not None:
            self._check(place)

    def _check(self, place: str) -> None:
        """Open the file at the start, so that an unusable one is noticed then."""
        try:
            with possible_path(place):
                self._connection()
        except sqlite3.Error as error:
            raise ConfigurationError(f"{place[:80]!r} cannot be used to count quotas: it is no file of them") from error

    def charge(self, token: str, quota: Quota, saves: int, size: int) -> Charge:
        """Count a save before it is done. If it exceeds the quota, raise a problem and count nothing."""
        now = self._clock()
        charge = Charge(token, f"{now:%Y-%m-%d}", saves, size, self)
        limits = {
            "most_saves": _NO_LIMIT if quota.saves is None else quota.saves,
            "most_bytes": _NO_LIMIT if quota.bytes is None else quota.bytes,
        }
        fits = saves <= limits["most_saves"] and size <= limits["most_bytes"]
        try:
            if fits and self._execute(_CHARGE, {**_row(charge), **limits}):
                return charge
        except (sqlite3.Error, OSError) as error:
            # A failure of the count must not make agents lose saves, so it is only logged.
            LOGGER.error("quotas cannot be counted", extra={"facts": error_facts(error)})
            charge.ledger = None
            return charge
        raise _exceeded(quota, now)

    def refund(self, charge: Charge) -> None:
        try:
            self._execute(_REFUND, _row(charge))
        except (sqlite3.Error, OSError) as error:
            LOGGER.error("quotas cannot be counted", extra={"facts": error_facts(error)})

    def used(self, token: str) -> Quota:
        """The saves and bytes of a token today."""
        query = "SELECT saves, bytes FROM usage WHERE token = ? AND day = ?"
        row = self._connection().execute(query, (token, f"{self._clock():%Y-%m-%d}")).fetchone()
        return Quota(*(row or (0, 0)))

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def __del__(self) -> None:
        self.close()

    def _execute(self, statement: str, row: dict[str, str | int]) -> bool:
        database = self._connection()
        if self._cleaned != row["day"]:
            self._cleaned = str(row["day"])
            oldest = self._clock() - timedelta(days=KEPT_DAYS)
            database.execute("DELETE FROM usage WHERE day < ?", (f"{oldest:%Y-%m-%d}",))
        return database.execute(statement, row).rowcount > 0

    def _connection(self) -> sqlite3.Connection:
        if self._owner != os.getpid():  # a connection of the parent process cannot be used after a fork
            self._owner, self._database = os.getpid(), None
        if self._database is None:
            self._database = self._opened()
        return self._database

    def _opened(self) -> sqlite3.Connection:
        if self._path is not None:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(
            self._path or ":memory:", timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            # Saves do not wait for the disk. A killed process loses nothing; a power cut may lose the last counts.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_TABLE)
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def charged(ledger: QuotaLedger | None, token: str, quota: Quota, saves: int, size: int) -> Iterator[Charge]:
    """A context that counts the save inside it, unless that fails. A cancelled save may have happened, so it counts."""
    if ledger is None or not quota:
        yield Charge(token, "", saves, size, None)
        return
    charge = ledger.charge(token, quota, saves, size)
    try:
        yield charge
    except Exception:
        charge.refund()
        raise


def _row(charge: Charge) -> dict[str, str | int]:
    return {"token": charge.token, "day": charge.day, "saves": charge.saves, "bytes": charge.bytes}


def _exceeded(quota: Quota, now: datetime) -> Problem:
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    allowed = [
        f"{quota.saves:,} saves" if quota.saves is not None else "",
        f"{quota.bytes:,} bytes" if quota.bytes is not None else "",
    ]
    return Problem(
        429,
        "quota_exceeded",
        f"this token may send {' and '.join(filter(None, allowed))} in a day, and this would be more; nothing was "
        "saved. The next day begins at midnight UTC. Loading and deleting are not counted",
        headers={"Retry-After": str(int((midnight - now).total_seconds()) + 1)},
        more={"quota": {"saves": quota.saves, "bytes": quota.bytes}},
    )
