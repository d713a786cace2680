"""Threads as plain lists: what a store has to agree with, written as simply as the laws are."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from locus.testing.laws.base import exact


@dataclass
class ModelCheckpoint:
    """A checkpoint; its payload is kept as a text that tells any two apart."""

    checkpoint_id: str
    parent_id: str | None
    payload: str
    metadata: dict[str, Any]
    writes: dict[tuple[str, int], Any] = field(default_factory=dict)


@dataclass
class ModelThread:
    """One thread; the newest checkpoint comes last."""

    checkpoints: list[ModelCheckpoint] = field(default_factory=list)

    def find(self, checkpoint_id: str | None) -> ModelCheckpoint | None:
        return next((found for found in self.checkpoints if found.checkpoint_id == checkpoint_id), None)

    @property
    def latest(self) -> str | None:
        return self.checkpoints[-1].checkpoint_id if self.checkpoints else None

    @property
    def names(self) -> list[str]:
        return [found.checkpoint_id for found in self.checkpoints]

    def keeps(self, name: str | None, payload: Any, metadata: dict[str, Any] | None) -> bool:
        """Whether a save under this name would be a mere repeat."""
        same = self.find(name)
        return (
            same is not None
            and same.payload == exact(payload)
            and (metadata is None or exact(metadata) == exact(same.metadata))
        )

    def save(self, name: str, payload: Any, metadata: dict[str, Any] | None, known: str | None) -> None:
        """Save a payload that was derived from the checkpoint `known`, or from none that is known."""
        if self.keeps(name, payload, metadata):
            return
        same = self.find(name)
        parent = known if self.find(known) else self.latest
        if same is not None and parent == name:
            parent = same.parent_id
        self.delete({name})
        writes = same.writes if same else {}
        self.checkpoints.append(ModelCheckpoint(name, parent, exact(payload), dict(metadata or {}), writes))

    def delete(self, names: Collection[str]) -> int:
        gone = {found.checkpoint_id: found.parent_id for found in self.checkpoints if found.checkpoint_id in names}
        self.checkpoints = [found for found in self.checkpoints if found.checkpoint_id not in gone]
        for found in self.checkpoints:
            while found.parent_id in gone:
                found.parent_id = gone[found.parent_id]
        return len(gone)

    def line(self, name: str) -> list[str]:
        """A checkpoint and its ancestors."""
        names: list[str] = []
        found = self.find(name)
        while found is not None:
            names.append(found.checkpoint_id)
            found = self.find(found.parent_id)
        return names

    def vacuum(self, keep_last: int) -> int:
        parents = {found.parent_id for found in self.checkpoints}
        tips = [name for name in self.names if name not in parents]
        kept = {name for tip in tips for name in self.line(tip)[:keep_last]}
        return self.delete(set(self.names) - kept)

    def copy(self, name: str | None) -> ModelThread:
        chosen = self.names if name is None else self.line(name)
        return ModelThread(deepcopy([found for found in self.checkpoints if found.checkpoint_id in chosen]))

    def put_writes(self, name: str, task: str, values: list[Any]) -> None:
        found = self.find(name)
        assert found is not None
        found.writes = {key: value for key, value in found.writes.items() if key[0] != task}
        found.writes |= {(task, index): value for index, value in enumerate(values)}
