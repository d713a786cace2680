"""Real flows of CrewAI on a store: persisted, forked, paused for a person, and resumed by somebody else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext

from locus.errors import CheckpointNotFoundError, CorruptCheckpointError, SerializationError
from locus.integrations.crewai import NAMESPACE, LocusFlowPersistence
from locus.memory.backends import sqlite_checkpointer
from locus.testing.stores import TestStore
from locus.threads import ThreadStore
from locus.threads.blocking import run
from tests.integrations.crewai.flows import Paper, Review, support


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'flows.db'}"


@pytest.fixture
def kept(url: str) -> Iterator[LocusFlowPersistence]:
    with LocusFlowPersistence(url) as kept:
        yield kept


def test_a_flow_goes_on_where_another_process_left_it(kept: LocusFlowPersistence, url: str) -> None:
    support(kept).kickoff(inputs={"id": "alice"})
    with LocusFlowPersistence(url) as another:
        flow = support(another)
        flow.kickoff(inputs={"id": "alice"})
        assert (flow.state.turns, len(flow.state.messages)) == (2, 4)
    states = list(kept.versions("alice").values())
    assert [(state["turns"], len(state["messages"])) for state in states] == [(2, 4), (2, 3), (1, 2), (1, 1)]
    assert kept.load_state("alice") == states[0]


async def test_a_flow_in_a_running_event_loop(kept: LocusFlowPersistence) -> None:
    flow = support(kept)
    await flow.kickoff_async(inputs={"id": "alice"})
    await flow.kickoff_async(inputs={"id": "alice"})
    assert kept.load_state("alice") == flow.state.model_dump()


def test_a_fork_leaves_its_source_alone(kept: LocusFlowPersistence) -> None:
    support(kept).kickoff(inputs={"id": "source"})
    before = kept.versions("source")
    fork = support(kept)
    fork.kickoff(restore_from_state_id="source")
    assert fork.state.turns == 2
    assert kept.versions("source") == before
    assert kept.load_state(fork.state.id) == fork.state.model_dump()


def test_a_flow_waits_for_a_person_in_another_process(kept: LocusFlowPersistence, url: str) -> None:
    pending = Review(persistence=kept).kickoff(inputs={"id": "r"})
    assert isinstance(pending, HumanFeedbackPending)
    with LocusFlowPersistence(url) as another:
        loaded = another.load_pending_feedback("r")
        assert loaded is not None
        assert loaded == ({"id": "r", "draft": {"title": "Tea", "parts": [1, 2.5, None]}}, pending.context)
        assert another.load_state("r") == loaded[0]
        resumed = Review.from_pending("r", another)
        assert resumed.resume("fine") == "published: fine"
    assert kept.load_pending_feedback("r") is None
    assert kept.load_state("r") == loaded[0]
    with pytest.raises(ValueError, match="No pending feedback"):
        Review.from_pending("r", kept)


def paused(message: str = "Well?") -> PendingFeedbackContext:
    return PendingFeedbackContext("r", "Review", "draft", {"at": date(2026, 1, 1)}, message)


def test_a_flow_waits_until_it_is_cleared(kept: LocusFlowPersistence) -> None:
    """A process may die between the save that follows the feedback and the end of the pause."""
    kept.save_state("r", "begin", {"n": 1})
    assert kept.load_pending_feedback("r") is None
    assert kept.load_pending_feedback("nobody") is None
    kept.clear_pending_feedback("nobody")
    kept.save_pending_feedback("r", paused("first"), {"n": 2})
    kept.save_pending_feedback("r", paused("second"), {"n": 3, "list": list(range(300))})
    kept.save_state("r", "draft", {"n": 4})
    kept.save_state("r", "more", {"n": 5})
    loaded = kept.load_pending_feedback("r")
    assert loaded is not None
    assert (loaded[0]["n"], len(loaded[0]["list"]), loaded[1].message) == (3, 300, "second")
    assert loaded[1].method_output == {"at": "2026-01-01"}
    assert kept.load_state("r") == {"n": 5}
    kept.clear_pending_feedback("r")
    kept.clear_pending_feedback("r")
    assert kept.load_pending_feedback("r") is None
    assert [state["n"] for state in kept.versions("r").values()] == [5, 5, 4, 3, 2, 1]
    kept.save_state("r", "end", {"n": 6})
    assert kept.load_pending_feedback("r") is None


def test_a_save_beside_the_end_of_a_pause_is_not_lost(kept: LocusFlowPersistence, url: str) -> None:
    with LocusFlowPersistence(url) as another:

        async def both() -> None:
            saves = [asyncio.to_thread(another.save_state, "r", "m", {"n": n}) for n in range(8)]
            await asyncio.gather(*saves[:4], asyncio.to_thread(kept.clear_pending_feedback, "r"), *saves[4:])

        kept.save_pending_feedback("r", paused(), {"n": -1})
        asyncio.run(both())
        assert kept.load_pending_feedback("r") is None
        assert {state["n"] for state in kept.versions("r", None).values()} == {*range(-1, 8)}


def test_a_pause_that_was_deleted_or_damaged_is_no_missing_one(kept: LocusFlowPersistence, url: str) -> None:
    async def work() -> None:
        store = ThreadStore.open(url)
        document = store.document("r", NAMESPACE)
        await document.save({"n": 1}, metadata={"paused_at": "gone"})
        await document.save({"n": 1}, checkpoint_id="odd", metadata={"paused_at": "odd"})
        await store.document("q", NAMESPACE).save({"n": 1}, metadata={"paused_at": "gone"})
        await store.close()

    run(work())
    with pytest.raises(CorruptCheckpointError, match="does not say what the flow waits for"):
        kept.load_pending_feedback("r")
    with pytest.raises(CheckpointNotFoundError, match="gone"):
        kept.load_pending_feedback("q")


def test_a_state_is_json_or_is_refused(kept: LocusFlowPersistence) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    kept.save_state("s", "m", {"at": at, "pair": (1, 2), "big": 2**70, "inner": {"deep": {"empty": []}}})
    assert kept.load_state("s") == {
        "at": "2026-01-01T00:00:00Z",
        "pair": [1, 2],
        "big": 2**70,
        "inner": {"deep": {"empty": []}},
    }
    refused: list[Any] = [
        {"x": object()},
        {"x": [math.nan]},
        {"x": b"\xff"},
        Paper(marks=[math.inf]),
        {"paper": Paper(marks=[1, math.nan])},
    ]
    refused += [{"crewai:pending_feedback": 1}, [1], "text", None]
    for state in refused:
        with pytest.raises(SerializationError):
            kept.save_state("s", "m", state)
        with pytest.raises(SerializationError):
            kept.save_pending_feedback("s", paused(), state)
    assert len(kept.versions("s")) == 1


def test_a_flow_in_json_names_no_store(kept: LocusFlowPersistence) -> None:
    """A URL may hold a password, and CrewAI writes the settings of a flow into files."""
    assert kept.model_dump(mode="json") == {"persistence_type": "LocusFlowPersistence"}
    assert repr(kept) == "LocusFlowPersistence(SQLiteEngine)"
    kept.init_db()


async def test_what_was_given_stays_open_and_flows_have_titles(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        kept = LocusFlowPersistence(store)
        await support(kept).kickoff_async(inputs={"id": "alice"})
        kept.close()
        (thread,) = (await store.recent_threads(titles=True)).threads
        assert (thread.thread_id, thread.title) == ("alice", "Question 1")


async def test_flows_on_a_server(server_store: TestStore) -> None:
    async with server_store.open() as one, server_store.open() as another:
        kept = [LocusFlowPersistence(handle) for handle in (one, another)]
        await support(kept[0]).kickoff_async(inputs={"id": "alice"})
        flow = support(kept[1])
        await flow.kickoff_async(inputs={"id": "alice"})
        assert await asyncio.to_thread(kept[0].load_state, "alice") == flow.state.model_dump()
        assert isinstance(await Review(persistence=kept[0]).kickoff_async(inputs={"id": "r"}), HumanFeedbackPending)
        resumed = await asyncio.to_thread(Review.from_pending, "r", kept[1])
        assert await resumed.resume_async("fine") == "published: fine"
        assert await asyncio.to_thread(kept[0].load_pending_feedback, "r") is None
