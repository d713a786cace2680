"""The laws of a framework's sessions. A test class names an adapter, and provides the fixture `store`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar
from uuid import NAMESPACE_OID, uuid5

import pytest
import pytest_asyncio

from locus.errors import LocusError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import BAD_IDS, EXACT_VALUES, HOSTILE_QUERIES, LOOK_ALIKE_IDS
from locus.testing.framework_sessions import jobs
from locus.testing.framework_sessions.adapter import Appends, FrameworkSessions, Retried, Said, adapter_class
from locus.testing.framework_sessions.jobs import append_if_allowed
from locus.testing.framework_sessions.traffic import Traffic, TrafficCounter
from locus.testing.laws.base import Laws, raised
from locus.testing.processes.lines import Choice, Position, chosen
from locus.testing.processes.workers import Crew, Worker
from locus.testing.stores import DurableTestStore, OutageTestStore, TestStore

OpenSessions = Callable[[], FrameworkSessions]

HEAD_START = 0.005
"""The seconds until two processes append, which both need to receive the order."""

FILLING = "and the dog does not mind " * 12

HOSTILE_TEXTS = tuple(
    dict.fromkeys(
        (
            *(value for value in EXACT_VALUES if isinstance(value, str) and value),
            *(query for query in HOSTILE_QUERIES if query),
            '{"role": "user", "content": "\\u0000"}',
            "]]>&lt;script>",
            "line\nline\r\nline\r",
            "\x1b[31mred\x1b[0m",
            "😀" * 2_000,
        )
    )
)
"""Texts that a user may send. None is empty, because some frameworks have no empty messages."""


class SessionsUnderTest(Laws):
    """The base class of the laws, with helpers that use the framework through its adapter."""

    adapter: ClassVar[str]
    """The `FrameworkSessions` of the framework, as `module:Class`."""

    @property
    def kind(self) -> type[FrameworkSessions]:
        return adapter_class(self.adapter)

    @pytest_asyncio.fixture
    async def open_sessions(self, store: TestStore) -> AsyncIterator[OpenSessions]:
        """A function that opens the framework's sessions on a new handle. Both are closed at the end."""
        async with AsyncExitStack() as opened:

            def open_one() -> FrameworkSessions:
                handle = store.open()
                sessions = self.kind(handle)
                opened.push_async_callback(handle.close)
                opened.push_async_callback(sessions.close)
                return sessions

            yield open_one

    @pytest_asyncio.fixture
    async def sessions(self, open_sessions: OpenSessions) -> FrameworkSessions:
        return open_sessions()

    @asynccontextmanager
    async def over(self, handle: Checkpointer) -> AsyncIterator[FrameworkSessions]:
        """The framework's sessions on a handle, which is closed with them."""
        async with handle:
            sessions = self.kind(handle)
            yield sessions
            await sessions.close()

    def batch(self, session_id: str, name: str, filling: str = "") -> list[Said]:
        """A batch of the size that the framework can append. Its texts contain the name, the position and the size."""
        size = self.kind.batch
        return [said(session_id, f"{name} {place}/{size}{filling}") for place in range(size)]

    async def append(self, sessions: FrameworkSessions, session_id: str, batch: Sequence[Said]) -> None:
        """Append a batch to the present revision of a session."""
        await sessions.append(session_id, batch, await sessions.revision(session_id))

    async def started(self, sessions: FrameworkSessions, session_id: str, *names: str) -> list[str]:
        """Make a session with one batch for each name. Returns its texts."""
        await sessions.create(session_id)
        texts: list[str] = []
        for name in names:
            await self.append(sessions, session_id, self.batch(session_id, name))
            texts += texts_of(self.batch(session_id, name))
        return texts

    def crew(self, store: DurableTestStore) -> Crew:
        """Worker processes that have imported the adapter."""
        return Crew(store.url, (jobs.__name__, self.adapter.partition(":")[0], *self.kind.imports))


def said(session_id: str, text: str) -> Said:
    """A message whose id depends on its session and text."""
    return Said(str(uuid5(NAMESPACE_OID, ascii((session_id, text)))), text)


def texts_of(batch: Sequence[Said]) -> list[str]:
    return [each.text for each in batch]


class SessionRaceLaws(SessionsUnderTest):
    """Two writers that append from the same revision lose nothing that was accepted, in many rounds."""

    rounds: ClassVar[int] = 30

    async def test_of_two_writers_from_one_revision_none_loses_what_was_accepted(
        self, store: TestStore, sessions: FrameworkSessions, open_sessions: OpenSessions
    ) -> None:
        """The writers are two processes, or two tasks if no other process can open the store."""
        texts = await self.started(sessions, "shared", "first")
        rounds = [
            [self.batch("shared", f"{who} in round {turn}") for who in ("one", "two")] for turn in range(self.rounds)
        ]
        if isinstance(store, DurableTestStore):
            accepted = self._between_processes(store, rounds)
        else:
            accepted = await self._between_tasks([sessions, open_sessions()], rounds)
        both = self.kind.appends is not Appends.CONDITIONAL
        wrong = {turn: answers for turn, answers in enumerate(accepted) if sum(answers) != (2 if both else 1)}
        assert not wrong, f"accepted of two, by round: {wrong}"
        reachable = await open_sessions().reachable("shared")
        if self.kind.appends is Appends.SNAPSHOTS:
            expected = {*texts, *(text for each in rounds for batch in each for text in texts_of(batch))}
            assert expected - {*reachable} == set(), "accepted, and lost"
            return
        for answers, batches in zip(accepted, rounds, strict=True):
            these = [texts_of(batch) for batch, is_kept in zip(batches, answers, strict=True) if is_kept]
            stored = reachable[len(texts) : len(texts) + len(these) * self.kind.batch]
            orders = [[text for batch in order for text in batch] for order in (these, these[::-1])]
            assert stored in orders, f"accepted: {these}; kept: {stored}"
            texts += stored
        assert reachable == texts

    def _between_processes(self, store: DurableTestStore, rounds: list[list[list[Said]]]) -> list[list[bool]]:
        accepted = []
        with self.crew(store) as crew:
            writers = [
                crew.start(jobs.append_in_rounds, adapter=self.adapter, url=store.url, session_id="shared")
                for _ in range(2)
            ]
            for batches in rounds:
                for writer, batch in zip(writers, batches, strict=True):
                    writer.tell(batch=batch)
                crew.together(writers, HEAD_START)
                accepted.append([bool(writer.hear()["accepted"]) for writer in writers])
        return accepted

    async def _between_tasks(
        self, writers: list[FrameworkSessions], rounds: list[list[list[Said]]]
    ) -> list[list[bool]]:
        accepted = []
        for batches in rounds:
            begun = [await writer.revision("shared") for writer in writers]
            appends = [
                append_if_allowed(writer, "shared", batch, revision)
                for writer, batch, revision in zip(writers, batches, begun, strict=True)
            ]
            accepted.append(await asyncio.gather(*appends))
        return accepted


class SessionKillLaws(SessionsUnderTest):
    """A process killed during an append leaves the whole batch, or nothing of it."""

    kills: ClassVar[int] = 8
    """How many kills there are, spread over the lines that an append passes."""

    @pytest.mark.crash
    async def test_a_process_killed_during_an_append_leaves_the_whole_batch_or_nothing(
        self, store: DurableTestStore
    ) -> None:
        before, batch = texts_of(self.batch("counted", "before")), texts_of(self.batch("counted", "killed"))
        with self.crew(store) as crew:
            async with self.over(store.open()) as sessions:
                await self.started(sessions, "counted", "before")
                seen = self._start(crew, store, "counted", None).finish()
                positions: list[Position] = [tuple(position) for position in seen["positions"]]
                targets = chosen(positions, seen["engine"], Choice(self.kills, len(positions), last=2))
                names = [f"killed {at}" for at in range(len(targets))]
                for name in names:
                    await self.started(sessions, name, "before")
            killed = []
            for name, target in zip(names, targets, strict=True):
                worker = self._start(crew, store, name, target)
                worker.hear_out()
                # OS threads race, so a process may pass a line less often than the counted run did.
                killed += [name] if worker.killed else []
        assert len(killed) * 2 >= len(targets), f"of {len(targets)} processes only {len(killed)} were killed"
        async with self.over(store.open_after_kill()) as sessions:
            for name in killed:
                texts = await sessions.read(name)
                assert texts in (before, [*before, *batch]), f"a part of a batch: {texts[len(before) :]}"
                more = self.batch(name, "goes on")
                await self.append(sessions, name, more)
                assert await sessions.read(name) == [*texts, *texts_of(more)]

    def _start(self, crew: Crew, store: DurableTestStore, session_id: str, target: Position | None) -> Worker:
        return crew.start(
            jobs.append_under_trace,
            adapter=self.adapter,
            url=store.url,
            session_id=session_id,
            batch=self.batch(session_id, "killed"),
            target=target,
        )


class SessionRetryLaws(SessionsUnderTest):
    """A batch that is sent again, because its sender got no answer, is kept once if messages have ids."""

    async def test_the_same_batch_three_times(self, open_sessions: OpenSessions) -> None:
        sessions = open_sessions()
        texts = await self.started(sessions, "retried", "before")
        batch, times = self.batch("retried", "again"), 3
        begun = [(writer, await writer.revision("retried")) for writer in (sessions, sessions, open_sessions())]
        for writer, revision in begun:
            await append_if_allowed(writer, "retried", batch, revision)
        texts += texts_of(batch) * (times if self.kind.retried is Retried.AGAIN else 1)
        assert await open_sessions().read("retried") == texts
        more = self.batch("retried", "after")
        await self.append(sessions, "retried", more)
        texts += texts_of(more)
        if self.kind.retried is Retried.ONCE and self.kind.appends is Appends.COMMUTING:
            for writer in (sessions, open_sessions()):
                await append_if_allowed(writer, "retried", batch, await writer.revision("retried"))
        assert await open_sessions().read("retried") == texts


class SessionOutageLaws(SessionsUnderTest):
    """An outage raises an error. It is never reported as "no such session"."""

    @pytest.mark.parametrize("warm", [True, False], ids=["warm handle", "cold handle"])
    async def test_an_outage_raises_and_is_never_no_session(
        self, store: OutageTestStore, open_sessions: OpenSessions, warm: bool
    ) -> None:
        sessions = open_sessions()
        texts = await self.started(sessions, "there", "before")
        begun = await sessions.revision("there")
        tested = sessions if warm else open_sessions()
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            "known": lambda: tested.known("there"),
            "known of none": lambda: tested.known("not there"),
            "read": lambda: tested.read("there"),
            "read of none": lambda: tested.read("not there"),
            "read of the newest": lambda: tested.read("there", 1),
            "append": lambda: tested.append("there", self.batch("there", "during"), begun),
            "delete": lambda: tested.delete("there"),
        }
        if self.kind.forks:
            verbs["fork"] = lambda: tested.fork("there", "forked")
        async with store.outage():
            for verb, call in verbs.items():
                await raised(self.kind.unavailable, call(), f"during an outage, {verb}")
        for reader in (tested, open_sessions()):
            assert await reader.known("there")
            assert not await reader.known("not there")
            assert await reader.read("there") == texts
        more = self.batch("there", "after")
        await self.append(tested, "there", more)
        assert await open_sessions().read("there") == [*texts, *texts_of(more)]


class SessionCostLaws(SessionsUnderTest):
    """The costs of an append, and of reading the newest messages, do not grow. They are counted in calls and bytes."""

    early_turn: ClassVar[int] = 20
    late_turn: ClassVar[int] = 1_000

    late_whole_turn: ClassVar[int] = 200
    """The late turn for a framework that passes the whole session to each append, which takes longer each time."""

    allowed: ClassVar[float] = 1.5

    def turns(self, _sessions: FrameworkSessions) -> int:
        """The number of turns that the session has in the end."""
        return min(self.late_turn, self.late_whole_turn) if self.kind.reads_to_append else self.late_turn

    @pytest.fixture
    def traffic(self, sessions: FrameworkSessions, monkeypatch: pytest.MonkeyPatch) -> TrafficCounter:
        return TrafficCounter(type(sessions.store.store.engine), monkeypatch)

    async def test_appends_and_the_newest_messages_are_flat(
        self, sessions: FrameworkSessions, open_sessions: OpenSessions, traffic: TrafficCounter
    ) -> None:
        await sessions.create("long")
        last = self.turns(sessions)
        costs: dict[str, list[Traffic]] = {"warm append": [], "cold append": [], "newest": []}
        newest = min(20, self.early_turn * self.kind.batch)
        texts: list[str] = []
        for turn in range(last + 1):
            batch = self.batch("long", f"turn {turn:06}", FILLING)
            before = min(abs(end - turn) for end in (self.early_turn, last) if end >= turn)
            # Cold and warm appends don't alternate, or each would profit from the other's work.
            is_measured, is_cold = before < 10, before < 5
            writer = open_sessions() if is_cold else sessions
            begun = await writer.revision("long")
            traffic.take()
            await writer.append("long", batch, begun)
            if is_measured:
                costs["cold append" if is_cold else "warm append"].append(traffic.take())
            texts += texts_of(batch)
            if turn in (self.early_turn, last):
                reader = open_sessions()
                traffic.take()
                assert await reader.read("long", newest) == texts[-newest:]
                costs["newest"].append(traffic.take())
        for what, counted in costs.items():
            self._assert_flat(what, counted, last)
        assert await open_sessions().read("long") == texts

    def _assert_flat(self, what: str, counted: list[Traffic], last: int) -> None:
        half = len(counted) // 2
        early, late = (Traffic(*map(sum, zip(*part, strict=True))) for part in (counted[:half], counted[half:]))
        whole_session = not self.kind.reads_newest if what == "newest" else self.kind.reads_to_append
        told = f"{what}: {early} at turn {self.early_turn}, {late} at turn {last}"
        assert early.calls > 0, told
        assert late.calls <= early.calls, told
        assert late.written <= self.allowed * early.written, told
        assert whole_session or late.read <= self.allowed * early.read + 1_000, told


class SessionIdLaws(SessionsUnderTest):
    """Ids of sessions are data. Each id works, and has its own session, or is refused with a clear error."""

    async def test_hostile_session_ids_work_or_are_refused_clearly(self, open_sessions: OpenSessions) -> None:
        sessions = open_sessions()
        accepted: dict[str, list[str]] = {}
        bad = tuple(each for each in BAD_IDS if isinstance(each, str))
        for session_id in (*LOOK_ALIKE_IDS, *bad):
            batch = self.batch(session_id, f"of {session_id.encode(errors='backslashreplace')!r}")
            try:
                await sessions.create(session_id)
                await self.append(sessions, session_id, batch)
            except (LocusError, ValueError, TypeError) as error:
                if isinstance(error, UnicodeError) or not str(error):
                    pytest.fail(f"{session_id!a}: {error!r} is no clear error")
            else:
                accepted[session_id] = texts_of(batch)
        assert {"alice", "Alice", "tenant/a", "tenant_a"} <= {*accepted}, "ids are refused that anybody might have"
        reader = open_sessions()
        for session_id, texts in accepted.items():
            assert await reader.known(session_id), ascii(session_id)
            assert await reader.read(session_id) == texts, ascii(session_id)
        await sessions.delete("alice")
        del accepted["alice"]
        assert not await reader.known("alice")
        for session_id, texts in accepted.items():
            assert await reader.read(session_id) == texts, ascii(session_id)


class SessionForkLaws(SessionsUnderTest):
    """A fork and its source are independent after the fork."""

    @pytest.mark.parametrize("deleted", ["source", "fork"])
    async def test_a_fork_and_its_source_are_independent(self, open_sessions: OpenSessions, deleted: str) -> None:
        sessions = open_sessions()
        assert not await sessions.known("source")
        texts = await self.started(sessions, "source", "first", "second")
        assert await sessions.known("source")
        if not self.kind.forks:
            await sessions.delete("source")
            assert not await open_sessions().known("source")
            assert await open_sessions().read("source") == []
            return
        await sessions.fork("source", "fork")
        grown = {}
        for name in ("source", "fork"):
            more = self.batch(name, f"only in {name}")
            await self.append(sessions, name, more)
            grown[name] = [*texts, *texts_of(more)]
            assert await open_sessions().read(name) == grown[name]
        await sessions.delete(deleted)
        (left,) = {*grown} - {deleted}
        reader = open_sessions()
        assert not await reader.known(deleted)
        assert await reader.read(deleted) == []
        assert await reader.known(left)
        assert await reader.read(left) == grown[left]
        more = self.batch(left, "after")
        await self.append(reader, left, more)
        assert await open_sessions().read(left) == [*grown[left], *texts_of(more)]


class SessionRoundTripLaws(SessionsUnderTest):
    """Texts come back exactly, even hostile ones."""

    async def test_hostile_contents_come_back_as_they_were(
        self, sessions: FrameworkSessions, open_sessions: OpenSessions
    ) -> None:
        await sessions.create("said")
        for start in range(0, len(HOSTILE_TEXTS), self.kind.batch):
            batch = [said("said", text) for text in HOSTILE_TEXTS[start : start + self.kind.batch]]
            await self.append(sessions, "said", batch)
        for reader in (sessions, open_sessions()):
            assert await reader.read("said") == [*HOSTILE_TEXTS]
            assert await reader.read("said", 4) == [*HOSTILE_TEXTS[-4:]]


class SessionLaws(
    SessionRaceLaws,
    SessionKillLaws,
    SessionRetryLaws,
    SessionOutageLaws,
    SessionCostLaws,
    SessionIdLaws,
    SessionForkLaws,
    SessionRoundTripLaws,
):
    """All laws of sessions, for a store that other processes can open."""
