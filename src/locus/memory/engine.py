"""The engine port: what a database has to do for Locus. Each capability beyond the basics is a type of its own.

An engine only stores. Before it is called, ids are checked, payloads are encoded and the plan of a save is made;
after it raised, its driver's exceptions are translated. Engines are used from several event loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from locus.core.protocols import CheckpointerCapabilities as CheckpointerCapabilities
from locus.errors import CheckpointError, ConfigurationError
from locus.memory.model.codec import EXACT, Dialect
from locus.memory.model.ids import Pattern
from locus.memory.model.parts import Part
from locus.memory.model.records import Base, Commit, Entry, Exported, Hit, Outcome, Stored, Write


class NothingThereError(ConfigurationError):
    """A store that is only to be read has never been used."""


class Engine(ABC):
    """The primitives of a store of threads."""

    dialect: ClassVar[Dialect] = EXACT
    """Which JSON values the database would change, if it were given them as they are."""

    keeps_runs: ClassVar[bool] = True
    """Whether a commit may refer to what earlier ones stored; without it, every commit is whole."""

    checks_extents: ClassVar[bool] = False
    """Whether the store itself refuses a commit that names runs of others than its base."""

    driver_errors: ClassVar[tuple[type[BaseException], ...]] = ()
    """The exceptions that `translate` understands."""

    reading_only: bool = False
    """Set before the first use: then `setup` makes nothing, and a store that is not there is an error."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Names the store (not the handle): equal for two handles on the same data. Holds no secret."""

    def offers(self, capability: type) -> bool:
        """Whether the store has a capability that the engine has: with some it depends on the server."""
        return isinstance(self, capability)

    async def setup(self) -> None:
        """Create or migrate what is needed. Safe to repeat, and from many processes at once."""

    def nothing_there(self) -> NothingThereError:
        """What `setup` raises where there is nothing to read, and nothing may be made."""
        return NothingThereError(f"no threads were ever kept in {self.identity}: is that the right place?")

    @abstractmethod
    async def commit(self, commit: Commit) -> Outcome:
        """Write a checkpoint in one atomic step, or refuse it and write nothing.

        The step excludes other commits and deletions on the same thread. See `commit_rules.decide`.
        """

    @abstractmethod
    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        """One checkpoint (the latest if no id is given), with its runs, as of one instant."""

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        """One checkpoint as `read` gives it, but only the runs that hold a part of it need to be there.

        Engines override this where they can read less for it.
        """
        return await self.read(thread_id, namespace, checkpoint_id)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        """One checkpoint as `read` gives it, to a reader that has the checkpoint `held`.

        If that is in this thread and namespace, with this rev, runs may be left out that show nothing but what the
        *stored* manifest of `held` shows, too, in the same version of their branch. Then `Stored.since` is `held`, and
        all is as of one instant. Whoever holds a checkpoint has the runs that it shows, and not those that they hide.
        And a number of a run is no identity: after deletions it is given out again, and copies share the names of
        branches. While a checkpoint stands, nothing takes the place of its runs.

        Engines override this where they can read less for it.
        """
        return await self.read(thread_id, namespace, checkpoint_id)

    @abstractmethod
    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        """Entries, newest first; of all namespaces if none is named."""

    @abstractmethod
    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        """One entry (the latest if no id is given), without its payload."""

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        """The rev and the manifest of one checkpoint. Engines override this where they can read less for it."""
        stored = await self.read(thread_id, namespace, checkpoint_id)
        return None if stored is None else (stored.entry.rev, stored.manifest)

    async def namespaces(self, thread_id: str) -> list[str]:
        """The namespaces in which a thread has checkpoints, in code point order, as of one instant.

        Engines override this where they can read less for it.
        """
        return sorted({entry.namespace for entry in await self.history(thread_id, None, None, None)})

    @abstractmethod
    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        """Ids of threads that have a checkpoint, in code point order."""

    @abstractmethod
    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        """Remove checkpoints (those with these sequence numbers, or all), their pending writes, and the runs
        that nothing else needs, in one step; children of a removed checkpoint get its parent.

        `seqs` has the `rev` of each: a thread that was begun anew meanwhile counts from 1 again, and its
        checkpoints are not meant. Return how many checkpoints were removed."""

    @abstractmethod
    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        """The newest entries of all threads whose ids start with `prefix`, a text without any syntax."""

    @abstractmethod
    def translate(self, error: BaseException) -> CheckpointError:
        """The `CheckpointError` for one of `driver_errors`."""

    async def close(self) -> None:
        """Release what this engine opened itself; never raises. Later use opens it anew."""


class KeepsWrites(ABC):
    """Pending writes."""

    @abstractmethod
    async def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        task_id: str,
        writes: Sequence[Write],
        *,
        keep_numbered: bool = False,
    ) -> None:
        """Replace the task's writes with index ≥ 0, and those with a negative index that are named again.

        `keep_numbered` lets those with index ≥ 0 stay that are not named again.
        """

    @abstractmethod
    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        """In the order of (task_path, task_id, idx)."""


class FindsMetadata(ABC):
    """Find checkpoints by metadata."""

    @abstractmethod
    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        """Entries whose metadata has this value (canonical JSON) under this key, newest first.

        With a prefix: only of threads whose ids start with it.
        """


class Searches(ABC):
    """Full-text search."""

    @abstractmethod
    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        """Checkpoints with a run or a head that contains all terms, best first. Terms are different words.

        With a prefix: only of threads whose ids start with it; and neither the scores nor the order may depend on what
        other threads hold. It is enough to rank the newest `matching.RANKED` texts that have all terms.
        """


class Expires(ABC):
    """Threads that end by themselves: `Commit.expires_at` is kept, and what is past it is not seen."""

    @abstractmethod
    async def expire(self, now: datetime) -> int:
        """Remove the threads whose time has come; return the number of their checkpoints."""


class Copies(ABC):
    """Copy threads."""

    @abstractmethod
    async def copy(self, source: str, dest: str, namespace: str | None, checkpoint_ids: Collection[str] | None) -> int:
        """Copy checkpoints (all, or these of one namespace) with their runs and pending writes, in one step.

        Return how many; 0 if there is nothing to copy, -1 if `dest` exists, and then nothing is written.
        """


class Exports(ABC):
    """Read a whole thread in the order of its commits, each item once."""

    @abstractmethod
    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        """The checkpoints that follow a sequence number, of all namespaces, oldest first, as of one instant.

        With them come the runs of every branch that they name, up to the newest that they name of it, except those up
        to the number that is `known` of the branch; and their pending writes. `limit` is how many are enough: at least
        1, and a store that reads all of a thread anyway gives all.
        """
