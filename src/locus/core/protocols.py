"""The interfaces between parts of Locus: the capabilities of a checkpointer, and the methods of a plain store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class CheckpointerCapabilities:
    """The features of a checkpointer beyond saving, loading and listing."""

    search: bool = False
    metadata_query: bool = False
    vacuum: bool = False
    branching: bool = False
    ttl: bool = False
    list_threads: bool = False
    list_with_metadata: bool = False
    persistent_checkpoint_ids: bool = False
    windows: bool = False
    """Whether `load(last=n)` loads only the newest items, rather than all."""


class PlainStore(Protocol):
    """An object that can keep states: a checkpointer, a storage backend, or any with these methods, async or not."""

    @property
    def save(self) -> Callable[..., Any]: ...
    @property
    def load(self) -> Callable[..., Any]: ...
    @property
    def delete(self) -> Callable[..., Any]: ...
    @property
    def exists(self) -> Callable[..., Any]: ...
