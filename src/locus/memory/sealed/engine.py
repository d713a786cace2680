"""An engine that keeps sealed what another engine stores: texts, metadata, pending writes and names.

It has the capabilities of the other engine, but for those that look into texts: full-text search, and comparing in the
store. Ids, numbers, times and sizes stay readable, and so does which runs a list is made of.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from locus.encryption.data_key import NotOpenedError, NotSealedError
from locus.encryption.keyring import Keyring
from locus.errors import CheckpointError, CorruptCheckpointError
from locus.memory.engine import (
    PAGE,
    CommitsTogether,
    CommitsWithWrites,
    ConfirmsDeletions,
    Copies,
    Engine,
    Expires,
    Exports,
    FindsMetadata,
    KeepsWrites,
    Maintains,
    NothingThereError,
    Salvages,
    TellsState,
    warn_of_damage,
)
from locus.memory.model.codec import EXACT, encode_trusted
from locus.memory.model.ids import Pattern, shown_thread
from locus.memory.model.parts import Ends, Part
from locus.memory.model.records import (
    Ancestor,
    AncestorQuery,
    Base,
    Commit,
    Contents,
    Entry,
    Exported,
    Finding,
    NewestThreads,
    Outcome,
    Salvage,
    Stored,
    StoredFormat,
    TaskWrites,
    Write,
)
from locus.memory.model.retention import Copied, OutlivedPage, Place, Retention
from locus.memory.model.sizes import Measured
from locus.memory.model.spaces import DATA_KEYS
from locus.memory.sealed.keys import DataKeys, ThreadKeys, keys_of_all, no_key
from locus.memory.sealed.texts import (
    index_marks,
    opened_branch,
    opened_entry,
    opened_manifest,
    opened_run,
    opened_stored,
    opened_writes,
    sealed_branch,
    sealed_commit,
    sealed_part,
    sealed_writes,
)

T = TypeVar("T")
R = TypeVar("R")


def sealed(engine: Engine, keyring: Keyring) -> SealedEngine:
    """An engine that keeps what it is given sealed in another one."""
    return _over(engine, DataKeys(engine.key_space(DATA_KEYS), keyring, ""))


def _over(engine: Engine, keys: DataKeys) -> SealedEngine:
    """A sealed engine with the capabilities of the one below it."""
    has = tuple(kind for capability, kind in _CAPABILITIES if isinstance(engine, capability))
    return _class_with(has)(engine, keys)


@lru_cache(maxsize=64)
def _class_with(has: tuple[type[SealedEngine], ...]) -> type[SealedEngine]:
    return type(SealedEngine.__name__, (*has, SealedEngine), {})


class SealedEngine(Engine):
    """Threads in another engine, sealed. `sealed` makes one with the capabilities of that engine."""

    def __init__(self, inner: Engine, keys: DataKeys) -> None:
        self.inner: Any = inner
        self.keys = keys

    @property
    def identity(self) -> str:
        return str(self.inner.identity)

    # Texts come back as they were, whatever the database does with JSON.
    dialect = EXACT

    @property
    def keeps_runs(self) -> bool:  # type: ignore[override]
        return bool(self.inner.keeps_runs)

    @property
    def checks_extents(self) -> bool:  # type: ignore[override]
        return bool(self.inner.checks_extents)

    @property
    def works_in_place(self) -> bool:  # type: ignore[override]
        return bool(self.inner.works_in_place)

    @property
    def driver_errors(self) -> tuple[type[BaseException], ...]:  # type: ignore[override]
        errors: tuple[type[BaseException], ...] = self.inner.driver_errors
        return errors

    @property
    def reading_only(self) -> bool:
        return bool(self.inner.reading_only)

    @reading_only.setter
    def reading_only(self, value: bool) -> None:
        self.inner.reading_only = self.keys.engine.reading_only = value

    @property
    def begins_beside(self) -> bool:
        return bool(self.inner.begins_beside)

    @begins_beside.setter
    def begins_beside(self, value: bool) -> None:
        self.inner.begins_beside = value

    def offers(self, capability: type) -> bool:
        return isinstance(self, capability) and bool(self.inner.offers(capability))

    def _opened_space(self, name: str) -> Engine:
        return _over(self.inner.key_space(name), DataKeys(self.keys.engine, self.keys.keyring, name))

    async def setup(self) -> None:
        await self.inner.setup()

    def nothing_there(self) -> NothingThereError:
        error: NothingThereError = self.inner.nothing_there()
        return error

    def translate(self, error: BaseException) -> CheckpointError:
        translated: CheckpointError = self.inner.translate(error)
        return translated

    async def close(self) -> None:
        await self.keys.engine.close()
        await self.inner.close()

    async def commit(self, commit: Commit) -> Outcome:
        outcome: Outcome = await self.inner.commit(await self._sealed(commit))
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        async def ask(_: ThreadKeys | None) -> Stored | None:
            stored: Stored | None = await self.inner.read(thread_id, namespace, checkpoint_id)
            return stored

        return await self._read(thread_id, ask, opened_stored)

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        async def ask(keys: ThreadKeys | None) -> Stored | None:
            named = part if keys is None else sealed_part(part, keys.names)
            stored: Stored | None = await self.inner.read_part(thread_id, namespace, checkpoint_id, named)
            return stored

        return await self._read(thread_id, ask, opened_stored)

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        async def ask(_: ThreadKeys | None) -> Stored | None:
            stored: Stored | None = await self.inner.read_since(thread_id, namespace, checkpoint_id, held)
            return stored

        return await self._read(thread_id, ask, opened_stored)

    async def history(
        self, thread_id: str, namespace: str | None, limit: int | None, before_seq: int | None
    ) -> list[Entry]:
        async def ask(_: ThreadKeys | None) -> list[Entry] | None:
            return await self.inner.history(thread_id, namespace, limit, before_seq) or None

        return await self._read(thread_id, ask, _opened_entries) or []

    async def entry(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Entry | None:
        async def ask(_: ThreadKeys | None) -> Entry | None:
            entry: Entry | None = await self.inner.entry(thread_id, namespace, checkpoint_id)
            return entry

        return await self._read(thread_id, ask, opened_entry)

    async def manifest(self, thread_id: str, namespace: str, checkpoint_id: str) -> tuple[str, str] | None:
        # Nothing but the head proves the manifest.
        stored = await self.read_part(thread_id, namespace, checkpoint_id, Ends(1))
        return None if stored is None else (stored.entry.rev, stored.manifest)

    async def namespaces(self, thread_id: str) -> list[str]:
        names: list[str] = await self.inner.namespaces(thread_id)
        return names

    async def threads(self, pattern: Pattern, limit: int | None) -> list[str]:
        ids: list[str] = await self.inner.threads(pattern, limit)
        return ids

    async def newest(self, prefix: str, after: str, limit: int) -> Contents:
        page: Contents = await self.inner.newest(prefix, after, limit)
        keys = await keys_of_all(self.keys, [stored.entry.thread_id for stored in page.stored])
        found: list[Stored] = []
        damaged = list(page.damaged)
        for stored in page.stored:
            try:
                found.append(_with_errors(stored.entry.thread_id, keys[stored.entry.thread_id], opened_stored, stored))
            except CorruptCheckpointError as error:
                damaged.append(error)
        return replace(page, stored=found, damaged=damaged)

    async def unlisted(self, prefix: str, after: str, limit: int) -> list[str]:
        ids: list[str] = await self.inner.unlisted(prefix, after, limit)
        return ids

    async def delete(self, thread_id: str, namespace: str | None = None, seqs: Mapping[int, str] | None = None) -> int:
        return int(await self.inner.delete(thread_id, namespace, seqs))

    async def trim(self, thread_id: str, seqs: Mapping[int, str]) -> int:
        return int(await self.inner.trim(thread_id, seqs))

    async def outlived(
        self, retention: Retention, after: str = "", prefix: str = "", limit: int = PAGE
    ) -> AsyncGenerator[OutlivedPage]:
        async for page in self.inner.outlived(retention, after, prefix, limit):
            yield page

    async def measure(self, thread_id: str) -> Measured | None:
        async def ask(_: ThreadKeys | None) -> Measured | None:
            measured: Measured | None = await self.inner.measure(thread_id)
            return measured

        return await self._read(thread_id, ask, _opened_measures)

    async def recent(self, limit: int, prefix: str = "") -> list[Entry]:
        return await self._opened_of_threads(await self.inner.recent(limit, prefix))

    async def newest_threads(self, limit: int, before: str | None = None, prefix: str = "") -> NewestThreads:
        page: NewestThreads = await self.inner.newest_threads(limit, before, prefix)
        return replace(page, entries=await self._opened_of_threads(page.entries))

    async def _sealed(self, commit: Commit) -> Commit:
        keys = await self._keys_to_seal(commit.thread_id)
        index = None
        if isinstance(self, FindsMetadata) and commit.metadata != "{}":
            index = await self.keys.index_key(commit.thread_id)
        return sealed_commit(commit, keys, index, self.keys.keyring.clear_metadata)

    async def _keys_to_seal(self, thread_id: str) -> ThreadKeys:
        keys = self.keys.cached(thread_id) or await self.keys.of(thread_id, create=True)
        assert keys is not None
        return keys

    async def _read(
        self,
        thread_id: str,
        ask: Callable[[ThreadKeys | None], Awaitable[T | None]],
        open_: Callable[[T, ThreadKeys], R],
    ) -> R | None:
        """Ask for something of a thread, and open it. If that fails, the keys at hand may be those of an older copy."""
        held = self.keys.cached(thread_id)
        keys = held or await self.keys.of(thread_id)
        found = await ask(keys)
        if found is None:
            return None
        try:
            if keys is None:
                raise NotOpenedError
            return open_(found, keys)
        except NotOpenedError:
            self.keys.forget_cached(thread_id)
            keys = await self.keys.of(thread_id)
            found = await ask(keys)
            return None if found is None else _with_errors(thread_id, keys, open_, found)
        except NotSealedError:
            raise _in_clear(thread_id) from None

    async def _opened_of_threads(self, entries: Sequence[Entry]) -> list[Entry]:
        """Open entries of several threads, without those that are damaged."""
        keys = await keys_of_all(self.keys, [entry.thread_id for entry in entries])
        found: list[Entry] = []
        damaged: list[CorruptCheckpointError] = []
        for entry in entries:
            try:
                found.append(_with_errors(entry.thread_id, keys[entry.thread_id], opened_entry, entry))
            except CorruptCheckpointError as error:
                damaged.append(error)
        warn_of_damage(damaged)
        return found


def _with_errors(thread_id: str, keys: ThreadKeys | None, open_: Callable[[T, ThreadKeys], R], found: T) -> R:
    """Open something of a thread; whatever does not open is damage, and a lost key is told as such."""
    try:
        if keys is None:
            raise no_key(thread_id)
        return open_(found, keys)
    except NotOpenedError:
        raise CorruptCheckpointError(
            f"{shown_thread(thread_id)} has something that does not open with its key: it was changed, moved or forged"
        ) from None
    except NotSealedError:
        raise _in_clear(thread_id) from None


def _in_clear(thread_id: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{shown_thread(thread_id)} has something that is stored in clear: it was saved without keys, or is forged"
    )


def _opened_entries(entries: Sequence[Entry], keys: ThreadKeys) -> list[Entry]:
    return [opened_entry(entry, keys) for entry in entries]


def _opened_measures(measured: Measured, keys: ThreadKeys) -> Measured:
    return replace(
        measured,
        checkpoints=[one._replace(manifest=opened_manifest(one.manifest, keys)) for one in measured.checkpoints],
        runs={run._replace(branch=opened_branch(run.branch, keys)): size for run, size in measured.runs.items()},
    )


class _SealedWrites(SealedEngine, KeepsWrites):
    async def put_writes(self, task: TaskWrites) -> None:
        await self.inner.put_writes(sealed_writes(task, await self._keys_to_seal(task.thread_id)))

    async def get_writes(self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str | None) -> list[Write]:
        async def ask(_: ThreadKeys | None) -> list[Write] | None:
            return await self.inner.get_writes(thread_id, namespace, checkpoint_id, task_id) or None

        def open_(writes: list[Write], keys: ThreadKeys) -> list[Write]:
            return opened_writes(writes, keys, namespace, checkpoint_id)

        return await self._read(thread_id, ask, open_) or []

    async def read_with_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base | None
    ) -> tuple[Stored, list[Write]] | None:
        async def ask(_: ThreadKeys | None) -> tuple[Stored, list[Write]] | None:
            found: tuple[Stored, list[Write]] | None = await self.inner.read_with_writes(
                thread_id, namespace, checkpoint_id, held
            )
            return found

        def open_(found: tuple[Stored, list[Write]], keys: ThreadKeys) -> tuple[Stored, list[Write]]:
            stored, writes = found
            return opened_stored(stored, keys), opened_writes(writes, keys, namespace, stored.entry.checkpoint_id)

        return await self._read(thread_id, ask, open_)

    async def ancestors(self, query: AncestorQuery) -> list[Ancestor]:
        async def ask(keys: ThreadKeys | None) -> list[Ancestor] | None:
            channels = query.channels
            if keys is not None:
                channels = [name for channel in query.channels for name in (channel, *keys.names_of(channel))]
            return await self.inner.ancestors(query._replace(channels=channels)) or None

        def open_(found: list[Ancestor], keys: ThreadKeys) -> list[Ancestor]:
            return [
                one._replace(
                    stored=None if one.stored is None else opened_stored(one.stored, keys),
                    writes=opened_writes(one.writes, keys, query.namespace, one.checkpoint_id),
                )
                for one in found
            ]

        return await self._read(query.thread_id, ask, open_) or []

    async def delete_orphans(self, thread_id: str, places: Collection[Place]) -> int:
        return int(await self.inner.delete_orphans(thread_id, places))


class _SealedTogether(SealedEngine, CommitsTogether):
    async def commit_together(self, group: Sequence[Commit | TaskWrites]) -> list[Outcome | None]:
        sealed_group: list[Commit | TaskWrites] = []
        for member in group:
            if isinstance(member, Commit):
                sealed_group.append(await self._sealed(member))
            else:
                sealed_group.append(sealed_writes(member, await self._keys_to_seal(member.thread_id)))
        outcomes: list[Outcome | None] = await self.inner.commit_together(sealed_group)
        return outcomes


class _SealedCommitsWithWrites(SealedEngine, CommitsWithWrites):
    pass


class _SealedMetadata(SealedEngine, FindsMetadata):
    async def find(self, key: str, value: str, limit: int, prefix: str = "") -> list[Entry]:
        if key in self.keys.keyring.clear_metadata:
            return await self._opened_of_threads(await self.inner.find(key, value, limit, prefix))
        found: list[Entry] = []
        for index in (keys := await self.keys.index_keys(prefix)):
            name, mark = index_marks(index, key, value)
            found += await self.inner.find(name, encode_trusted(mark), limit, prefix)
        if len(keys) > 1:
            found.sort(key=lambda entry: (entry.created_at, entry.seq), reverse=True)
        return await self._opened_of_threads(found[:limit])


class _SealedExpires(SealedEngine, Expires):
    async def expire(self, now: datetime) -> int:
        return int(await self.inner.expire(now))


class _SealedState(SealedEngine, TellsState):
    async def state(self) -> Hashable:
        state: Hashable = await self.inner.state()
        return state


class _SealedCopies(SealedEngine, Copies):
    async def copy(self, source: str, dest: str, copied: Copied) -> int:
        # A copy of rows has the seals of its source, so what opens them goes first.
        keys = await self.keys.of(source)
        if keys is not None and await self.inner.entry(dest, "", None) is None and not await self._has(dest):
            await self.keys.note_copy(keys, dest)
        return int(await self.inner.copy(source, dest, copied))

    async def _has(self, thread_id: str) -> bool:
        return bool(await self.inner.history(thread_id, None, 1, None))


class _SealedExports(SealedEngine, Exports):
    async def export(self, thread_id: str, after_seq: int, limit: int, known: Mapping[str, int]) -> Exported:
        async def ask(keys: ThreadKeys | None) -> Exported | None:
            named = known if keys is None else {sealed_branch(name, keys.names): at for name, at in known.items()}
            page: Exported = await self.inner.export(thread_id, after_seq, limit, named)
            return page if page.checkpoints or page.runs or page.writes else None

        return await self._read(thread_id, ask, _opened_export) or Exported([], [])


def _opened_export(page: Exported, keys: ThreadKeys) -> Exported:
    return replace(
        page,
        checkpoints=[opened_stored(stored, keys) for stored in page.checkpoints],
        runs=[opened_run(run, keys) for run in page.runs],
        writes={place: opened_writes(some, keys, *place) for place, some in page.writes.items()},
    )


class _SealedDeletions(SealedEngine, ConfirmsDeletions):
    async def confirm(self, thread_id: str | None = None) -> None:
        await self.inner.confirm(thread_id)


class _SealedMaintenance(SealedEngine, Maintains):
    async def examine(self) -> list[Finding]:
        findings: list[Finding] = await self.inner.examine()
        return findings

    async def mend(self, finding: Finding) -> None:
        await self.inner.mend(finding)

    async def stored_format(self) -> StoredFormat | None:
        found: StoredFormat | None = await self.inner.stored_format()
        return found


class _SealedSalvage(SealedEngine, Salvages):
    async def salvage(
        self, thread_id: str, content: Callable[[Stored], object | None], *, apply: bool
    ) -> Salvage | None:
        keys = await self.keys.of(thread_id)
        if keys is None:
            raise no_key(thread_id)

        def opened_content(stored: Stored) -> object | None:
            try:
                return content(opened_stored(stored, keys))
            except (NotOpenedError, NotSealedError):
                return None

        found: Salvage | None = await self.inner.salvage(thread_id, opened_content, apply=apply)
        return found


_CAPABILITIES: tuple[tuple[type, type[SealedEngine]], ...] = (
    (KeepsWrites, _SealedWrites),
    (CommitsTogether, _SealedTogether),
    (CommitsWithWrites, _SealedCommitsWithWrites),
    (FindsMetadata, _SealedMetadata),
    (Expires, _SealedExpires),
    (TellsState, _SealedState),
    (Copies, _SealedCopies),
    (Exports, _SealedExports),
    (ConfirmsDeletions, _SealedDeletions),
    (Maintains, _SealedMaintenance),
    (Salvages, _SealedSalvage),
)
