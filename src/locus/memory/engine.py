"""The engine port: what a database has to do for Locus. Each capability beyond the basics is a type of its own.

An engine only stores. Before it is called, ids are checked, payloads are encoded and the plan of a save is made;
after it raised, its driver's exceptions are translated. Engines are used from several event loops.
"""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from locus.core.protocols import CheckpointerCapabilities as CheckpointerCapabilities
from locus.errors import (
    CapabilityError,
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
)
from locus.memory.model.changes import PayloadDiff
from locus.memory.model.codec import EXACT, Dialect
from locus.memory.model.ids import Pattern
from locus.memory.model.matching import newest_threads
from locus.memory.model.parts import Part
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Base,
    CheckpointKey,
    Commit,
    Entry,
    Exported,
    Finding,
    Hit,
    Hits,
    NewestThreads,
    Outcome,
    RunInfo,
    Salvage,
    Stored,
    StoredFormat,
    TaskWrites,
    Write,
)
from locus.memory.model.retention import Line, Outlived, OutlivedPage, Place, Retention, line_in, outlived_in
from locus.memory.model.sizes import (
    Measured,
    MeasuredCheckpoint,
    MeasuredWrites,
    measured_checkpoint,
    measured_run,
    measured_writes,
)

LOOKED_AT = 2_000
"""How many checkpoints a list of the newest threads is put together from, unless an engine can look at more cheaply."""

PAGE = 500
"""How many threads a vacuum looks at between two reports of its progress, about."""


def warn_of_damage(damaged: Collection[CorruptCheckpointError]) -> None:
    """Tell whoever asked about many threads that some are left out, because they cannot be read."""
    if damaged:
        first = next(iter(damaged))
        warnings.warn(
            f"{len(damaged)} damaged thread{'s were' if len(damaged) > 1 else ' was'} left out; the first: {first}",
            DamagedThreadsWarning,
            stacklevel=2,
        )


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

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        """Ids of what `threads` does not list and is stored all the same: threads that have expired and were not
        removed yet, and those of which there are only pending writes. Those that start with `prefix` and follow
        `after`, in code point order. `delete` removes them.

        Engines override this where they can find them.
        """
        return []

    @abstractmethod
    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        """Remove checkpoints (those with these sequence numbers, or all), their pending writes, and the runs
        that nothing else needs, in one step; children of a removed checkpoint get its parent.

        `seqs` has the `rev` of each: a thread that was begun anew meanwhile counts from 1 again, and its
        checkpoints are not meant. Return how many checkpoints were removed."""

    async def confirm(self, thread_id: str | None = None) -> None:
        """Wait until what was deleted from a thread, or from all, is as safe as this store promises of a deletion.

        A deletion whose answer was lost may have been carried out. Whoever repeats it finds nothing there, and has to
        know that it stays so. Engines override this where a failover may bring back what their reads do not see.
        """

    async def trim(self, thread_id: str, seqs: Mapping[int, str]) -> int:
        """Remove what a vacuum has found, as `delete` does, but not necessarily in one step.

        After each step the thread is whole, so that a vacuum may be interrupted, and others may save in between.
        Engines override this where to remove very many checkpoints at once would hold up others.
        """
        return await self.delete(thread_id, None, seqs)

    async def outlived(
        self, kept: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        """What a vacuum removes from threads whose ids start with `prefix`, page by page, without removing it.

        `limit` is about how many threads are looked at for a page. Each page says where the next one begins, so that
        another call can go on `after` it. What `retention.outlived` gives for each thread must come out, but a thread
        of which nothing goes need not be read for that. Damage in one thread is part of its page, and does not stop the
        rest.

        Engines override this where they need not ask for the history of every thread.
        """
        while thread_ids := await self._ids_after(Pattern(within=prefix, after=after), limit):
            found: list[Outlived] = []
            damaged: list[CorruptCheckpointError] = []
            for thread_id in thread_ids:
                try:
                    entries = await self.history(thread_id, None, None, None)
                    found.append(outlived_in(thread_id, entries, kept, {}))
                except CorruptCheckpointError as error:
                    damaged.append(error)
            after = thread_ids[-1]
            yield OutlivedPage(after, len(thread_ids), [one for one in found if one], damaged)

    async def measure(self, thread_id: str) -> Measured | None:
        """The bytes of everything that a thread has; None if there is no such thread.

        Engines override this where they can tell without reading every text.
        """
        checkpoints: list[MeasuredCheckpoint] = []
        runs: dict[RunInfo, int] = {}
        writes: dict[Place, MeasuredWrites] = {}
        for entry in await self.history(thread_id, None, None, None):
            stored = await self.read(thread_id, entry.namespace, entry.checkpoint_id)
            if stored is None or stored.entry.rev != entry.rev:
                continue
            checkpoints.append(measured_checkpoint(stored.entry, stored.head, stored.manifest))
            runs |= dict(measured_run(run) for found in stored.runs.values() for run in found)
            if isinstance(self, KeepsWrites):
                found = await self.get_writes(thread_id, entry.namespace, entry.checkpoint_id, None)
                writes[entry.namespace, entry.checkpoint_id] = measured_writes(found)
        return Measured(checkpoints, runs, writes) if checkpoints else None

    async def _ids_after(self, pattern: Pattern, limit: int) -> list[str]:
        found = await self.threads(pattern, limit)
        if found and not pattern.matches(found[0]):
            # An engine that does not know `after` would begin anew, again and again.
            found = list(filter(pattern.matches, await self.threads(pattern, None)))[:limit]
        return found

    @abstractmethod
    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        """The newest entries of all threads whose ids start with `prefix`, a text without any syntax."""

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        """Threads, the one with the newest checkpoint first, each with that checkpoint; from a cursor on.

        `limit` is at most `LOOKED_AT`. An engine may stop before it has found that many, when it has looked at
        `LOOKED_AT` checkpoints or more: then it gives the cursor of where it is. A thread that is saved to between two
        pages moves to the front, and may be missing from the second one. None is on both, unless the checkpoint that
        was its newest is removed in between.

        Engines override this where they need not look at every thread.
        """
        found: list[Entry] = []
        damaged: list[CorruptCheckpointError] = []
        for thread_id in await self.threads(Pattern(within=prefix), None):
            try:
                found += await self.history(thread_id, None, 1, None)
            except CorruptCheckpointError as error:
                damaged.append(error)
        warn_of_damage(damaged)
        return newest_threads(found, limit, before)

    async def examine(self) -> list[Finding]:
        """What is wrong with how the store is set up: an index that is missing, a clock that is off, a server that may
        lose what it acknowledged. Engines override this as far as they can find it out."""
        return []

    async def stored_format(self) -> StoredFormat | None:
        """The format of the store, 0 if nothing is there; None where there is nothing that a migration could change.

        It is asked before `setup`, which migrates.
        """
        return None

    async def mend(self, finding: Finding) -> None:
        """Do what `Finding.repair` says, for one of the findings of `examine`."""
        raise CapabilityError(f"{type(self).__name__} cannot repair this")

    async def salvage(
        self, thread_id: str, content: Callable[[Stored], object | None], *, apply: bool
    ) -> Salvage | None:
        """Find out what can be kept of a thread that cannot be read as a whole, and with `apply` keep only that.

        `content` puts a checkpoint together, and returns None if that is not possible. What is damaged is put aside
        first, where somebody can look at it. None means that the engine cannot tell, and has changed nothing.
        """
        return None

    @abstractmethod
    def translate(self, error: BaseException) -> CheckpointError:
        """The `CheckpointError` for one of `driver_errors`."""

    async def close(self) -> None:
        """Release what this engine opened itself; never raises. Later use opens it anew."""


class NothingCommitted(Exception):
    """Raised by `commit_together`: nothing was written, and alone each member would fail for the same cause."""


class NotConfirmed(Exception):
    """Raised by `commit_together`: whatever was written may still be lost, and nobody knows what was.

    Alone, each member would wait as long again, for the same answer.
    """


class CommitsTogether(ABC):
    """Write for many threads in one commit of the database, so that saves that wait at the same time share it."""

    @abstractmethod
    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        """Answer each member as `commit` would (with `Verdict.COMMITTED` for pending writes), or with None.

        Each member is of another thread. Each is decided by itself: one that is refused leaves the others alone.
        None means that this one has to be sent alone, because another holds its thread, or nobody knows what became of
        it: it then looks for itself, with `fresh_id=False`.
        Nothing is answered before everything in it is durable. If this raises, nobody knows what was written, and each
        member is sent again by itself, with `fresh_id=False`. `NothingCommitted` and `NotConfirmed`, from one of
        `driver_errors`, are told to all instead: then not each of them has to wait again for what all have waited for.
        """


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

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        """Remove the pending writes of those of these checkpoints that are not there; return how many writes.

        A thread that has nothing else is gone with them. Engines that never report any (see `Engine.outlived`) need not
        have this.
        """
        return 0


class FindsMetadata(ABC):
    """Find checkpoints by metadata."""

    @abstractmethod
    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        """Entries whose metadata has this value (canonical JSON) under this key, newest first.

        With a prefix: only of threads whose ids start with it.
        """


class Deadline:
    """A time at which something has to end, so many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """In seconds."""
        return max(0.0, self._at - time.monotonic())

    @property
    def has_passed(self) -> bool:
        return self.left <= 0

    def timeout(self, least: float = 0.0) -> asyncio.Timeout:
        """Ends what is done inside with a `TimeoutError` when the time is up, but not before it had `least` seconds."""
        return asyncio.timeout(None if self._at == math.inf else max(self.left, least))


class Searches(ABC):
    """Full-text search."""

    @abstractmethod
    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        """Checkpoints with a run or a head that contains all terms, best first. Terms are different words.

        With a prefix: only of threads whose ids start with it; and neither the scores nor the order may depend on what
        other threads hold. It is enough to rank the newest `matching.RANKED` texts that have all terms.
        """

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        """The same, up to a deadline: what was found by then, and whether that is all.

        Engines override this where they can tell what they have found so far. A store that cannot be reached is an
        error all the same: then there is no answer at all, and not an empty one.
        """
        try:
            async with deadline.timeout():
                return Hits(await (self.search(terms, limit, prefix) if prefix else self.search(terms, limit)))
        except TimeoutError:
            if not deadline.has_passed:
                raise
        assert isinstance(self, Engine)
        await self.entry("locus-search", DEFAULT_NAMESPACE, None)  # it raises what is wrong, if anything is
        return Hits(complete=False)


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

    async def copy_line(self, source: str, dest: str, line: Line) -> int:
        """Copy a checkpoint with its ancestors, all or so many, as of one instant. The answers are those of `copy`.

        If the last one came from another that is left behind, its copy has no parent. Engines override this; without
        that, a line is found first and copied then, and it cannot be cut.
        """
        assert isinstance(self, Engine)
        ids, orphan = line_in(await self.history(source, line.namespace, None, None), line)
        if orphan is not None:
            raise CapabilityError(f"{type(self).__name__} copies all ancestors of a checkpoint: leave out `ancestors`")
        return await self.copy(source, dest, line.namespace, set(ids)) if ids else 0


class Compares(ABC):
    """Compare checkpoints where they are stored. Any other engine is asked for the parts that differ."""

    @abstractmethod
    async def diff(self, old: CheckpointKey, new: CheckpointKey, start: int, limit: int) -> PayloadDiff:
        """A page of what changed from one checkpoint to another; `CheckpointNotFoundError` if one is not there."""


class Exports(ABC):
    """Read a whole thread in the order of its commits, each item once."""

    @abstractmethod
    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        """The checkpoints that follow a sequence number, of all namespaces, oldest first, as of one instant.

        With them come the runs of every branch that they name, up to the newest that they name of it, except those up
        to the number that is `known` of the branch; and their pending writes. `limit` is how many are enough: at least
        1, and a store that reads all of a thread anyway gives all. Where they are large, fewer are given, so that no
        more than some `sizes.EXPORT_BYTES` are in memory at once, or one checkpoint; then `Exported.more` is set.
        """
