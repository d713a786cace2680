"""The record of each client's operations and their answers, as JSON lines in a file that outlives the client.

An operation is recorded before it begins, and again with its answer:

    {"begin": 17, "at": 81234, "kind": "save", "thread": "…", "op": "c2.17", "digest": "…", "if_latest": "…"}
    {"end": 17, "at": 81999, "told": "acknowledged", "answer": "<checkpoint id>"}

Times are nanoseconds of the machine's monotonic clock, which all processes share and no jump moves. An operation
without an end was under way when its client was killed. One that was killed, was cancelled, or ended with an outage may
have happened, and may still happen: for the checks it never ends.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

Told = Literal["acknowledged", "refused", "unknown"]

LOGS: Final = "client-*.jsonl"
CHANGES: Final = frozenset({"save", "delete", "copy", "vacuum", "writes"})
"""The kinds of operations that change something."""


def log_of(folder: Path, client: str) -> Path:
    """The file that a client writes its history to."""
    return folder / f"client-{client}.jsonl"


def has_begun(path: Path) -> bool:
    """Whether a client has recorded the beginning of an operation, so that it has opened the store."""
    try:
        with path.open("rb") as file:
            return any(line.startswith(b'{"begin"') for line in file)
    except FileNotFoundError:
        return False


class ClientLog:
    """Writes the record of one client. A line is in the file when the call returns, even if the process is killed."""

    def __init__(self, path: Path, client: str) -> None:
        self.client = client
        self._numbers = itertools.count(1)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, kind: str, thread: str, **facts: Any) -> int:
        number = next(self._numbers)
        self._write({"begin": number, "at": time.monotonic_ns(), "kind": kind, "thread": thread, **facts})
        return number

    def end(self, number: int, told: Told, answer: Any = None, error: str = "", **facts: Any) -> None:
        """Record the answer to an operation, and `facts` that were learnt since it began."""
        line = {"end": number, "at": time.monotonic_ns(), "told": told, "answer": answer, "error": error}
        self._write(line | facts)

    def note(self, **facts: Any) -> None:
        """Record an event that is no operation: a `fault` inside the client, or an unexpected `error`."""
        self._write({"note": True, "at": time.monotonic_ns(), **facts})

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a client, and its answer."""

    client: str
    number: int
    kind: str
    thread: str
    begun: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    told: Told = "unknown"
    ended: float = math.inf
    """The time of the answer; infinity if the answer leaves open whether the operation has happened or will."""
    answer: Any = None
    error: str = ""

    @property
    def checkpoint(self) -> str | None:
        """The id of the checkpoint that the operation is about, if it is known."""
        if self.kind == "save" and self.told == "acknowledged":
            return str(self.answer)
        named = self.facts.get("id")
        return None if named is None else str(named)

    @property
    def may_have_happened(self) -> bool:
        return self.told != "refused"

    def precedes(self, other: Operation) -> bool:
        """Whether this operation had certainly ended when another one began."""
        return self.ended < other.begun

    def __str__(self) -> str:
        return f"{self.kind} {self.client}.{self.number} ({self.told}{self.error and ', '}{self.error})"


@dataclass
class History:
    """The records of all clients of a round."""

    operations: list[Operation] = field(default_factory=list)
    notes: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the records in a folder."""
        history = cls()
        for path in sorted(folder.glob(LOGS)):
            history._add(path.stem.removeprefix("client-"), _lines(path))
        history.operations.sort(key=lambda operation: operation.begun)
        return history

    def _add(self, client: str, lines: Iterable[Mapping[str, Any]]) -> None:
        under_way: dict[int, Mapping[str, Any]] = {}
        for line in lines:
            if "note" in line:
                self.notes.append(line)
            elif "begin" in line:
                under_way[line["begin"]] = line
            else:
                self.operations.append(_operation(client, under_way.pop(line["end"]), line))
        self.operations += [
            _operation(client, line, {"told": "unknown", "error": "killed"}) for line in under_way.values()
        ]

    def of_kind(self, *kinds: str) -> list[Operation]:
        return [operation for operation in self.operations if operation.kind in kinds]

    def told(self) -> dict[Told, int]:
        """How many changes were acknowledged, refused, or left unknown."""
        counts: dict[Told, int] = {"acknowledged": 0, "refused": 0, "unknown": 0}
        for operation in self.operations:
            if operation.kind in CHANGES:
                counts[operation.told] += 1
        return counts

    def faults(self) -> dict[str, int]:
        """How often each fault has struck inside clients."""
        counts: dict[str, int] = {}
        for note in self.notes:
            if "fault" in note:
                counts[note["fault"]] = counts.get(note["fault"], 0) + note.get("count", 1)
        return counts


_OF_LINES: Final = frozenset({"begin", "end", "at", "kind", "thread", "told", "answer", "error"})


def _operation(client: str, begin: Mapping[str, Any], end: Mapping[str, Any]) -> Operation:
    return Operation(
        client=client,
        number=begin["begin"],
        kind=begin["kind"],
        thread=begin["thread"],
        begun=begin["at"],
        facts={name: value for name, value in {**begin, **end}.items() if name not in _OF_LINES},
        told=end["told"],
        ended=math.inf if end["told"] == "unknown" else end["at"],
        answer=end.get("answer"),
        error=end.get("error", ""),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    *whole, _cut_off = path.read_bytes().split(b"\n")
    for line in whole:
        yield json.loads(line)
