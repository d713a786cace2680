"""The contract: agent state by thread.

The laws, the same for every backend of ours:

- A save is atomic. After a crash at any instant the whole checkpoint is there, or nothing of it.
- What was saved comes back equal. What JSON cannot hold raises `SerializationError` with its path.
- Every checkpoint stays loadable until it is deleted, and deleting one never breaks another.
- Order is the order of commits, whatever the clocks say; "latest" is the newest commit that is left.
- `None`, `False` and an empty list mean "not there". What could not be found out is raised.
- Ids and metadata keys are data, never syntax. Nothing that is loaded is ever executed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from locus.core.state import AgentState
from locus.errors import CapabilityError

if TYPE_CHECKING:
    from locus.memory.diffs import StateDiff

DEFAULT_NAMESPACE: Final = "default"


class Unset(Enum):
    """Stands for "not given" where `None` already means something."""

    ANY = "any"


ANY: Final = Unset.ANY
"""As `if_latest`: whatever is the latest, save."""


@dataclass(frozen=True)
class CheckpointerCapabilities:
    """What a checkpointer can do beyond saving, loading and listing."""

    search: bool = False
    metadata_query: bool = False
    vacuum: bool = False
    branching: bool = False
    ttl: bool = False
    list_threads: bool = False
    list_with_metadata: bool = False
    persistent_checkpoint_ids: bool = False


@dataclass(frozen=True)
class HistoryEntry:
    """One checkpoint of a thread's history, without its payload."""

    thread_id: str
    checkpoint_id: str
    parent_id: str | None
    seq: int
    created_at: datetime
    metadata: dict[str, Any]
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True)
class PendingWrite:
    """Something a task wrote before the step that it belongs to was complete."""

    task_id: str
    idx: int
    channel: str
    value: Any
    task_path: str = ""


class BaseCheckpointer(ABC):
    """Keeps `AgentState` by thread. Look at `capabilities` before calling the methods below `close`."""

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        """What this checkpointer can do. Subclasses say more than the default, which is nothing."""
        return CheckpointerCapabilities()

    @abstractmethod
    async def save(
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Keep a state as the newest checkpoint of a thread, and return the checkpoint's id.

        Without a `checkpoint_id` a new one is made. Saving an equal state under an id that exists changes
        nothing, so a save can be repeated safely; a different one replaces it and becomes the newest.
        """

    @abstractmethod
    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        """The state of that checkpoint, or of the latest; `None` if there is none."""

    @abstractmethod
    async def list_checkpoints(self, thread_id: str, limit: int = 10) -> list[str]:
        """The ids of a thread's checkpoints, newest first."""

    async def delete(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Delete one checkpoint, or the whole thread. True if there was something to delete."""
        self._cannot("delete")

    async def exists(self, thread_id: str, checkpoint_id: str | None = None) -> bool:
        """Whether that checkpoint, or any checkpoint of the thread, is there."""
        return await self.load(thread_id, checkpoint_id) is not None

    async def close(self) -> None:
        """Release what this checkpointer opened itself. It may be used again, and opens anew."""

    async def search(self, query: str, limit: int = 10) -> list[dict[str, Any]]:
        """Checkpoints that contain all words of `query`, best first, each with a `score` and a `snippet`."""
        self._cannot("search")

    async def query_by_metadata(self, key: str, value: Any, limit: int = 100) -> list[dict[str, Any]]:
        """Checkpoints whose metadata has exactly this value under this key, newest first."""
        self._cannot("metadata_query")

    async def get_metadata(self, thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any] | None:
        """The metadata of that checkpoint, or of the latest; `None` if there is none."""
        self._cannot("metadata_query")

    async def vacuum(self, older_than_days: int = 30) -> int:
        """Delete checkpoints older than this, and return how many."""
        self._cannot("vacuum")

    async def copy_thread(self, source_thread_id: str, dest_thread_id: str) -> bool:
        """Copy a thread with its history under a new id. False if there is no such thread."""
        self._cannot("branching")

    async def list_threads(self, limit: int = 100, pattern: str = "*") -> list[str]:
        """The ids of threads that match a pattern (`*` any text, `?` one character), in order."""
        self._cannot("list_threads")

    async def list_with_metadata(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest checkpoints of all threads, with `thread_id`, `checkpoint_id`, `metadata` and more."""
        self._cannot("list_with_metadata")

    async def history(self, thread_id: str, limit: int | None = 10, before: str | None = None) -> list[HistoryEntry]:
        """A thread's checkpoints without their payloads, newest first.

        `before` is a checkpoint id: only what is older than it. `limit=None` gives all.
        """
        self._cannot("history")

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Keep what a task wrote since a checkpoint. Repeating it replaces the task's earlier set."""
        self._cannot("pending writes")

    async def get_writes(self, thread_id: str, checkpoint_id: str, task_id: str | None = None) -> list[PendingWrite]:
        """What tasks wrote since a checkpoint, ordered by task path, task and index."""
        self._cannot("pending writes")

    async def diff(self, thread_id: str, a: str, b: str) -> StateDiff:
        """What changed between two checkpoints of a thread."""
        self._cannot("diff")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _cannot(self, what: str) -> NoReturn:
        raise CapabilityError(
            f"{type(self).__name__} does not support {what}; ask `.capabilities` first, or use another backend"
        )


Metadata = Mapping[str, Any]
