"""`LocusSessionStore`: the `SessionStore` of the Claude Agent SDK in a Locus store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from locus.core.tasks import finished
from locus.errors import CheckpointNotFoundError, ConflictError, CorruptCheckpointError, LocusError
from locus.extras import require
from locus.integrations.claude_agent_sdk.keys import NAMESPACE, TranscriptPlace, TranscriptPlaces
from locus.integrations.claude_agent_sdk.transcript import Fold, Notes, Transcript, notes_of
from locus.threads import AsyncStoreUser, Entry, SessionPoint, notes_in, readable, session_points, warn_of_damage
from locus.threads.limits import checked_last

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

_OWN_OPTIONS = ("prefix", "namespace")
_SDK = "claude_agent_sdk"
_EXTRA = "claude-agent-sdk"

_MOST_TRANSCRIPTS = 256
_MOST_UUIDS = 200_000
"""How many transcripts a handle follows, and how many of their uuids it holds: about twenty megabytes."""


class SessionStoreClosedError(LocusError, RuntimeError):
    """A session store is used after it was closed."""


class LocusSessionStore(AsyncStoreUser):
    """A `SessionStore` of the SDK in a Locus store: pass it as `ClaudeAgentOptions(session_store=…)`.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `close` closes a store that was opened here by name, and leaves others open. `prefix`
    is what all thread ids start with, such as `"acme/"` for a tenant. `keys` says where sessions are kept.
    """

    def __init__(self, store: Any, *, prefix: str = "", namespace: str = NAMESPACE, **options: Any) -> None:
        self._places = TranscriptPlaces(prefix, namespace)
        self._open(store, options, _OWN_OPTIONS)
        self._followed: OrderedDict[TranscriptPlace, Transcript] = OrderedDict()

    def _closed_error(self, name: str) -> Exception:
        return SessionStoreClosedError(f"this session store is closed: make a new {name}")

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add a batch of entries in one step. Entries whose `uuid` is stored already are not added again."""
        self._check_open()
        place = self._places.of(key)
        if entries:
            await self._transcript(place, key).append(entries)
            self._let_go()

    async def load(self, key: SessionKey, *, last: int | None = None) -> list[SessionStoreEntry] | None:
        """All entries of a transcript in their order, or the `last` ones; None if it was never written."""
        return await self._entries(self._places.of(key), None, last)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, each with the time of its last write."""
        return [
            {"session_id": session_id, "mtime": _written(entry, notes_of(notes_in(entry)))}
            for session_id, entry in (await self._sessions(project_key)).items()
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The SDK's summaries of a project's sessions. None of their entries is read."""
        found: list[SessionSummaryEntry] = []
        for session_id, entry in (await self._sessions(project_key)).items():
            notes = notes_of(notes_in(entry))
            if notes is not None and notes.summary is not None:
                found.append({"session_id": session_id, "mtime": _written(entry, notes), "data": notes.summary})
        return found

    async def delete(self, key: SessionKey) -> None:
        """Remove a transcript with its history. A main transcript takes those of its subagents along."""
        store, place = self._store, self._places.of(key)
        if key.get("subpath") is not None:
            self._forget([place])
            await store.log(*place).delete()
            return
        namespaces = await store.namespaces(place.thread_id)
        subagents = [name for name in namespaces if self._places.subpath(name) is not None]
        self._forget(TranscriptPlace(place.thread_id, name) for name in (place.namespace, *subagents))
        if {*namespaces} <= {place.namespace, *subagents}:
            await finished(store.delete(place.thread_id))
            return
        # The thread has something that is not ours. The main transcript goes last: until then the session is listed.
        for name in (*subagents, place.namespace):
            await store.log(place.thread_id, name).delete()

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session's transcripts that have entries."""
        place = self._places.of({"project_key": key["project_key"], "session_id": key["session_id"]})
        found = map(self._places.subpath, await self._store.namespaces(place.thread_id))
        return [subpath for subpath in found if subpath is not None]

    async def history(self, key: SessionKey, limit: int | None = 10, before: str | None = None) -> list[SessionPoint]:
        """The points in the history of a transcript, newest first, without entries. Each batch is one."""
        place = self._places.of(key)
        return await session_points(self._store, *place, limit, before)

    def at(self, key: SessionKey, checkpoint_id: str) -> SessionView:
        """A transcript as it was at a point in its history."""
        self._check_open()
        return SessionView(self, key, checkpoint_id)

    async def rewind(self, key: SessionKey, checkpoint_id: str) -> None:
        """Go on from an earlier point of a transcript. What came after it stays in the history."""
        self._check_open()
        place = self._places.of(key)
        self._forget([place])
        await self._store.log(*place).rewind(checkpoint_id)

    async def fork(
        self,
        key: SessionKey,
        checkpoint_id: str | None = None,
        *,
        new_session_id: str | None = None,
        up_to_message_id: str | None = None,
        title: str | None = None,
    ) -> SessionKey:
        """Begin a session that goes on from a point of this one, by default the latest, and return its key.

        The SDK makes its entries (`fork_session_via_store`, with new uuids), and they are added in one step. It asks
        for ids of sessions that are UUIDs, and leaves out what subagents have said. `ConflictError` if
        `new_session_id` is in use.
        """
        self._check_open()
        sdk = require(_SDK, _EXTRA)
        source = _Fork(self, key, checkpoint_id, new_session_id)
        try:
            await sdk.fork_session_via_store(source, key["session_id"], up_to_message_id=up_to_message_id, title=title)
        except FileNotFoundError as error:
            raise CheckpointNotFoundError("this session has no entries to fork") from error
        place, made = self._places.of(key), self._places.of(source.made)
        await self._store.note_origin(made.thread_id, place.thread_id, place.namespace, checkpoint_id)
        return source.made

    async def _end(self) -> None:
        self._followed.clear()
        await super()._end()

    async def _entries(self, place: TranscriptPlace, checkpoint_id: str | None, last: int | None) -> list[Any] | None:
        most = None if last is None else checked_last(last)
        return await self._store.log(*place).read(most, checkpoint_id) or None

    def _transcript(self, place: TranscriptPlace, key: SessionKey) -> Transcript:
        """The transcript at a place, with what this handle remembers of it. It becomes the last used one."""
        found = self._followed.get(place)
        if found is None:
            fold = None if key.get("subpath") is not None else _fold_for(key)
            found = self._followed[place] = Transcript(self._store.log(*place), fold)
        self._followed.move_to_end(place)
        return found

    def _let_go(self) -> None:
        """Forget the transcripts used longest ago, so that the remembered ones fit into memory."""
        held = sum(transcript.held for transcript in self._followed.values())
        while len(self._followed) > 1 and (held > _MOST_UUIDS or len(self._followed) > _MOST_TRANSCRIPTS):
            _, oldest = self._followed.popitem(last=False)
            held -= oldest.held

    def _forget(self, places: Iterable[TranscriptPlace]) -> None:
        for place in places:
            self._followed.pop(place, None)

    async def _sessions(self, project_key: str) -> dict[str, Entry]:
        """The sessions of a project, each with the newest checkpoint of its main transcript."""
        store, within = self._store, self._places.within(project_key)
        page = await store.newest_threads(prefix=within)
        newest = {entry.thread_id: entry for entry in page.entries}
        threads = list(newest)
        if page.next is not None:  # the pages of a large store go through the checkpoints of other projects, too
            threads += [one for one in await store.list_threads(prefix=within) if one not in newest]
        names = {one: name for one in threads if (name := self._places.session_id(one, project_key)) is not None}
        elsewhere = [one for one in names if one not in newest or newest[one].namespace != self._places.namespace]
        main = {one: newest[one] for one in names if one in newest}
        main.update(await self._main_entries(elsewhere))
        return {names[one]: entry for one, entry in main.items() if entry.namespace == self._places.namespace}

    async def _main_entries(self, threads: Sequence[str]) -> dict[str, Entry]:
        """The newest checkpoints of main transcripts, for threads in which a subagent has saved last."""
        store, namespace = self._store, self._places.namespace
        damaged: list[CorruptCheckpointError] = []
        entries = await readable(lambda thread_id: store.entry(thread_id, namespace), threads, damaged)
        warn_of_damage(damaged)
        return {thread_id: entry for thread_id, entry in entries if entry is not None}


class SessionView:
    """A transcript as it was at a checkpoint, read-only. `LocusSessionStore.fork` makes a session that can go on."""

    def __init__(self, store: LocusSessionStore, key: SessionKey, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        self._sessions = store
        self._place = store._places.of(key)

    async def load(self, key: SessionKey | None = None, *, last: int | None = None) -> list[SessionStoreEntry] | None:
        """All entries up to that checkpoint, or the `last` ones; None for the key of another transcript."""
        if key is not None and self._sessions._places.of(key) != self._place:
            return None
        return await self._sessions._entries(self._place, self.checkpoint_id, last)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Refuse: a transcript of the past cannot be changed."""
        raise ConflictError("this is a session as it was: fork it, or rewind the session, to go on from there")


class _Fork:
    """A store for the SDK's own fork function: it reads the source as of a point, and collects the fork's entries."""

    def __init__(
        self, store: LocusSessionStore, key: SessionKey, checkpoint_id: str | None, new_session_id: str | None
    ) -> None:
        self._sessions = store
        self._source = store._places.of(key)
        self._checkpoint_id = checkpoint_id
        self._new_session_id = new_session_id
        self.made = key

    async def load(self, _key: SessionKey) -> list[SessionStoreEntry] | None:
        return await self._sessions._entries(self._source, self._checkpoint_id, None)

    async def append(self, key: SessionKey, entries: list[Any]) -> None:
        given, wanted = key["session_id"], self._new_session_id or key["session_id"]
        self.made = {"project_key": self.made["project_key"], "session_id": wanted}
        if wanted != given:
            entries = [{**entry, "sessionId": wanted} for entry in entries]
        place = self._sessions._places.of(self.made)
        await self._sessions._transcript(place, self.made).append(entries, begins=True)
        self._sessions._let_go()


def _fold_for(key: SessionKey) -> Fold:
    """The SDK's function that folds entries into a session's summary."""
    fold = require(_SDK, _EXTRA).fold_session_summary

    def folded(data: dict[str, Any] | None, entries: Sequence[Any]) -> dict[str, Any]:
        before = None if data is None else {"session_id": key["session_id"], "mtime": 0, "data": data}
        return cast(dict[str, Any], fold(before, key, list(entries))["data"])

    return folded


def _written(entry: Entry, notes: Notes | None) -> int:
    """The time of a transcript's last write, in milliseconds, from the store and never from an entry."""
    return max(int(entry.created_at.timestamp() * 1000), notes.written if notes else 0)
