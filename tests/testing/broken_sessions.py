"""Sessions of frameworks that are broken on purpose, each in one way, and a sound one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from locus.errors import BackendUnavailableError, ConflictError
from locus.memory.item_log import ItemLog, logged_change
from locus.memory.model.ids import new_id
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said

NAMESPACE = "sessions"


class Revision(NamedTuple):
    """The latest checkpoint of a session, and how many messages it has."""

    latest: str | None
    length: int


class SoundSessions(FrameworkSessions):
    """A log of messages for each session, and appends on condition that nobody was faster."""

    appends = Appends.CONDITIONAL

    def log(self, session_id: str) -> ItemLog:
        return ItemLog(self.store.store, session_id, NAMESPACE)

    async def create(self, session_id: str) -> None:
        self.log(session_id)

    async def revision(self, session_id: str) -> Revision:
        entry = await self.store.store.entry(session_id, None, NAMESPACE)
        change = None if entry is None else logged_change(entry.metadata)
        if entry is None or change is None:
            return Revision(None, 0)
        return Revision(entry.checkpoint_id, change.items)

    async def append(self, session_id: str, batch: Sequence[Said], revision: Revision) -> None:
        items, log = [said._asdict() for said in batch], self.log(session_id)
        if revision.latest is None:
            await log.append(items)
        elif not await log.replace_from(revision.length, items, if_latest=revision.latest):
            raise ConflictError("somebody else was faster")

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        return [item["text"] for item in await self.log(session_id).read(newest)]

    async def known(self, session_id: str) -> bool:
        return await self.log(session_id).latest() is not None

    async def delete(self, session_id: str) -> None:
        await self.log(session_id).delete()

    async def fork(self, session_id: str, new_session_id: str) -> None:
        latest = await self.log(session_id).latest()
        await self.store.store.copy(session_id, new_session_id, latest, NAMESPACE)


class LosesOne(SoundSessions):
    """Looks whether anybody was faster, and then writes the whole list, whatever has happened since."""

    async def append(self, session_id: str, batch: Sequence[Said], revision: Revision) -> None:
        if await self.log(session_id).latest() != revision.latest:
            raise ConflictError("somebody else was faster")
        kept = await self.log(session_id).read()
        await asyncio.sleep(0.1)
        log = self.log(session_id)
        latest = await log.latest()
        items = [*kept, *(said._asdict() for said in batch)]
        if latest is None:
            await log.append(items)
        else:
            await log.replace_from(0, items, if_latest=latest)


class HalfABatch(SoundSessions):
    """Writes one message after the other."""

    async def append(self, session_id: str, batch: Sequence[Said], revision: Revision) -> None:
        for number, said in enumerate(batch):
            begun = revision if number == 0 else await self.revision(session_id)
            await super().append(session_id, [said], begun)


class KeepsRetries(SoundSessions):
    """Has ids, and does not look at them."""

    appends = Appends.COMMUTING

    async def append(self, session_id: str, batch: Sequence[Said], revision: Any) -> None:
        await self.log(session_id).append([said._asdict() for said in batch])


class OutageIsNoSession(SoundSessions):
    """Knows no session where it could not ask."""

    async def known(self, session_id: str) -> bool:
        try:
            return await super().known(session_id)
        except BackendUnavailableError:
            return False


class OutageIsEmpty(SoundSessions):
    """Reads nothing where it could not ask."""

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        try:
            return await super().read(session_id, newest)
        except BackendUnavailableError:
            return []


class RewritesEverything(SoundSessions):
    """Writes the whole session with each append."""

    async def append(self, session_id: str, batch: Sequence[Said], revision: Revision) -> None:
        log = self.log(session_id)
        items = [*(await log.read()), *(said._asdict() for said in batch)]
        # With an id of this append in each message nothing is stored already.
        items = [{**item, "written by": new_id()} for item in items]
        if revision.latest is None:
            await log.append(items)
        elif not await log.replace_from(0, items, if_latest=revision.latest):
            raise ConflictError("somebody else was faster")


class ReadsEverything(SoundSessions):
    """Reads the whole session for its newest messages."""

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        texts = await super().read(session_id)
        return texts if newest is None else texts[-newest:]


class FoldsCase(SoundSessions):
    """Takes ids for the same that only look the same."""

    def log(self, session_id: str) -> ItemLog:
        return super().log(session_id.lower())

    async def revision(self, session_id: str) -> Revision:
        return await super().revision(session_id.lower())


class SharesWithForks(SoundSessions):
    """A fork is another name of its source."""

    def log(self, session_id: str) -> ItemLog:
        return super().log("source" if session_id == "fork" else session_id)

    async def revision(self, session_id: str) -> Revision:
        return await super().revision("source" if session_id == "fork" else session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        pass


class Strips(SoundSessions):
    """Tidies up what was said."""

    async def append(self, session_id: str, batch: Sequence[Said], revision: Revision) -> None:
        await super().append(session_id, [said._replace(text=said.text.strip()) for said in batch], revision)
