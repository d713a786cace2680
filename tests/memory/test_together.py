"""Saves that wait at the same time: how they are gathered, and what each of them is told."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConflictError
from locus.memory import together
from locus.memory.backends.memory import MemoryEngine
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import CommitsTogether, NotConfirmed, NothingCommitted
from locus.memory.item_log import ItemLog
from locus.memory.model.records import Commit, Outcome, TaskWrites, Verdict
from locus.memory.registry import get_checkpointer
from locus.memory.store import CheckpointStore
from locus.server.app import create_app

Member = Commit | TaskWrites
whose: ContextVar[str] = ContextVar("whose", default="nobody's")


class Broken(Exception):
    """What the driver raises."""


class Engine(MemoryEngine, CommitsTogether):
    """Notes what is sent to it, and lets it through when the test says so."""

    driver_errors = (Broken,)

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[Member]] = []
        self.senders: list[tuple[asyncio.Task[Any] | None, str]] = []
        self.closed = False
        self.fails = False
        self.outage = False
        self.told_to_all: type[Exception] | None = None
        self.skipped: set[str] = set()
        """Threads that another holds, as it seems."""
        self._held: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    def hold(self, *thread_ids: str) -> None:
        for thread_id in thread_ids:
            self._held[thread_id] = asyncio.Event()

    def let_go(self, *thread_ids: str) -> None:
        for thread_id in thread_ids or list(self._held):
            self._held.pop(thread_id).set()

    async def have_sent(self, *thread_ids: str) -> None:
        """Wait until these were sent, alone or in a group."""
        async with self._changed:
            await self._changed.wait_for(lambda: set(thread_ids) <= {m.thread_id for one in self.sent for m in one})

    async def have_been_sent(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.sent) >= count)

    async def _pass(self, *members: Member) -> None:
        self.sent.append(list(members))
        self.senders.append((asyncio.current_task(), whose.get()))
        async with self._changed:
            self._changed.notify_all()
        for member in members:
            if member.thread_id in self._held:
                await self._held[member.thread_id].wait()
        if self.outage:
            raise Broken("out of reach")
        if self.told_to_all is not None:
            raise self.told_to_all from Broken("for the same cause")

    async def commit(self, commit: Commit) -> Outcome:
        await self._pass(commit)
        return await super().commit(commit)

    async def put_writes(self, task: TaskWrites) -> None:
        await self._pass(task)
        await super().put_writes(task)

    async def commit_together(self, group: Sequence[Member]) -> list[Outcome | None]:
        await self._pass(*group)
        assert len({member.thread_id for member in group}) == len(group)
        outcomes: list[Outcome | None] = []
        for number, member in enumerate(group):
            if self.fails and number == 1:
                raise Broken("in the midst of it")
            if member.thread_id in self.skipped:
                outcomes.append(None)
            elif isinstance(member, Commit):
                outcomes.append(await super().commit(member))
            else:
                await super().put_writes(member)
                outcomes.append(Outcome(Verdict.COMMITTED))
        return outcomes

    async def close(self) -> None:
        self.closed = True

    @property
    def groups(self) -> list[list[str]]:
        return [[member.thread_id for member in one] for one in self.sent]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def checkpointer(engine: Engine) -> Checkpointer:
    return Checkpointer(CheckpointStore(engine))


def state(text: str = "hello") -> AgentState:
    return AgentState(agent_id="a").with_message(Message.user(text))


def saves(checkpointer: Checkpointer, *thread_ids: str) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(checkpointer.save(state(name), name, f"in {name}")) for name in thread_ids]


async def with_both_lanes_held(engine: Engine, checkpointer: Checkpointer) -> list[asyncio.Task[str]]:
    engine.hold("lane 1", "lane 2")
    held = saves(checkpointer, "lane 1", "lane 2")
    await engine.have_sent("lane 1", "lane 2")
    return held


def names(count: int) -> list[str]:
    return [f"t{number:02}" for number in range(count)]


async def test_many_that_wait_share_a_few_commits(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    waiting = saves(checkpointer, *names(32))
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *waiting)
    assert sum(map(len, engine.sent[2:])) == 32
    assert len(engine.sent[2:]) <= 8
    assert max(map(len, engine.sent)) == together.MOST_MEMBERS
    for name in names(32):
        assert await checkpointer.list_checkpoints(name) == [f"in {name}"]


async def test_many_on_sqlite_share_a_few_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where SQLite does it."""
    begun = 0
    run = SQLiteEngine._run

    async def counted(self: SQLiteEngine, worker: Any, job: Any) -> Any:
        nonlocal begun
        begun += worker is self._writer
        return await run(self, worker, job)

    async with get_checkpointer(f"sqlite:{tmp_path / 'x.db'}") as handle:
        await asyncio.gather(*saves(handle, *names(32)))
        states = [await handle.load(name) for name in names(32)]
        monkeypatch.setattr(SQLiteEngine, "_run", counted)
        grown = [one.with_message(Message.user("more")) for one in states if one is not None]
        await asyncio.gather(*(handle.save(one, name) for one, name in zip(grown, names(32), strict=True)))
        assert begun <= 8
        assert [await handle.load(name) for name in names(32)] == grown


async def test_a_save_that_finds_a_lane_free_is_sent_by_its_caller(engine: Engine, checkpointer: Checkpointer) -> None:
    whose.set("mine")
    before = asyncio.all_tasks()
    engine.hold("a")
    first = asyncio.create_task(checkpointer.save(state(), "a"))
    await engine.have_sent("a")
    await checkpointer.save(state(), "b")
    assert engine.senders == [(first, "mine"), (asyncio.current_task(), "mine")]
    assert asyncio.all_tasks() - before == {first}
    engine.let_go()
    await first


async def test_a_save_is_in_no_queue_if_nobody_else_saves(engine: Engine, checkpointer: Checkpointer) -> None:
    """Not one turn of the event loop passes until the engine has it."""
    await checkpointer.save(state(), "a")
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "passed")
    saving = checkpointer.save(state("again"), "a")
    engine.hold("a")
    with pytest.raises(StopIteration):
        while len(engine.sent) < 2:
            saving.send(None)
        raise StopIteration
    assert not turns
    saving.close()


async def test_saves_of_a_thread_keep_their_order(engine: Engine, checkpointer: Checkpointer) -> None:
    base = state()
    await checkpointer.save(base, "t", "first")
    held = await with_both_lanes_held(engine, checkpointer)
    sent = [
        asyncio.create_task(checkpointer.save(base.with_message(Message.user(str(number))), "t", f"c{number}"))
        for number in range(6)
    ]
    others = saves(checkpointer, *names(4))
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *sent, *others)
    assert await checkpointer.list_checkpoints("t") == [*(f"c{number}" for number in reversed(range(6))), "first"]


async def test_a_group_is_limited_in_text(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    texts = dict.fromkeys(names(5), "x" * 300000)
    tasks = [asyncio.create_task(checkpointer.save(state(text), name)) for name, text in texts.items()]
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *tasks)
    assert [len(group) for group in engine.groups[2:]] == [3, 2]


async def test_a_large_save_goes_beside_the_lanes(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    await checkpointer.save(state("x" * (together.MOST_TEXT + 1)), "large")
    engine.hold("larger")
    larger = asyncio.create_task(checkpointer.save(state("x" * (together.MOST_TEXT + 1)), "larger", "first"))
    await engine.have_sent("larger")
    after = asyncio.create_task(checkpointer.save(state("x" * (together.MOST_TEXT + 1)), "larger", "second"))
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, larger, after)
    assert all(len(group) == 1 for group in engine.groups)
    assert await checkpointer.list_checkpoints("larger") == ["second", "first"]


async def test_refusals_are_told_to_those_that_are_refused(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    tasks: list[Awaitable[Any]] = [*saves(checkpointer, "a", "b")]
    tasks.append(asyncio.create_task(checkpointer.save(state(), "wrong", if_latest="never")))
    tasks += saves(checkpointer, "c")
    await asyncio.sleep(0)
    engine.let_go()
    answers = await asyncio.gather(*tasks, *held, return_exceptions=True)
    assert engine.groups[2] == ["a", "b", "wrong", "c"]
    assert [*answers[:2], answers[3]] == ["in a", "in b", "in c"]
    assert isinstance(answers[2], ConflictError)


async def test_whoever_was_skipped_is_sent_alone(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    engine.skipped = {"b"}
    a, b, c = saves(checkpointer, "a", "b", "c")
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(a, c, *held)
    assert engine.groups[2:] == [["a", "b", "c"], ["b"]]
    assert await b == "in b"
    assert engine.senders[3][0] is b


async def test_whoever_was_skipped_may_have_to_wait_for_long(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    engine.skipped = {"b"}
    a, b, c = saves(checkpointer, "a", "b", "c")
    await asyncio.sleep(0)
    engine.let_go()
    await engine.have_been_sent(3)
    engine.hold("b")
    await asyncio.gather(a, c, *held)
    await asyncio.gather(*saves(checkpointer, *names(40)))
    assert not b.done()
    engine.let_go()
    await b


async def test_after_a_failure_each_is_sent_alone(engine: Engine, checkpointer: Checkpointer) -> None:
    """One member was written, and nobody knows."""
    held = await with_both_lanes_held(engine, checkpointer)
    engine.fails = True
    tasks = [asyncio.create_task(checkpointer.save(state(name), name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    engine.let_go()
    answers = await asyncio.gather(*tasks)
    await asyncio.gather(*held)
    alone = [member for one in engine.sent[3:] for member in one]
    assert [commit.fresh_id for commit in alone if isinstance(commit, Commit)] == [False] * 3
    for name, answer in zip(("a", "b", "c"), answers, strict=True):
        assert await checkpointer.list_checkpoints(name) == [answer]


async def test_in_an_outage_everybody_has_an_error_of_his_own(engine: Engine, checkpointer: Checkpointer) -> None:
    await checkpointer.save(state(), "t")
    engine.outage = True
    answers = await asyncio.gather(
        *(checkpointer.save(state(), name) for name in names(300)),
        *(checkpointer.save(state(), "one thread") for _ in range(200)),
        return_exceptions=True,
    )
    assert all(isinstance(answer, BackendUnavailableError) for answer in answers)
    assert len({id(answer) for answer in answers}) == 500
    causes = {id(answer.__cause__) for answer in answers if isinstance(answer, BaseException)}
    assert len(causes) == 500
    engine.outage = False
    await asyncio.gather(*saves(checkpointer, *names(32)))


@pytest.mark.parametrize("told", [NothingCommitted, NotConfirmed])
async def test_a_group_that_knows_of_no_use_in_trying_again_is_told_so(
    engine: Engine, checkpointer: Checkpointer, told: type[Exception]
) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    waiting = saves(checkpointer, "a", "b", "c")
    await asyncio.sleep(0)
    engine.hold("a")
    engine.let_go("lane 1", "lane 2")
    await asyncio.gather(*held)
    await engine.have_sent("a", "b", "c")
    engine.told_to_all = told
    engine.let_go()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["for the same cause"] * 3
    assert len({id(answer) for answer in answers}) == 3
    assert all(isinstance(answer, BackendUnavailableError) for answer in answers)
    assert len(engine.sent) == 3
    engine.told_to_all = None
    await asyncio.gather(*saves(checkpointer, "a", "b", *names(20)))


async def test_nobody_waits_long_for_a_lane(engine: Engine, checkpointer: Checkpointer) -> None:
    """The lanes are held, for minutes as it seems. What waits goes all the same, still together."""
    held = await with_both_lanes_held(engine, checkpointer)
    await asyncio.gather(*saves(checkpointer, *names(20)))
    assert not any(task.done() for task in held)
    assert len(engine.sent) <= 8
    engine.let_go()
    await asyncio.gather(*held)


async def test_nobody_waits_for_ever_for_his_own_thread(
    engine: Engine, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "PATIENCE_IN_THREAD", 0.1)
    engine.hold("t")
    stuck = asyncio.create_task(checkpointer.save(state(), "t", "stuck"))
    await engine.have_sent("t")
    more = [asyncio.create_task(checkpointer.save(state(), "t", f"c{number}")) for number in range(3)]
    await engine.have_been_sent(4)
    engine.let_go()
    await asyncio.gather(stuck, *more)
    await asyncio.gather(*saves(checkpointer, *names(20)))


async def test_a_save_that_is_cancelled_while_it_waits_is_dropped(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    tasks = saves(checkpointer, "a", "b", "c", "b")
    await asyncio.sleep(0)
    tasks[1].cancel()
    tasks[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    engine.let_go()
    await asyncio.gather(tasks[0], tasks[2], *held)
    assert "b" not in {name for group in engine.groups for name in group}
    assert not await checkpointer.exists("b")


@pytest.mark.parametrize("others", [(), ("b", "c")])
async def test_a_save_that_is_cancelled_as_a_lane_becomes_free_is_dropped(
    engine: Engine, checkpointer: Checkpointer, others: Sequence[str]
) -> None:
    """Its caller has not been told yet."""
    held = await with_both_lanes_held(engine, checkpointer)
    a, *beside = saves(checkpointer, "a", *others)
    await asyncio.sleep(0)
    engine.let_go()
    a.cancel()
    await asyncio.gather(*held, *beside)
    with pytest.raises(asyncio.CancelledError):
        await a
    lanes = checkpointer.store._lanes_here
    assert lanes is not None
    assert (lanes.used, lanes.in_flight, lanes.waiting) == (0, {}, {})
    assert not await checkpointer.exists("a")


async def test_a_save_that_is_cancelled_on_its_way_is_nothing_to_the_others(
    engine: Engine, checkpointer: Checkpointer
) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    a, b, c = saves(checkpointer, "a", "b", "c")
    await asyncio.sleep(0)
    engine.hold("c")
    engine.let_go("lane 1", "lane 2")
    await engine.have_sent("a", "b", "c")
    b.cancel()
    with pytest.raises(asyncio.CancelledError):
        await b
    after = asyncio.create_task(checkpointer.save(state("more"), "b", "after"))
    await asyncio.sleep(0)
    engine.let_go()
    assert await asyncio.gather(a, c, after, *held) == ["in a", "in c", "after", "in lane 1", "in lane 2"]
    assert await checkpointer.list_checkpoints("b") == ["after", "in b"]


@pytest.mark.parametrize("skipped", [False, True])
async def test_a_turn_that_nobody_takes_is_passed_on(
    engine: Engine, checkpointer: Checkpointer, skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller is cancelled in the very moment at which it is told to go."""
    if skipped:
        engine.skipped = {"a"}
    held = await with_both_lanes_held(engine, checkpointer)
    a, *others = saves(checkpointer, *(("a", "b") if skipped else ("a",)))
    await asyncio.sleep(0)
    lanes = checkpointer.store._lanes_here
    assert lanes is not None
    (waiting,) = lanes.waiting["a"]
    go_on = lanes.go_on

    def interrupted() -> None:
        go_on()
        if waiting.answer.done():
            a.cancel()

    monkeypatch.setattr(lanes, "go_on", interrupted)
    engine.let_go()
    await asyncio.gather(*held, *others)
    with pytest.raises(asyncio.CancelledError):
        await a
    assert not await checkpointer.exists("a")
    assert (lanes.used, lanes.in_flight, lanes.waiting) == (0, {}, {})
    await asyncio.gather(*saves(checkpointer, "a", *names(20)))


async def test_a_group_that_is_cancelled_leaves_the_lanes_in_order(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    tasks = saves(checkpointer, "a", "b")
    await asyncio.sleep(0)
    engine.hold("a")
    engine.let_go("lane 1", "lane 2")
    await engine.have_sent("a", "b")
    sender = engine.senders[-1][0]
    assert sender is not None
    sender.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2
    engine.let_go()
    await asyncio.gather(*held, *saves(checkpointer, "a", "b", *names(20)))


async def test_pending_writes_join(engine: Engine, checkpointer: Checkpointer) -> None:
    await checkpointer.save(state(), "w", "c")
    held = await with_both_lanes_held(engine, checkpointer)
    tasks: list[Awaitable[Any]] = [*saves(checkpointer, "a", "b")]
    tasks.append(asyncio.create_task(checkpointer.put_writes("w", "c", "task", [("x", 1)])))
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*tasks, *held)
    assert engine.groups[-1] == ["a", "b", "w"]
    assert [write.value for write in await checkpointer.get_writes("w", "c")] == [1]


async def test_tasks_of_a_thread_do_not_wait_for_each_other(engine: Engine, checkpointer: Checkpointer) -> None:
    """What runs in parallel in a graph writes in parallel."""
    await checkpointer.save(state(), "w", "c")
    engine.hold("w")
    tasks = [asyncio.create_task(checkpointer.put_writes("w", "c", f"task {n}", [("x", n)])) for n in range(6)]
    await engine.have_been_sent(7)
    engine.let_go()
    await asyncio.gather(*tasks)
    assert [write.value for write in await checkpointer.get_writes("w", "c")] == [*range(6)]


async def test_a_group_runs_in_nobodys_context(engine: Engine, checkpointer: Checkpointer) -> None:
    """It would be told, and traced, as if it were the save of one of them."""
    whose.set("mine")
    held = await with_both_lanes_held(engine, checkpointer)
    engine.skipped = {"b"}
    tasks = saves(checkpointer, "a", "b")
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*tasks, *held)
    assert [context for _, context in engine.senders[2:]] == ["nobody's", "mine"]


async def test_closing_sends_what_waits(
    engine: Engine, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "CLOSING_SECONDS", 0.5)  # two are held until the end
    held = await with_both_lanes_held(engine, checkpointer)
    tasks = saves(checkpointer, *names(20))
    await asyncio.sleep(0)
    closing = asyncio.create_task(checkpointer.close())
    await engine.have_sent(*names(20))
    await closing
    assert engine.closed
    assert len(await asyncio.gather(*tasks)) == 20
    engine.let_go()
    await asyncio.gather(*held)
    await asyncio.gather(*saves(checkpointer, *names(20)))


async def test_a_log_of_items_that_is_cancelled_is_written_once(engine: Engine, checkpointer: Checkpointer) -> None:
    log = ItemLog(checkpointer.store, "log", "")
    await log.append([1])
    held = await with_both_lanes_held(engine, checkpointer)
    others = saves(checkpointer, "a", "b")
    growing = asyncio.create_task(log.append([2]))
    lanes = checkpointer.store._lanes_here
    assert lanes is not None
    while "log" not in lanes.waiting:  # noqa: ASYNC110 - it reads the log first, in as many turns as it likes
        await asyncio.sleep(0)
    engine.hold("b")
    engine.let_go("lane 1", "lane 2")
    await engine.have_been_sent(4)
    assert engine.groups[-1] == ["a", "b", "log"]
    growing.cancel()
    engine.let_go()
    with pytest.raises(asyncio.CancelledError):
        await growing
    await asyncio.gather(*others, *held)
    assert await ItemLog(checkpointer.store, "log", "").read() == [1, 2]


def test_a_loop_that_ends_takes_nobody_along(engine: Engine, checkpointer: Checkpointer) -> None:
    """What waits there ends with it; the next loop begins anew."""

    async def leave_in_the_midst() -> None:
        await with_both_lanes_held(engine, checkpointer)
        saves(checkpointer, *names(5))
        await asyncio.sleep(0)

    async def go_on() -> None:
        engine.let_go()
        await asyncio.gather(*saves(checkpointer, *names(5)))
        assert await checkpointer.list_threads() == names(5)

    asyncio.run(leave_in_the_midst())
    asyncio.run(go_on())


def test_several_loops_have_lanes_of_their_own(tmp_path: Path) -> None:
    handle = get_checkpointer(f"sqlite:{tmp_path / 'x.db'}")
    start = threading.Barrier(3)
    failures: list[BaseException] = []

    async def save_many(part: str) -> None:
        start.wait()
        for _ in range(3):
            await asyncio.gather(*(handle.save(state(), f"{part} {name}") for name in names(12)))

    def run(part: str) -> None:
        try:
            asyncio.run(save_many(part))
        except BaseException as error:  # noqa: BLE001 - for the test to show
            failures.append(error)

    threads = [threading.Thread(target=run, args=(part,)) for part in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures

    async def check() -> None:
        async with handle:
            for part in "abc":
                for name in names(12):
                    assert len(await handle.list_checkpoints(f"{part} {name}")) == 3

    asyncio.run(check())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_forked_child_has_free_lanes(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    waiting = saves(checkpointer, *names(5))
    await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            engine._held = {}
            engine._changed = asyncio.Condition()
            asyncio.run(asyncio.wait_for(_save_in_child(checkpointer), 20))
            status = 0
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status == 0
    engine.let_go()
    await asyncio.gather(*held, *waiting)


async def _save_in_child(checkpointer: Checkpointer) -> None:
    await asyncio.gather(*saves(checkpointer, *names(20)))
    await checkpointer.close()


async def test_saves_that_come_over_http_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned by the client, or here."""
    sizes: list[int] = []
    commit_together = SQLiteEngine.commit_together

    async def noted(self: SQLiteEngine, group: Sequence[Member]) -> Any:
        sizes.append(len(group))
        return await commit_together(self, group)

    monkeypatch.setattr(SQLiteEngine, "commit_together", noted)
    async with get_checkpointer(f"sqlite:{tmp_path / 'x.db'}") as store:
        app = create_app(store)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            body = {
                "checkpoint_id": "c",
                "rev": "r" * 24,
                "created_at": "2026-01-02T03:04:05+00:00",
                "metadata": {},
                "head": {"n": 1},
                "manifest": [],
            }
            answers = await asyncio.gather(
                *(client.post(f"/threads/{name}/commits", json=body) for name in names(16)),
                *(client.put(f"/threads/p{name}/checkpoints/c/writes", json=_writes()) for name in names(16)),
            )
        assert all(answer.is_success for answer in answers), [answer.text for answer in answers]
        assert sum(sizes) >= 20
        assert await store.list_threads(None) == names(16)


def _writes() -> dict[str, Any]:
    return {"task_id": "task", "writes": [["x", 1]]}


async def test_closing_waits_until_everything_has_come_back(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    waiting = [asyncio.create_task(checkpointer.save(state(f"{n}"), "t", f"c{n}")) for n in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(checkpointer.close())
    await asyncio.sleep(0)
    engine.let_go()
    await closing
    assert all(task.done() for task in (*held, *waiting))
    assert await checkpointer.list_checkpoints("t") == ["c4", "c3", "c2", "c1", "c0"]


async def test_what_was_left_out_of_a_group_looks_for_itself(engine: Engine, checkpointer: Checkpointer) -> None:
    engine.skipped = {"b"}
    held = await with_both_lanes_held(engine, checkpointer)
    waiting = [asyncio.create_task(checkpointer.save(state(), name)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *waiting)
    (alone,) = [one[0] for one in engine.sent if len(one) == 1 and one[0].thread_id == "b"]
    assert isinstance(alone, Commit)
    assert not alone.fresh_id, "a server may have carried out what it answered with an error"


async def test_a_cancellation_inside_of_an_engine_is_nobodys(
    engine: Engine, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(_group: Sequence[Member]) -> list[Outcome | None]:
        raise asyncio.CancelledError

    monkeypatch.setattr(engine, "commit_together", cancelled)
    held = await with_both_lanes_held(engine, checkpointer)
    waiting = saves(checkpointer, "a", "b", "c")
    await asyncio.sleep(0)
    engine.let_go()
    assert await asyncio.gather(*held, *waiting) == ["in lane 1", "in lane 2", "in a", "in b", "in c"]


async def test_lanes_that_are_held_for_long_slow_nobody_down(
    engine: Engine, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "PATIENCE", 0.01)
    held = await with_both_lanes_held(engine, checkpointer)
    lanes = checkpointer.store._lanes_here
    assert lanes is not None
    await asyncio.gather(*saves(checkpointer, "a", "b"))
    assert lanes.allowed == 3
    monkeypatch.setattr(together, "PATIENCE", 60)
    await asyncio.gather(*saves(checkpointer, "c", "d"))  # which would wait for the timer without the third lane
    engine.let_go()
    await asyncio.gather(*held)
    assert (lanes.used, lanes.allowed) == (0, 2)


async def test_writes_of_a_task_come_after_earlier_ones(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    engine.hold("t")
    first = asyncio.create_task(checkpointer.put_writes("t", "c", "task", [("a", "old")]))
    other = saves(checkpointer, "u")
    await asyncio.sleep(0)
    engine.let_go("lane 1")
    await engine.have_sent("t")
    first.cancel()
    second = asyncio.create_task(checkpointer.put_writes("t", "c", "task", [("a", "new")]))
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *other, second)
    assert [write.value for write in await checkpointer.get_writes("t", "c")] == ["new"]


async def test_a_save_whose_caller_is_gone_does_not_come_after_a_deletion(
    engine: Engine, checkpointer: Checkpointer
) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    engine.hold("t")
    given_up, *other = saves(checkpointer, "t", "u")
    await asyncio.sleep(0)
    engine.let_go("lane 1")
    await engine.have_sent("t")
    given_up.cancel()
    deleting = asyncio.create_task(checkpointer.delete("t"))
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *other)
    assert await deleting is True
    assert not await checkpointer.exists("t")


async def test_a_group_counts_everything_that_is_sent(engine: Engine, checkpointer: Checkpointer) -> None:
    held = await with_both_lanes_held(engine, checkpointer)
    metadata = {"text": "x" * 600_000}
    waiting = [asyncio.create_task(checkpointer.save(state(), name, metadata=metadata)) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    engine.let_go()
    await asyncio.gather(*held, *waiting)
    assert max(map(len, engine.sent)) == 1
