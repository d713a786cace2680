"""What a client can ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from tests.servers.oracle.lexer import Statement
from tests.servers.oracle.types import Bind, Value

LOGOFF, COMMIT, ROLLBACK, PING, PIPELINE_END = 9, 14, 15, 147, 200


class Option:
    """What a call of a statement is to do."""

    PARSE, EXECUTE, FETCH, COMMIT, BATCH_ERRORS = 0x01, 0x20, 0x40, 0x100, 0x80000


@dataclass(slots=True)
class Logon:
    user: str
    pairs: dict[str, str]


@dataclass(slots=True)
class Execute:
    cursor: int
    options: int
    text: str | None
    """None if the cursor has it from before."""
    rows_wanted: int = 0
    times: int = 1
    binds: list[Bind] | None = None
    defines: list[Bind] | None = None
    rows: list[list[Value]] = field(default_factory=list)
    counts_wanted: bool = False

    def has(self, option: int) -> bool:
        return bool(self.options & option)


@dataclass(slots=True)
class Fetch:
    cursor: int
    rows_wanted: int


@dataclass(slots=True)
class LobCall:
    operation: int
    locator: bytes
    source_offset: int
    type: int
    amount: int | None
    data: bytes | None


@dataclass(slots=True)
class Simple:
    code: int


@dataclass(slots=True)
class Call:
    body: Logon | Execute | Fetch | LobCall | Simple
    token: int = 0
    closed: list[int] = field(default_factory=list)
    freed: list[bytes] = field(default_factory=list)
    schema: str | None = None
    pipeline: int = 0
    """Begins one: 1 goes on after an error, 2 stops."""


class KnownCursor(Protocol):
    """What the re-execution of a cursor leaves out."""

    statement: Statement
    binds: list[Bind]
