"""Histories that are told one operation after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from locus.testing.campaign.checker import check
from locus.testing.campaign.finding import Kind
from locus.testing.campaign.found import FoundCheckpoint, FoundThread
from locus.testing.campaign.history import History, Operation, Told


class Story:
    """A history that is told one operation after the other. Each takes one unit of time, unless it says otherwise."""

    def __init__(self) -> None:
        self.history = History()
        self.time = 0.0

    def add(
        self, kind: str, thread: str, told: Told, answer: Any, begun: float | None, error: str = "", **facts: Any
    ) -> Operation:
        self.time += 2
        operation = Operation(
            client="c",
            number=len(self.history.operations),
            kind=kind,
            thread=thread,
            begun=self.time if begun is None else begun,
            facts=facts,
            told=told,
            ended=math.inf if told == "unknown" else self.time + 1,
            answer=answer,
            error=error,
        )
        self.history.operations.append(operation)
        return operation

    def save(
        self,
        name: str,
        told: Told = "acknowledged",
        *,
        answer: str | None = None,
        begun: float | None = None,
        **facts: Any,
    ) -> None:
        error = "ConflictError" if told == "refused" else ""
        facts = {"op": name, "digest": name, "id": None, "clock": 0.0, **facts}
        self.add("save", "t", told, (answer or name) if told == "acknowledged" else None, begun, error, **facts)

    def load(self, found: str | None, *, begun: float | None = None, **facts: Any) -> None:
        self.add("load", "t", "acknowledged", found, begun, **{"id": None, **facts})

    def listed(self, *names: str, **facts: Any) -> None:
        self.add("list", "t", "acknowledged", names, None, **facts)

    def history_of(self, *entries: tuple[str, str], limit: int | None = None, before: str | None = None) -> None:
        self.add("history", "t", "acknowledged", entries, None, limit=limit, before=before)

    def exists(self, checkpoint_id: str | None, answer: bool) -> None:
        self.add("exists", "t", "acknowledged", answer, None, id=checkpoint_id)

    def get(self, found: Mapping[str, str]) -> None:
        self.add("get", "t", "acknowledged", found, None, id="a", task=None)

    def vacuum(self, *, before: float | None = None, keep_last: int | None = None) -> Operation:
        return self.add("vacuum", "", "acknowledged", 0, None, before=before, keep_last=keep_last)

    def delete(self, checkpoint_id: str | None, told: Told = "acknowledged", *, answer: bool = True) -> None:
        self.add("delete", "t", told, answer, None, id=checkpoint_id)

    def copy(self, told: Told = "acknowledged") -> None:
        self.add("copy", "copy", told, True, None, source="t", of=None)

    def writes(self, digest: str, told: Told = "acknowledged") -> None:
        self.add("writes", "t", told, None, None, id="a", task="1", namespace="default", digest=digest, channels=["x"])

    def kinds(self, *threads: FoundThread) -> list[Kind]:
        return [finding.kind for finding in check(self.history, {one.thread_id: one for one in threads})]


def there(*names: str, thread: str = "t", parents: Mapping[str, str] | None = None, **facts: Any) -> FoundThread:
    """A thread with checkpoints whose ids, names and digests are the same."""
    checkpoints = tuple(
        FoundCheckpoint(name, (parents or {}).get(name), seq, name, name) for seq, name in enumerate(names, 1)
    )
    return FoundThread(thread, checkpoints, names[-1] if names else None, tuple(reversed(names)), **facts)
