"""The port to databases. An `Engine` keeps threads in one database; every further capability is a type of its own.

An engine only stores. `CheckpointStore` calls it: that checks ids, encodes payloads and plans each save beforehand, and
translates the driver's exceptions afterwards. Several event loops may use an engine at once.
"""

from __future__ import annotations

import asyncio
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from locus.core.protocols import CheckpointerCapabilities as CheckpointerCapabilities
from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
)
from locus.memory.model.changes import PayloadDiff
from locus.memory.model.codec import EXACT, Dialect
from locus.memory.model.foreign import NAMES
from locus.memory.model.ids import Pattern, check_key_space, shown_thread
from locus.memory.model.matching import newest_threads
from locus.memory.model.parts import Ends, Part
from locus.memory.model.records import (
    DEFAULT_NAMESPACE,
    Ancestor,
    AncestorQuery,
    Base,
    CheckpointKey,
    Commit,
    Contents,
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
from locus.memory.model.retention import Copied, Outlived, OutlivedPage, Place, Retention, outlived_in
from locus.memory.model.sizes import (
    EXPORT_BYTES,
    Measured,
    MeasuredCheckpoint,
    MeasuredWrites,
    measured_checkpoint,
    measured_run,
    measured_writes,
)

LOOKED_AT = 2_000
"""The number of checkpoints that a page of the newest threads is made from. An engine may look at more."""

LINE_PAGE = 64
"""The number of ancestors of a checkpoint that are read at once, unless an engine has its own way."""

_READ_AT_ONCE = 32
"""The number of threads that are read at the same time, where each is a request."""

_LOOKS = 8
"""How often ancestors are read anew because some of them were changed meanwhile."""

PAGE = 500
"""The approximate number of threads that a vacuum looks at between two reports of its progress."""


def warn_of_damage(damaged: Collection[CorruptCheckpointError]) -> None:
    """Warn that an answer about many threads leaves out those that cannot be read."""
    if damaged:
        first = next(iter(damaged))
        warnings.warn(
            f"{len(damaged)} damaged thread{'s were' if len(damaged) > 1 else ' was'} left out; the first: {first}",
            DamagedThreadsWarning,
            stacklevel=2,
        )


class NothingThereError(ConfigurationError):
    """A store that is opened for reading only does not exist."""


class ForeignStoreError(NothingThereError):
    """A place holds the threads of another framework and none of Locus. `kind` is its name for `locus import`."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind = kind
        self.place = place
        while_it_runs = "; LocusSaver(…, fallback=…) does it while graphs run" if kind == "langgraph" else ""
        super().__init__(
            f"{place} holds threads of {NAMES[kind]}, and none of Locus: `locus import {kind} SOURCE DESTINATION` "
            f'brings them over{while_it_runs}. fallback="none", or ?fallback=none in the URL, begins an empty store '
            "beside them"
        )

    def __reduce__(self) -> tuple[type[ForeignStoreError], tuple[str, str]]:
        return type(self), (self.kind, self.place)


class NotAllowedError(BackendUnavailableError):
    """The server answers, and lets this user in, but has not granted a right that is needed."""


class Engine(ABC):
    """Threads in one database: the operations that every store needs.

    A thread is named by its id, a checkpoint by its namespace and its id in the thread.
    """

    dialect: ClassVar[Dialect] = EXACT
    """The JSON values that the database would change if they were handed to it unchanged."""

    keeps_runs: ClassVar[bool] = True
    """True if a commit may refer to runs that earlier commits stored. Otherwise every commit brings the whole state."""

    checks_extents: ClassVar[bool] = False
    """True if the store itself refuses a commit that names runs which its base does not show."""

    works_in_place: ClassVar[bool] = False
    """True if the engine can do its work in the thread of its caller.

    Then its methods wait for nothing but `Worker.run` and pauses, and use no sockets of an event loop. A blocking call
    on such an engine runs in the thread of its caller (see `runtime.direct`).
    """

    driver_errors: ClassVar[tuple[type[BaseException], ...]] = ()
    """The exceptions that `translate` understands."""

    reading_only: bool = False
    """Set it before the first use. Then `setup` creates nothing, and raises if the store does not exist."""

    begins_beside: bool = False
    """Set it before the first use. Then `setup` may begin a store where another framework keeps its threads."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """A name of the store, without secrets. Two engines on the same data have the same one."""

    def offers(self, capability: type) -> bool:
        """Tell whether this store has a capability. Some depend on the server, and not on the engine's type alone."""
        return isinstance(self, capability)

    def key_space(self, name: str) -> Engine:
        """Open another space of keys in the same store: threads that no list, search or count of this one knows.

        An engine opens each space once. Where both share connections, closing one closes them, and a later use of the
        other opens them anew.
        """
        spaces: dict[str, Engine] = vars(self).setdefault("_key_spaces", {})
        space = spaces.get(check_key_space(name))
        if space is None:
            space = spaces.setdefault(name, self._opened_space(name))
            space.reading_only = self.reading_only
            space.begins_beside = True  # no other framework's threads would go there
        return space

    def _opened_space(self, name: str) -> Engine:
        """Make the engine of a key space."""
        raise CapabilityError(f"{type(self).__name__} has no key spaces, so it keeps nothing beside its threads")

    async def setup(self) -> None:
        """Create or migrate what the store needs. May be repeated, and run in many processes at once."""

    def nothing_there(self) -> NothingThereError:
        """The error that `setup` raises if the store does not exist and may only be read."""
        return NothingThereError(f"no threads were ever kept in {self.identity}: is that the right place?")

    def check_foreign(self, kind: str | None) -> None:
        """Raise if another framework, which is None if there is none, keeps threads where this store would begin.

        `setup` calls it where nothing of this store exists yet.
        """
        if kind is not None and not self.begins_beside:
            raise ForeignStoreError(kind, self.identity)

    @abstractmethod
    async def commit(self, commit: Commit) -> Outcome:
        """Write a checkpoint in one atomic step, or refuse it and write nothing.

        The step excludes other commits and deletions on the same thread. `commit_rules.decide` is the rule for what
        may be written, and for its number and parent.
        """

    @abstractmethod
    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        """Read one checkpoint with its runs, as of one instant; the latest checkpoint if no id is given."""

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        """Read one checkpoint with at least the runs that hold a part of it.

        Engines override this where they can read less than the whole checkpoint.
        """
        return await self.read(thread_id, namespace, checkpoint_id)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        """Read one checkpoint for a caller that has the checkpoint `held` already.

        An engine may leave out runs that the caller has. It may do so if `held` still exists in this thread and
        namespace with the same rev, and only for runs of which the new checkpoint shows nothing that the stored
        manifest of `held` does not show in the same version of the branch. It then sets `Stored.since` to `held`.
        Everything is read as of one instant.

        The caller has the runs that `held` shows, but not older ones that those hide. The number of a run does not
        identify it: after a deletion another run may get it, and copies of a thread use the same names of branches.
        As long as a checkpoint exists, though, no other run takes the place of one of its runs.

        Engines override this where they can read less than the whole checkpoint.
        """
        return await self.read(thread_id, namespace, checkpoint_id)

    @abstractmethod
    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        """List entries of a thread, newest first: those of a namespace, or of all if none is named.

        Only entries with a sequence number below `before_seq` count.
        """

    @abstractmethod
    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        """Read the entry of one checkpoint, without its payload; of the latest one if no id is given."""

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        """Read the rev and the manifest of one checkpoint.

        Engines override this where they can read less than the whole checkpoint.
        """
        stored = await self.read(thread_id, namespace, checkpoint_id)
        return None if stored is None else (stored.entry.rev, stored.manifest)

    async def namespaces(self, thread_id: str) -> list[str]:
        """List the namespaces in which a thread has checkpoints, in code point order, as of one instant.

        Engines override this where they can read less than the whole history.
        """
        return sorted({entry.namespace for entry in await self.history(thread_id, None, None, None)})

    @abstractmethod
    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        """List the ids of threads that match and have a checkpoint, in code point order."""

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        """Read the newest checkpoint of each thread whose id starts with `prefix` and follows `after`, in their order.

        Only the default namespace counts. A page covers at most `limit` threads, or about `sizes.EXPORT_BYTES`. It has
        fewer, if some were removed meanwhile or are damaged. Engines override this where one request reads a page.
        """
        ids = await _ids_after(self, Pattern(within=prefix, after=after), limit)
        found: list[Stored | CorruptCheckpointError | None] = []
        while len(found) < len(ids) and has_room(found):
            found += await self.newest_of(ids[len(found) : len(found) + _READ_AT_ONCE])
        return contents_of(ids, found, limit)

    async def newest_of(self, thread_ids: Sequence[str]) -> list[Stored | CorruptCheckpointError | None]:
        """Read the newest checkpoint in the default namespace of each of these threads; or why it cannot be read.

        Engines override this where one request reads many.
        """
        found: list[Stored | CorruptCheckpointError | None] = []
        at_once = 1 if self.works_in_place else _READ_AT_ONCE
        while len(found) < len(thread_ids):
            reads = [_newest_of(self, thread_id) for thread_id in thread_ids[len(found) : len(found) + at_once]]
            found += await asyncio.gather(*reads) if at_once > 1 else [await reads[0]]
        return found

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        """List the ids of threads that are stored although `threads` does not list them, in code point order.

        These are expired threads that were not removed yet, and threads that have nothing but pending writes. Their
        ids start with `prefix` and follow `after`. `delete` removes them. Engines override this where they can find
        such threads.
        """
        return []

    @abstractmethod
    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        """Remove checkpoints in one step, and return how many.

        Their pending writes go with them, and so do the runs that no other checkpoint needs. Children of a removed
        checkpoint get its parent. `namespace` and `seqs` choose checkpoints; without them the whole thread is removed.
        `seqs` has the rev of each sequence number: a thread that was deleted and begun anew meanwhile counts from 1
        again, and its new checkpoints stay.
        """

    async def trim(self, thread_id: str, seqs: Mapping[int, str]) -> int:
        """Remove the checkpoints that a vacuum has found, as `delete` does, but possibly in several steps.

        The thread is whole after each step, so that a vacuum may be interrupted, and others may save in between.
        Engines override this where removing very many checkpoints at once would hold up others.
        """
        return await self.delete(thread_id, None, seqs)

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        """List what a vacuum would remove from threads whose ids start with `prefix`, page by page.

        A page covers about `limit` threads and says where it ends, so that another call can continue `after` it. It has
        what `retention.outlived_in` gives for each thread; a thread that keeps everything need not be read for that.
        Damage in one thread is reported in its page, and does not stop the rest.

        Engines override this where they need not read the history of every thread.
        """
        while thread_ids := await _ids_after(self, Pattern(within=prefix, after=after), limit):
            outlived: list[Outlived] = []
            damaged: list[CorruptCheckpointError] = []
            for thread_id in thread_ids:
                try:
                    entries = await self.history(thread_id, None, None, None)
                    outlived.append(outlived_in(thread_id, entries, retention, {}))
                except CorruptCheckpointError as error:
                    damaged.append(error)
            after = thread_ids[-1]
            yield OutlivedPage(after, len(thread_ids), list(filter(None, outlived)), damaged)

    async def measure(self, thread_id: str) -> Measured | None:
        """Measure the bytes of everything that a thread has; None if there is no such thread.

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
            runs |= dict(measured_run(run) for branch in stored.runs.values() for run in branch)
            if isinstance(self, KeepsWrites):
                pending = await self.get_writes(thread_id, entry.namespace, entry.checkpoint_id, None)
                writes[entry.namespace, entry.checkpoint_id] = measured_writes(pending)
        return Measured(checkpoints, runs, writes) if checkpoints else None

    @abstractmethod
    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        """List the newest entries of all threads whose ids start with `prefix`, in which no character is syntax."""

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        """List threads by their newest checkpoints, the newest first, from the cursor `before` on.

        `limit` is at most `LOOKED_AT`. An engine that has looked at `LOOKED_AT` checkpoints may stop early, with a
        cursor of where it stopped. A thread that is saved to between two pages moves to the front, and may be missing
        from the second page. No thread is on both pages, unless its newest checkpoint is removed in between.

        Engines override this where they need not look at every thread.
        """
        entries: list[Entry] = []
        damaged: list[CorruptCheckpointError] = []
        for thread_id in await self.threads(Pattern(within=prefix), None):
            try:
                entries += await self.history(thread_id, None, 1, None)
            except CorruptCheckpointError as error:
                damaged.append(error)
        warn_of_damage(damaged)
        return newest_threads(entries, limit, before)

    @abstractmethod
    def translate(self, error: BaseException) -> CheckpointError:
        """Make a `CheckpointError` of one of `driver_errors`."""

    async def close(self) -> None:
        """Release what this engine opened itself. Never raises. A later use opens it anew."""


def has_room(found: Sequence[Stored | CorruptCheckpointError | None]) -> bool:
    """Whether a page of contents has room for more."""
    return sum(stored.characters for stored in found if isinstance(stored, Stored)) < EXPORT_BYTES


def contents_of(ids: Sequence[str], found: Sequence[Stored | CorruptCheckpointError | None], limit: int) -> Contents:
    """A page of contents: of these threads, `limit` were asked for, and the first of them were read."""
    return Contents(
        [stored for stored in found if isinstance(stored, Stored)],
        ids[len(found) - 1] if len(ids) == limit or len(found) < len(ids) else None,
        [error for error in found if isinstance(error, CorruptCheckpointError)],
    )


async def _newest_of(engine: Engine, thread_id: str) -> Stored | CorruptCheckpointError | None:
    try:
        return await engine.read(thread_id, DEFAULT_NAMESPACE, None)
    except CorruptCheckpointError as error:
        return error


async def _ids_after(engine: Engine, pattern: Pattern, limit: int) -> list[str]:
    ids = await engine.threads(pattern, limit)
    if ids and not pattern.matches(ids[0]):
        # An engine that does not know `Pattern.after` would begin anew, again and again.
        ids = list(filter(pattern.matches, await engine.threads(pattern, None)))[:limit]
    return ids


class Maintains:
    """Maintenance of a store, for `locus doctor` and `locus migrate`. An engine overrides the methods that it has."""

    async def examine(self) -> list[Finding]:
        """Look for faults in how the store is set up.

        Examples are a missing index, a clock that is off, and a server that may lose what it has acknowledged.
        """
        return []

    async def examine_indexes(self) -> list[Finding]:
        """Look for what lists and lookups would miss, because an index has lost it. May go over everything stored."""
        return []

    async def mend(self, finding: Finding) -> None:
        """Carry out `Finding.repair` of a finding that `examine` reported."""
        raise CapabilityError(f"{type(self).__name__} cannot repair this")

    async def stored_format(self) -> StoredFormat | None:
        """Tell the format of the store, 0 if it does not exist; None if there is nothing to migrate.

        May be called before `setup`, which migrates.
        """
        return None


class Salvages(ABC):
    """Keep the readable part of a damaged thread."""

    @abstractmethod
    async def salvage(
        self, thread_id: str, content: Callable[[Stored], object | None], *, apply: bool
    ) -> Salvage | None:
        """Find out what can be kept of a thread that cannot be read as a whole; with `apply`, keep only that.

        `content` puts a checkpoint together, and returns None if that is impossible. Damaged data is put aside first,
        where somebody can look at it. None means that the engine cannot tell, and has changed nothing.
        """


class ConfirmsDeletions(ABC):
    """Deletions that a failover may undo until they are confirmed."""

    @abstractmethod
    async def confirm(self, thread_id: str | None = None) -> None:
        """Wait until the deletions from a thread, or from all threads, are as safe as this store promises.

        A deletion whose answer was lost may have been carried out. Whoever repeats it finds nothing to delete, and has
        to know that the thread stays deleted.
        """


class NothingCommitted(Exception):
    """Raised by `commit_together` if nothing was written, and sending each member alone would fail as well."""


class NotConfirmed(Exception):
    """Raised by `commit_together` if what was written may still be lost, and nobody knows what was written.

    Sent alone, each member would wait as long again for the same answer.
    """


class CommitsTogether(ABC):
    """Commit for several threads in one transaction of the database, so that saves that wait share its cost."""

    @abstractmethod
    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        """Answer each member as `commit` would (with `Verdict.COMMITTED` for pending writes), or with None.

        Each member is of another thread, and is decided by itself: a refused one leaves the others alone. Nothing is
        answered before all of it is durable.

        None tells the caller to send this member alone, with `fresh_id=False`: somebody else holds its thread, or its
        outcome is unknown. If this method raises, the caller does so with every member. `NothingCommitted` and
        `NotConfirmed` are the exceptions: their cause, one of `driver_errors`, is reported to every caller at once.
        """


class CommitsWhole(ABC):
    """Commit for several threads in one step: for all of them, or for none."""

    @abstractmethod
    async def commit_whole(self, group: Sequence[Commit]) -> list[Outcome] | None:
        """Write all members, each of another thread and without pending writes; None if one of them is refused.

        Then nothing is written.
        """


class CommitsWithWrites:
    """A commit may bring pending writes, `Commit.writes`: both are written in one step, or neither is."""


class KeepsWrites(ABC):
    """Pending writes: what tasks have written beside a checkpoint that does not include it yet."""

    @abstractmethod
    async def put_writes(self, task: TaskWrites) -> None:
        """Replace all writes of a task with index ≥ 0, and of those with a negative index the ones that are given.

        `task.keep_numbered` lets writes with index ≥ 0 stay unless they are given anew.
        """

    @abstractmethod
    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        """Read the pending writes of a checkpoint, of one task or of all, by (task_path, task_id, idx)."""

    async def read_with_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base | None
    ) -> tuple[Stored, list[Write]] | None:
        """Read one checkpoint and its pending writes; with `held`, as `read_since` does.

        Engines override this where it is one request.
        """
        assert isinstance(self, Engine)
        place = (thread_id, namespace, checkpoint_id)
        stored = await (self.read(*place) if held is None else self.read_since(*place, held))
        if stored is None:
            return None
        return stored, await self.get_writes(thread_id, namespace, stored.entry.checkpoint_id, None)

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        """Read the ancestors of a checkpoint, its parent first, with their pending writes to some channels.

        The list has `limit` of them, or ends with one whose parent is not there, or is on it already. Runs are left
        out. Everything is as of one instant.

        Engines override this where they need not ask for each ancestor, and where they read nothing else.
        """
        assert isinstance(self, Engine)
        for _ in range(_LOOKS):
            line = await _line_before(self, query)
            found = await _with_writes(self, query, line)
            # A checkpoint that is removed takes its writes along, and its children get another parent.
            if line == await _line_before(self, query):
                return found
        raise ConflictError(f"{shown_thread(query.thread_id)} keeps being changed while it is read; try again")

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        """Remove the pending writes of these checkpoints, except of those that exist; return how many writes.

        A thread that has nothing else is removed with them. Engines whose `outlived` reports no pending writes need not
        override this.
        """
        return 0


async def _line_before(engine: Engine, query: AncestorQuery) -> list[Entry]:
    """Read the entries of a checkpoint's ancestors. Most of them directly precede it, so they are read in pages."""
    thread_id, namespace, checkpoint_id, limit, *_ = query
    entry = last = await engine.entry(thread_id, namespace, checkpoint_id)
    line: list[Entry] = []
    known: dict[str, Entry] = {}
    while entry is not None and entry.parent_id is not None and len(line) < limit:
        parent_id = entry.parent_id
        while parent_id not in known and last is not None:
            page = await engine.history(thread_id, namespace, LINE_PAGE, last.seq)
            known |= {before.checkpoint_id: before for before in page}
            last = page[-1] if len(page) == LINE_PAGE else None
        # A checkpoint that was saved again is newer than its children.
        entry = known.get(parent_id) or await engine.entry(thread_id, namespace, parent_id)
        if entry is None or entry in line or parent_id == checkpoint_id:
            break
        line.append(entry)
    return line


async def _with_writes(engine: Engine, query: AncestorQuery, line: Sequence[Entry]) -> list[Ancestor]:
    """Read the checkpoints of a line without their runs, as far as they are still there."""
    assert isinstance(engine, KeepsWrites)
    thread_id, channels = query.thread_id, query.channels
    found: dict[tuple[str, str], Ancestor] = {}
    for start in range(0, len(line), LINE_PAGE):
        part = line[start : start + LINE_PAGE]
        low, high = min(entry.seq for entry in part), max(entry.seq for entry in part)
        if isinstance(engine, Exports) and engine.offers(Exports) and high - low < 4 * len(part):
            while low <= high:
                page = await engine.export(thread_id, low - 1, high - low + 1, {})
                for stored in page.checkpoints:
                    place = stored.entry.namespace, stored.entry.checkpoint_id
                    found[place] = Ancestor.of(stored, page.writes.get(place, ()), channels)
                if not page.more or not page.checkpoints:
                    break
                low = page.checkpoints[-1].entry.seq + 1
            continue
        for entry in part:
            place = entry.namespace, entry.checkpoint_id
            stored_now = await engine.read_part(thread_id, *place, Ends(1))
            if stored_now is not None:
                writes = await engine.get_writes(thread_id, *place, None)
                found[place] = Ancestor.of(replace(stored_now, runs={}), writes, channels)
    return [found[place] for entry in line if (place := (entry.namespace, entry.checkpoint_id)) in found]


class FindsMetadata(ABC):
    """Find checkpoints by metadata."""

    @abstractmethod
    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        """List entries whose metadata has this value (canonical JSON) under this key, newest first.

        Only threads whose ids start with `prefix` count.
        """


class Deadline:
    """The end of a time that began when this object was made."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The time that is left, in seconds."""
        return max(0.0, self._at - time.monotonic())

    @property
    def has_passed(self) -> bool:
        return self.left <= 0

    def timeout(self, least: float = 0.0) -> asyncio.Timeout:
        """A context that raises `TimeoutError` at the deadline, but lets its body run for `least` seconds at least."""
        return asyncio.timeout(None if self._at == math.inf else max(self.left, least))


class Searches(ABC):
    """Full-text search."""

    @abstractmethod
    async def search(self, terms: Sequence[str], limit: int, prefix: str = "") -> list[Hit]:
        """Find checkpoints with a run or a head that contains all terms, best first. Terms are different words.

        With a prefix, only threads count whose ids start with it, and neither the scores nor the order may depend on
        other threads. Ranking the newest `matching.RANKED` texts that have all terms is enough.
        """

    async def search_until(self, terms: Sequence[str], limit: int, prefix: str, deadline: Deadline) -> Hits:
        """Search up to a deadline, and tell whether the hits are complete.

        A store that cannot be reached raises: no answer is not an empty answer. Engines override this where they can
        return the hits that they have at the deadline.
        """
        try:
            async with deadline.timeout():
                return Hits(await (self.search(terms, limit, prefix) if prefix else self.search(terms, limit)))
        except TimeoutError:
            if not deadline.has_passed:
                raise
        assert isinstance(self, Engine)
        await self.entry("locus-search", DEFAULT_NAMESPACE, None)  # raises if the store cannot be reached
        return Hits(complete=False)


class Expires(ABC):
    """Threads that expire: the store keeps `Commit.expires_at`, and shows nothing of a thread after that time."""

    @abstractmethod
    async def expire(self, now: datetime) -> int:
        """Remove the threads that have expired; return how many checkpoints they had."""


class TellsState(ABC):
    """Tells cheaply whether anything was changed. Only for engines that can be sure."""

    @abstractmethod
    async def state(self) -> Hashable:
        """Something that differs whenever a checkpoint was added or removed since, by whomever."""

    async def changed(self, since: Hashable, prefix: str) -> list[str] | None:
        """List the threads whose ids start with `prefix` and that got checkpoints since a state, in any order.

        None if anything was removed since, or if the engine cannot tell.
        """
        return None


class ListsVersions(ABC):
    """Lists the newest checkpoints of threads for much less than reading them."""

    @abstractmethod
    async def versions(self, prefix: str, after: str, limit: int) -> list[tuple[str, str]]:
        """List threads as `newest` does, each with the id of its newest checkpoint in the default namespace."""


class Copies(ABC):
    """Copy threads."""

    @abstractmethod
    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        """Copy checkpoints with their runs and pending writes, as of one instant and in one step.

        `retention.chosen_in` says which ones, and which parents they get: the oldest of a line has none if the parent
        of its original is not copied. Return how many. Return 0 if there is nothing to copy, and -1 if `dest` exists;
        then nothing is written.
        """


class Compares(ABC):
    """Compare checkpoints in the store. With other engines, the parts that differ are read and compared here."""

    @abstractmethod
    async def diff(self, old: CheckpointKey, new: CheckpointKey, start: int, limit: int) -> PayloadDiff:
        """A page of the changes from one checkpoint to another; raises `CheckpointNotFoundError` if one is missing."""


class Exports(ABC):
    """Read a whole thread in the order of its commits, each item once."""

    @abstractmethod
    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        """Read the checkpoints that follow a sequence number, of all namespaces, oldest first, as of one instant.

        Their pending writes come with them, and so do the runs of every branch that they name: up to the newest run
        that they name, without those up to the number in `known`. `limit` (1 or more) checkpoints are enough; a store
        that reads the whole thread anyway may give all of them. Large checkpoints make a page shorter, so that it has
        about `sizes.EXPORT_BYTES` or a single checkpoint; then `Exported.more` is set.
        """
