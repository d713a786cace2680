"""Whose turn it is in a thread: a newcomer is refused, waits, takes over or forks; and who is slow is not gone."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from locus.agent import Agent, AgentConfig, HumanInTheLoop, create_agent, create_deep_agent
from locus.agent.leases import PLACE, lease_facts, new_lease_id, release, renewal
from locus.agent.recovery import UNKNOWN, unknown
from locus.core.events import Event, TerminateEvent, ThinkingEvent, ToolStartEvent, WaitingEvent
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    ConfigurationError,
    ConflictError,
    ThreadBusyError,
    ThreadTakenOverError,
)
from locus.memory.backends import MemoryCheckpointer, StorageBackendAdapter
from locus.memory.checkpointer import Checkpointer
from locus.memory.runtime import leases
from locus.memory.runtime.leases import SKEW, Lease, Watch
from locus.models import MockModel, ModelUnavailableError
from locus.tools import Tool, tool
from tests.agent.support import Effects, Following, Step, a_call, asks, is_sound, loaded, results_told, spoken, steps_of
from tests.backends.strangers import SyncStore

WAITS = asks(a_call("hold", "c1"))


class Holding:
    """A tool that is under way until it is let go. It must not be repeated."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.made = 0

    def tool(self) -> Tool[..., Any]:
        @tool
        async def hold() -> str:
            """Take long."""
            self.made += 1
            self.begun.set()
            await self.go_on.wait()
            return "held"

        return hold

    async def under_way(self, place: Any, text: str = "first", **settings: Any) -> asyncio.Task[Any]:
        """A run that is in the middle of this tool."""
        agent = Agent(model=Following(WAITS, results_told), tools=[self.tool()], checkpointer=place, **settings)
        run = asyncio.create_task(agent.invoke(text, "t"))
        await self.begun.wait()
        return run


@pytest.fixture
def holding() -> Holding:
    return Holding()


def newcomer(place: Any, *steps: Step, **settings: Any) -> Agent:
    return Agent(model=Following(*(steps or ("second answer",))), checkpointer=place, **settings)


class Counted(Checkpointer):
    """A handle that counts what is written."""

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store.store)
        self.saves = 0
        self.leases: list[Any] = []
        self.written = asyncio.Event()
        self.broken = False

    async def save(self, *args: Any, **options: Any) -> str:
        self.saves += 1
        return await super().save(*args, **options)

    async def put_writes(
        self, thread_id: str, checkpoint_id: str, task_id: str, writes: Sequence[tuple[str, Any]], **options: Any
    ) -> None:
        if checkpoint_id == PLACE:
            if self.broken:
                raise BackendUnavailableError("no route to the store")
            self.leases.append(writes[0][1])
            self.written.set()
        await super().put_writes(thread_id, checkpoint_id, task_id, writes, **options)


class Looking(Checkpointer):
    """A handle that tells when it has looked at the lease."""

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store.store)
        self.has_looked = asyncio.Event()

    async def get_writes(self, *args: Any, **options: Any) -> Any:
        found = await super().get_writes(*args, **options)
        self.has_looked.set()
        return found


async def say(place: Checkpointer, value: Any) -> None:
    await place.put_writes("t", PLACE, PLACE, [(PLACE, value)], namespace=PLACE)


async def refused_at_a_sign_of_life(place: Checkpointer, agent: Agent) -> None:
    """Resume, and be refused as soon as the lease that the thread has is renewed."""
    handle = agent.checkpointer
    assert isinstance(handle, Looking)
    resumed = asyncio.create_task(agent.resume_invoke("t"))
    await handle.has_looked.wait()
    assert not resumed.done()
    lease = (await place.get_metadata("t") or {})["lease"]
    await say(place, renewal(lease["id"], lease["seconds"]))
    with pytest.raises(ThreadBusyError):
        await resumed


async def texts_of(place: Checkpointer, thread_id: str = "t") -> list[str]:
    return [text for _, text in spoken(await loaded(place, thread_id))]


# A newcomer finds a run under way.


async def test_a_newcomer_is_refused_and_the_run_goes_on(store: Checkpointer, holding: Holding) -> None:
    run = await holding.under_way(store)
    with pytest.raises(ThreadBusyError, match="another run is under way in this thread") as caught:
        await newcomer(store).invoke("second", "t")
    assert isinstance(caught.value, ConflictError)
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 1  # it may be done at any moment
    holding.go_on.set()
    assert (await run).message == "hold=held"
    assert await texts_of(store) == ["first", "", "held", "hold=held"]
    assert (await newcomer(store).invoke("second", "t")).message == "second answer"
    assert holding.made == 1


async def test_when_a_sign_of_life_is_overdue_the_refusal_says_when_the_lease_ends(
    memory: MemoryCheckpointer, holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await holding.under_way(memory, lease_seconds=300)
    began = time.time()
    for silent, retry_after in ((90, 1), (110, 195), (299, 6)):
        with monkeypatch.context() as patched, pytest.raises(ThreadBusyError) as caught:
            patched.setattr("locus.memory.runtime.leases.time.time", lambda silent=silent: began + silent)
            await newcomer(memory).invoke("second", "t")
        assert retry_after - 1 <= (caught.value.retry_after or 0) <= retry_after
    holding.go_on.set()
    await run


async def test_a_resume_says_that_it_waits(memory: MemoryCheckpointer, holding: Holding) -> None:
    run = await holding.under_way(memory, lease_seconds=600)
    place = Looking(memory)
    events = newcomer(place).resume("t")
    first = await anext(events)
    assert isinstance(first, WaitingEvent)
    assert (first.run_id, first.thread_id) == ("", "t")
    assert 590 < first.seconds <= 605
    lease = (await memory.get_metadata("t") or {})["lease"]
    await say(memory, renewal(lease["id"], lease["seconds"]))
    with pytest.raises(ThreadBusyError):
        await anext(events)
    patient = newcomer(memory, on_conflict="wait").run("second", "t")
    assert isinstance(await anext(patient), WaitingEvent)
    holding.go_on.set()
    await run
    told = [type(event).__name__ async for event in patient]
    assert told[-1] == "TerminateEvent"
    assert "WaitingEvent" not in told


async def test_the_refusal_names_nobody(memory: MemoryCheckpointer, holding: Holding) -> None:
    run = await holding.under_way(memory, "my password is xyzzy", agent_id="someone")
    entry = (await memory.history("t"))[0]
    with pytest.raises(ThreadBusyError) as caught:
        await newcomer(memory).invoke("second", "t")
    for secret in ("xyzzy", "someone", "'t'", entry.checkpoint_id, entry.metadata["run_id"]):
        assert secret not in str(caught.value)
    holding.go_on.set()
    await run


async def test_a_run_that_is_under_way_is_not_resumed(store: Checkpointer, holding: Holding) -> None:
    """Who resumes waits for a sign of life."""
    run = await holding.under_way(store, lease_seconds=600)
    for mode in ("reject", "fork"):
        await refused_at_a_sign_of_life(store, newcomer(Looking(store), on_conflict=mode))
    with pytest.raises(ThreadBusyError):
        await newcomer(store, on_conflict="wait").resume_invoke("t", "approve")
    holding.go_on.set()
    assert (await run).message == "hold=held"
    assert holding.made == 1


async def test_of_two_who_resume_only_one_asks_the_model(memory: MemoryCheckpointer) -> None:
    """Nothing is to be called, so nothing else would keep them apart before the answer."""
    broken = Agent(model=MockModel(script=[ModelUnavailableError("overloaded")]), checkpointer=memory)
    with pytest.raises(ModelUnavailableError):
        await broken.invoke("hello", "t")
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def think(*_: Any) -> str:
        asked.set()
        await go_on.wait()
        return "here"

    thinker = Agent(model=MockModel(script=[think]), checkpointer=memory, lease_seconds=600)
    first = asyncio.create_task(thinker.resume_invoke("t"))
    await asked.wait()
    model = Following("never")
    await refused_at_a_sign_of_life(memory, Agent(model=model, checkpointer=Looking(memory)))
    assert model.asked == []
    go_on.set()
    assert (await first).message == "here"
    assert await steps_of(memory, "t") == ["input", "resumed", "answer"]


@pytest.mark.parametrize("mode", ["wait", "queue"])
async def test_a_newcomer_may_wait_for_the_end(mode: str, store: Checkpointer, holding: Holding) -> None:
    run = await holding.under_way(store)
    handle = Looking(store)
    second = asyncio.create_task(newcomer(handle, on_conflict=mode).invoke("second", "t"))
    await handle.has_looked.wait()
    assert not second.done()
    holding.go_on.set()
    await asyncio.gather(run, second)
    assert await texts_of(store) == ["first", "", "held", "hold=held", "second", "second answer"]


async def test_waiting_has_a_bound(memory: MemoryCheckpointer, holding: Holding) -> None:
    run = await holding.under_way(memory)
    with pytest.raises(
        ThreadBusyError, match=r"another run is still under way after 0\.05 s of waiting in this thread"
    ):
        await newcomer(memory, on_conflict="wait", wait_seconds=0.05).invoke("second", "t")
    with pytest.raises(ThreadBusyError, match=r"after 0\.05 s"):
        await newcomer(memory, on_conflict="wait", wait_seconds=0.05).resume_invoke("t")
    holding.go_on.set()
    assert (await run).message == "hold=held"


async def test_a_newcomer_may_take_over(store: Checkpointer, holding: Holding) -> None:
    run = await holding.under_way(store)
    second = newcomer(store, on_conflict="take_over", tools=[holding.tool()])
    result = await second.invoke("second", "t")
    assert result.message == "second answer"
    holding.go_on.set()
    with pytest.raises(ThreadTakenOverError, match=r"another worker has taken this thread over.*to be the latest"):
        await run
    told = unknown("taken_over")
    assert "another worker took the conversation over" in told
    assert await texts_of(store) == ["first", "", told, "second", "second answer"]
    assert holding.made == 1


async def test_taking_over_does_not_give_up_when_the_other_saves_first(memory: MemoryCheckpointer) -> None:
    class Overtaken(Checkpointer):
        """The thread has grown between its load and its first saves."""

        left = 3

        async def save(self, *args: Any, **options: Any) -> str:
            if self.left:
                self.left -= 1
                await memory.save(AgentState(), "t")
            return await super().save(*args, **options)

    result = await newcomer(Overtaken(memory.store), on_conflict="take_over").invoke("second", "t")
    assert result.message == "second answer"


async def test_a_newcomer_may_go_on_in_a_fork(store: Checkpointer, holding: Holding) -> None:
    await newcomer(store, "hello").invoke("before", "t")
    run = await holding.under_way(store)
    result = await newcomer(store, on_conflict="fork").invoke("second", "t")
    assert result.thread_id is not None
    assert result.thread_id.startswith("t~")
    holding.go_on.set()
    assert (await run).thread_id == "t"
    assert await texts_of(store) == ["before", "hello", "first", "", "held", "hold=held"]
    assert await texts_of(store, result.thread_id) == ["before", "hello", "second", "second answer"]
    assert (await newcomer(store).invoke("more", result.thread_id)).message == "second answer"


async def test_a_fork_of_the_first_run_of_a_thread_begins_with_nothing(
    memory: MemoryCheckpointer, holding: Holding
) -> None:
    run = await holding.under_way(memory)
    result = await newcomer(memory, on_conflict="fork").invoke("second", "t")
    assert await texts_of(memory, str(result.thread_id)) == ["second", "second answer"]
    holding.go_on.set()
    await run


def test_raise_is_deprecated_and_names_what_replaces_it(memory: MemoryCheckpointer) -> None:
    for make in (AgentConfig, Agent, create_agent):
        with pytest.warns(DeprecationWarning, match='use "reject".*or "take_over"') as caught:
            make(model=Following("x"), on_conflict="raise")
        assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert AgentConfig().on_conflict == "reject"
        assert AgentConfig(on_conflict="queue").on_conflict == "wait"


async def test_raise_stays_as_it_is(memory: MemoryCheckpointer, holding: Holding) -> None:
    """The later run wins, and the earlier one hears of it when it saves."""
    with pytest.warns(DeprecationWarning, match="on_conflict"):
        run = await holding.under_way(memory, on_conflict="raise")
    with pytest.warns(DeprecationWarning, match="on_conflict"):
        second = newcomer(memory, on_conflict="raise", tools=[holding.tool()])
    assert (await second.invoke("second", "t")).message == "second answer"
    holding.go_on.set()
    with pytest.raises(ConflictError):
        await run


# A run that is cut off frees its thread at once.


async def cancelled(place: Any, holding: Holding) -> None:
    run = await holding.under_way(place)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def left_stream(place: Any, holding: Holding) -> None:
    agent = Agent(model=Following(WAITS), tools=[holding.tool()], checkpointer=place)
    async with aclosing(agent.run("first", "t")) as events:
        async for _ in events:
            if holding.begun.is_set():
                break
            await asyncio.sleep(0)


async def failed_model(place: Any, holding: Holding) -> None:
    agent = Agent(model=MockModel(script=[ModelUnavailableError("overloaded")]), checkpointer=place)
    with pytest.raises(ModelUnavailableError):
        await agent.invoke("first", "t")


async def broken_listener(place: Any, holding: Holding) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, ThinkingEvent):
            raise RuntimeError("the browser is gone")

    with pytest.raises(RuntimeError):
        await newcomer(place).invoke("first", "t", on_event=listen)


@pytest.mark.parametrize("cut_off", [cancelled, left_stream, failed_model, broken_listener])
async def test_the_next_message_does_not_wait_for_a_run_that_is_over(
    cut_off: Any, store: Checkpointer, holding: Holding
) -> None:
    await cut_off(store, holding)
    result = await newcomer(store, tools=[holding.tool()]).invoke("second", "t")
    assert result.message == "second answer"
    assert is_sound(result.state.messages)
    assert [text for who, text in spoken(result.state) if who == "user"] == ["first", "second"]


@pytest.mark.parametrize("cut_off", [cancelled, left_stream, failed_model, broken_listener])
async def test_nor_does_a_resume(cut_off: Any, memory: MemoryCheckpointer, holding: Holding) -> None:
    await cut_off(memory, holding)
    agent = newcomer(memory, tools=[holding.tool()], wait_seconds=0.05)
    assert (await agent.resume_invoke("t")).message == "second answer"


async def test_a_run_that_is_cancelled_again_and_again_is_cancelled_once(store: Checkpointer, holding: Holding) -> None:
    """That is how anyio cancels, and so how web frameworks end the stream of a client that is gone."""
    run = await holding.under_way(store)
    while not run.done():
        run.cancel()
        await asyncio.sleep(0)
    assert run.cancelled()
    (write,) = await store.get_writes("t", PLACE, namespace=PLACE)
    assert write.value["ended"] == "cancelled"
    assert (await newcomer(store, tools=[holding.tool()]).invoke("second", "t")).message == "second answer"


async def test_the_thread_says_that_it_was_cancelled(store: Checkpointer, holding: Holding) -> None:
    await cancelled(store, holding)
    result = await newcomer(store, tools=[holding.tool()]).invoke("second", "t")
    told = unknown("cancelled")
    assert "the run was cancelled" in told
    assert [text for _, text in spoken(result.state)] == ["first", "", told, "second", "second answer"]


async def test_a_person_is_asked_first_and_the_thread_still_says_so(
    memory: MemoryCheckpointer, holding: Holding
) -> None:
    await cancelled(memory, holding)
    agent = newcomer(memory, WAITS, results_told, tools=[holding.tool()], unknown_outcome="ask")
    assert (await agent.resume_invoke("t")).stop_reason == "interrupt"
    result = await agent.resume_invoke("t", "skip")
    assert result.message == f"hold={unknown('cancelled')}"
    assert [key for key in result.state.metadata if key.startswith("locus:")] == []


async def test_why_a_run_was_cut_off_is_kept_beside_the_thread(memory: MemoryCheckpointer, holding: Holding) -> None:
    for cut_off, ended in (
        (failed_model, "model_error"),
        (broken_listener, "stopped"),
        (cancelled, "cancelled"),
    ):
        await cut_off(memory, holding)
        (write,) = await memory.get_writes("t", PLACE, namespace=PLACE)
        assert write.value["ended"] == ended


async def test_a_model_that_fails_while_its_text_is_told_is_not_to_blame(memory: MemoryCheckpointer) -> None:
    """The listener fails, not the model."""

    def listen(event: Event) -> None:
        if type(event).__name__ == "ModelChunkEvent":
            raise RuntimeError("the browser is gone")

    with pytest.raises(RuntimeError):
        await Agent(model=MockModel(responses=["hello there"]), checkpointer=memory).invoke(
            "first", "t", on_event=listen
        )
    (write,) = await memory.get_writes("t", PLACE, namespace=PLACE)
    assert write.value["ended"] == "stopped"


async def test_a_store_that_fails_then_does_not_hide_the_error(memory: MemoryCheckpointer, holding: Holding) -> None:
    handle = Counted(memory)
    handle.broken = True
    await failed_model(handle, holding)
    with pytest.raises(ThreadBusyError):
        await newcomer(memory).invoke("second", "t")


# A worker that was killed says nothing. These threads are as it leaves them.

OVER_AT_ONCE = 1e-6
"""Seconds of a lease that is over before anybody can look at it."""


async def killed(place: Checkpointer, seconds: float = 30.0, thread_id: str = "t") -> str:
    """A thread whose worker is silent; returns its lease."""
    lease_id = new_lease_id(thread_id)
    facts = {"run_id": "r", "step": "input", "status": "running", "lease": lease_facts(lease_id, seconds)}
    await place.save(AgentState().with_message(Message.user("first")), thread_id, metadata=facts)
    return lease_id


async def is_free(place: Checkpointer) -> bool:
    """Whether a newcomer is not refused; it changes nothing."""

    class Stops(Checkpointer):
        async def save(self, *args: Any, **options: Any) -> str:
            raise KeyError("far enough")

    try:
        await newcomer(Stops(place.store)).invoke("second", "t")
    except KeyError:
        return True
    except ThreadBusyError:
        return False
    raise AssertionError("it came to an end")


async def test_a_killed_workers_thread_is_free_when_its_lease_is_over_and_not_before(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SKEW", 600.0)  # so that a machine that is very busy changes nothing
    lease_id = await killed(store, OVER_AT_ONCE)
    assert not await is_free(store)
    await say(store, {"id": lease_id, "until": time.time() - 1})
    assert not await is_free(store), "the clocks may differ by more than that"
    monkeypatch.setattr(leases, "SKEW", 0.0)
    await say(store, {"id": lease_id, "until": time.time() + 600})
    assert not await is_free(store)
    await say(store, {"id": lease_id, "until": time.time() - 1})
    assert await is_free(store)
    result = await newcomer(store).invoke("second", "t")
    assert await texts_of(store) == ["first", "second", result.message]


async def test_a_checkpoint_that_is_newer_than_a_renewal_counts(memory: MemoryCheckpointer) -> None:
    """A run that renews once, in a long answer, and saves often afterwards has no reason to renew again."""
    lease_id = await killed(memory, 600)
    await say(memory, {"id": lease_id, "until": time.time() - 3600})
    assert not await is_free(memory)


async def test_what_was_under_way_when_a_worker_was_killed_was_stopped(
    memory: MemoryCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SKEW", 0.0)
    lease_id = new_lease_id("t")
    facts = {"run_id": "r", "step": "calls", "status": "running", "lease": lease_facts(lease_id, OVER_AT_ONCE)}
    state = AgentState().with_message(Message.user("first")).with_message(WAITS)
    calls = await memory.save(state, "t", metadata=facts)
    await memory.put_writes("t", calls, "c1", [("locus:started", True)])
    await say(memory, {"id": lease_id, "until": 0})
    result = await newcomer(memory, tools=[Holding().tool()]).invoke("second", "t")
    assert unknown("stopped") == UNKNOWN
    assert "the run was stopped" in UNKNOWN
    assert [text for _, text in spoken(result.state)] == ["first", "", UNKNOWN, "second", "second answer"]


async def test_who_waits_for_a_killed_worker_goes_on_when_its_lease_is_over(memory: MemoryCheckpointer) -> None:
    """Whatever its clock said: the whole time of the lease has passed before the eyes of who waits."""
    lease_id = await killed(memory, 0.05)
    await say(memory, {"id": lease_id, "until": time.time() + 3600})
    agent = newcomer(memory, on_conflict="wait")
    assert (await asyncio.wait_for(agent.invoke("second", "t"), 30)).message == "second answer"


async def test_a_resume_waits_until_it_is_sure_that_the_worker_is_dead(memory: MemoryCheckpointer) -> None:
    await killed(memory, 0.05)
    assert (await asyncio.wait_for(newcomer(memory).resume_invoke("t"), 30)).message == "second answer"
    await killed(memory, 600)
    with pytest.raises(ThreadBusyError, match=r"after 0\.05 s"):
        await newcomer(memory, wait_seconds=0.05).resume_invoke("t")


@pytest.mark.parametrize(
    "lease",
    [
        None,
        "lease",
        [],
        {},
        {"id": "x" * 32, "seconds": 30.0},
        {"id": None, "seconds": 30.0},
        {"seconds": 30.0},
        *({"id": "right", "seconds": seconds} for seconds in (None, "30", True, 0, -1, 3601, 1e300, 10**400)),
    ],
)
async def test_a_lease_that_makes_no_sense_stands_in_nobodys_way(lease: Any, memory: MemoryCheckpointer) -> None:
    if isinstance(lease, dict) and lease.get("id") == "right":
        lease = {**lease, "id": new_lease_id("t")}
    await memory.save(AgentState(), "t", metadata={"step": "input", "status": "running", "lease": lease})
    assert await is_free(memory)


@pytest.mark.parametrize("said", [None, 7, "ended", [], {}, {"until": "later"}, {"until": 10**400}, {"until": True}])
async def test_what_is_said_of_a_lease_may_be_anything(said: Any, memory: MemoryCheckpointer) -> None:
    lease_id = await killed(memory)
    await say(memory, {"id": lease_id, **said} if isinstance(said, dict) else said)
    assert not await is_free(memory)


async def test_what_is_said_of_another_lease_does_not_count(memory: MemoryCheckpointer) -> None:
    await killed(memory)
    for value in (release(new_lease_id("t"), "complete"), {"ended": "complete"}, {"until": 0}):
        await say(memory, value)
        assert not await is_free(memory)


def test_a_lease_lasts_by_its_writers_clock_or_before_the_eyes_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch, lease = Watch(), Lease(30.0, 1_020.0)
    assert watch.seconds_left("a", lease) == 20 + SKEW
    now += 20
    assert watch.seconds_left("a", lease) == SKEW
    now += SKEW
    assert watch.seconds_left("a", lease) == 0
    ahead = Lease(30.0, 99_999.0)
    assert watch.seconds_left("b", ahead) == 30
    now += 29
    assert watch.seconds_left("b", ahead) == 1
    assert watch.seconds_left("c", ahead) == 30, "it has saved"
    now += 29
    assert watch.seconds_left("c", Lease(30.0, 99_998.0)) == 30, "it has renewed"
    now += 30
    assert watch.seconds_left("c", Lease(30.0, 99_998.0)) == 0


async def test_a_slow_tool_is_no_dead_worker(
    store: Checkpointer, holding: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each renewal replaces the one before, and is later."""
    monkeypatch.setattr(leases, "SKEW", 600.0)
    handle = Counted(store)
    run = await holding.under_way(handle, lease_seconds=0.15, tool_timeout=60)
    for _ in range(4):
        handle.written.clear()
        await handle.written.wait()
    (write,) = await store.get_writes("t", PLACE, namespace=PLACE)
    untils = [said["until"] for said in handle.leases]
    assert untils == sorted(set(untils))
    assert untils[-1] - untils[0] >= 0.14, "longer than the lease"
    assert write.value["until"] in untils
    with pytest.raises(ThreadBusyError):
        await newcomer(store).invoke("second", "t")
    holding.go_on.set()
    assert (await run).message == "hold=held"


async def test_a_renewal_that_fails_is_tried_again(memory: MemoryCheckpointer, holding: Holding) -> None:
    handle = Counted(memory)
    failed = asyncio.Event()

    class Broken(Counted):
        async def put_writes(self, *args: Any, **options: Any) -> None:
            if args[1] == PLACE and not failed.is_set():
                failed.set()
                raise BackendUnavailableError("no route to the store")
            await handle.put_writes(*args, **options)

    run = await holding.under_way(Broken(memory), lease_seconds=0.1)
    await failed.wait()
    await handle.written.wait()
    holding.go_on.set()
    assert (await run).message == "hold=held"


async def test_a_worker_that_lost_its_thread_writes_nothing_more(memory: MemoryCheckpointer, holding: Holding) -> None:
    """Neither a renewal nor a release: the thread was deleted, and nothing of it comes back."""
    handle = Counted(memory)
    run = await holding.under_way(handle, lease_seconds=0.15)
    await handle.written.wait()
    await memory.delete("t")
    holding.go_on.set()
    with pytest.raises(ThreadTakenOverError, match="this thread was deleted"):
        await run
    assert await memory.get_writes("t", PLACE, namespace=PLACE) == []
    assert memory.get_thread_ids() == []


# Where it is kept, and what it costs.


async def test_a_run_costs_no_save_and_one_small_write(store: Checkpointer, effects: Effects) -> None:
    handle = Counted(store)
    await newcomer(handle).invoke("hello", "t")
    assert (handle.saves, len(handle.leases)) == (2, 1)
    steps = asks(a_call("look", "c1", at="x")), results_told
    await newcomer(handle, *steps, tools=[effects.look()]).invoke("look", "t")
    assert (handle.saves, len(handle.leases)) == (2 + 4, 2)
    await newcomer(handle).resume_invoke("t")
    assert (handle.saves, len(handle.leases)) == (6, 2), "there was nothing to do"


async def test_a_thread_that_is_deleted_when_its_run_ends_does_not_come_back(memory: MemoryCheckpointer) -> None:
    async def forget(event: Event) -> None:
        if isinstance(event, TerminateEvent):
            await memory.delete("t")

    await newcomer(memory).invoke("hello", "t", on_event=forget)
    assert await memory.get_writes("t", PLACE, namespace=PLACE) == []
    assert memory.get_thread_ids() == []


class ConfiguredWrong(Checkpointer):
    """Keeps checkpoints, and nothing beside them."""

    async def put_writes(self, *args: Any, **options: Any) -> None:
        raise ConfigurationError("the server asks for TLS now")


async def test_a_run_ends_as_it_ends_if_its_thread_cannot_be_given_back(
    memory: MemoryCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_model(messages: object, tools: object) -> str:
        raise ModelUnavailableError("it is gone")

    agent = Agent(model=MockModel(script=[no_model]), checkpointer=ConfiguredWrong(memory.store))
    with pytest.raises(ModelUnavailableError):
        await agent.invoke("hello", "t")
    assert "ConfigurationError" in caplog.text


async def test_it_is_no_checkpoint_no_namespace_and_no_thread(store: Checkpointer, holding: Holding) -> None:
    run = await holding.under_way(store)
    await say(store, renewal("x", 30.0))
    for _ in range(2):
        assert await store.list_threads() == ["t"]
        every = await store.store.history("t", None, None, None)
        assert {entry.namespace for entry in every} == {"default"}
        assert len(every) == len(await store.history("t", None)) == len(await store.list_with_metadata())
        assert await store.search("lease") == []
        assert await store.copy_thread("t", "copy")
        assert await store.get_writes("copy", PLACE, namespace=PLACE) == []
        assert await store.delete("copy")
        holding.go_on.set()
        await run
    assert len(await store.get_writes("t", PLACE, namespace=PLACE)) == 1
    assert await store.delete("t")
    assert await store.get_writes("t", PLACE, namespace=PLACE) == []


@pytest.mark.parametrize("whole", [True, False])
async def test_a_copy_of_a_run_that_is_under_way_is_free(whole: bool, store: Checkpointer, holding: Holding) -> None:
    run = await holding.under_way(store)
    latest = (await store.list_checkpoints("t"))[0]
    assert await store.copy_thread("t", "copy", None if whole else latest)
    result = await newcomer(store, tools=[holding.tool()]).invoke("second", "copy")
    assert result.message == "second answer"
    holding.go_on.set()
    assert (await run).message == "hold=held"


async def test_an_answer_that_is_deleted_can_be_given_again_at_once(store: Checkpointer) -> None:
    """The checkpoint before it says that a run is under way, and that one is over."""
    agent = newcomer(store, "one", "two", wait_seconds=0.05)
    await agent.invoke("hello", "t")
    (answer,) = await store.list_checkpoints("t", limit=1)
    assert await store.delete("t", answer)
    assert (await agent.resume_invoke("t")).message == "one"


async def test_a_thread_that_was_saved_without_a_lease_is_free(memory: MemoryCheckpointer) -> None:
    await memory.save(AgentState(), "t", metadata={"run_id": "r", "step": "input", "status": "running"})
    assert await is_free(memory)


async def test_who_waits_for_a_run_without_a_lease_waits_until_it_is_silent_for_long(
    memory: MemoryCheckpointer,
) -> None:
    await memory.save(AgentState(), "t", metadata={"run_id": "r", "step": "input", "status": "running"})
    agent = newcomer(memory, on_conflict="wait", wait_seconds=0.05)
    assert (await asyncio.wait_for(agent.invoke("second", "t"), 30)).message == "second answer"


async def test_a_store_that_cannot_keep_it_says_so_to_who_asks_for_it() -> None:
    for place in (SyncStore(), StorageBackendAdapter(SyncStore())):
        with pytest.raises(CapabilityError, match='on_conflict="reject" needs a store that keeps pending writes'):
            await newcomer(place, on_conflict="reject").invoke("hello", "t")
        for settings in ({}, {"on_conflict": "take_over"}, {"on_conflict": "wait"}, {"on_conflict": "fork"}):
            assert (await newcomer(place, **settings).invoke("hello", "t")).message == "second answer"
    assert (await newcomer(None, on_conflict="reject").invoke("hello")).message == "second answer"


async def test_a_decision_is_taken_by_one_run(memory: MemoryCheckpointer, holding: Holding) -> None:
    """The second answer comes while the first is carried out, and is not kept for a later question."""
    gate = [HumanInTheLoop(["hold"])]
    model = Following(WAITS, results_told)
    agent = Agent(model=model, tools=[holding.tool()], checkpointer=memory, middleware=gate, on_conflict="wait")
    assert (await agent.invoke("first", "t")).stop_reason == "interrupt"
    run = asyncio.create_task(agent.resume_invoke("t", "approve"))
    await holding.begun.wait()
    with pytest.raises(ThreadBusyError):
        await agent.resume_invoke("t", "reject")
    holding.go_on.set()
    assert (await run).message == "hold=held"


async def test_a_sub_agent_goes_on_although_the_lease_of_its_thread_is_not_over(memory: MemoryCheckpointer) -> None:
    """Whoever has the thread of the call has that of the sub-agent, too."""
    clerk = Agent(model=Following("done by the clerk"))
    steps = asks(a_call("task", "c1", agent="clerk", prompt="do it")), results_told
    agent = create_deep_agent(Following(*steps), memory=memory, subagents={"clerk": clerk})
    await killed(memory, 600, "t/c1")
    assert (await agent.invoke("go", "t")).message == "task=done by the clerk"
    assert [text for _, text in spoken(await loaded(memory, "t/c1"))] == ["first", "done by the clerk"]


async def test_listening_to_events_a_newcomer_is_refused_at_any_step(
    memory: MemoryCheckpointer, effects: Effects
) -> None:
    refused: list[str] = []

    async def listen(event: Event) -> None:
        if type(event).__name__ in ("CheckpointSavedEvent", "ThinkingEvent") or isinstance(event, ToolStartEvent):
            status = (await memory.get_metadata("t") or {})["status"]
            if status == "running":
                with pytest.raises(ThreadBusyError):
                    await newcomer(memory).invoke("second", "t")
                refused.append(type(event).__name__)

    agent = newcomer(memory, asks(a_call("pay", "c1", amount=1)), "paid", tools=[effects.pay()])
    assert (await agent.invoke("first", "t", on_event=listen)).message == "paid"
    assert refused == [
        "CheckpointSavedEvent",
        "ThinkingEvent",
        "CheckpointSavedEvent",
        "ToolStartEvent",
        "CheckpointSavedEvent",
        "ThinkingEvent",
    ]
