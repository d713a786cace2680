"""Workers in processes of their own that want one thread: on SQLite, and on a server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from locus.agent import Agent
from locus.agent.recovery import UNKNOWN, unknown
from locus.agent.sessions import OnConflict
from locus.errors import ThreadBusyError
from locus.memory.model.ids import new_id
from locus.testing.processes.jobs import opened
from locus.testing.processes.workers import PATIENCE, Crew, Worker
from locus.tools import tool
from tests.agent.lease_jobs import hold
from tests.agent.support import Following, loaded, spoken
from tests.servers.redis import RedisServer

LONG = 600.0
"""Seconds: no machine is so busy that such a lease ends during a test."""
SHORT = 0.3


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.server("redis"))])
async def crew(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Crew]:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        url = f"{server.url}?prefix=lease-{new_id()}:"
    with Crew(url, ["tests.agent.lease_jobs"]) as crew:
        yield crew
    async with opened(url) as store:
        await store.delete("t")


def holder(
    crew: Crew, name: str = "first", seconds: float = LONG, *, meets: bool = False, stops: bool = False
) -> Worker:
    worker = crew.start(hold, url=crew.url, thread_id="t", name=name, lease_seconds=seconds, meets=meets, stops=stops)
    if not meets:
        assert worker.hear() == {"holds": name}
    return worker


def wait_until_it_stands_still(pid: int) -> None:
    until = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":
        assert time.monotonic() < until
        time.sleep(0.01)


@tool
async def wait() -> str:
    """The tool of the workers, which is not to be repeated."""
    raise AssertionError("it is repeated")


async def newcomer(crew: Crew, on_conflict: OnConflict) -> list[tuple[str, str]]:
    """A new message from this process; what the thread says then."""
    async with opened(crew.url) as store:
        agent = Agent(model=Following("ok"), tools=[wait], checkpointer=store, on_conflict=on_conflict)
        return spoken((await agent.invoke("second", "t")).state)


async def test_of_workers_that_meet_exactly_one_wins(crew: Crew) -> None:
    workers = {name: holder(crew, name, meets=True) for name in ("a", "b", "c", "d")}
    crew.together([*workers.values()])
    until = time.monotonic() + PATIENCE
    said = {name: next(worker.hear_until(until), None) for name, worker in workers.items()}
    (winner,) = (name for name, message in said.items() if message is not None)
    assert said[winner] == {"holds": winner}
    for name, worker in workers.items():
        if name != winner:
            assert worker.result[0] == "ThreadBusyError"
    workers[winner].tell(go_on=True)
    assert workers[winner].finish() == ["answer", f"wait={winner} waited"]
    async with opened(crew.url) as store:
        state = await loaded(store, "t")
    assert [text for who, text in spoken(state) if who == "user"] == [winner]


async def test_a_newcomer_from_another_process_is_refused(crew: Crew) -> None:
    worker = holder(crew)
    with pytest.raises(ThreadBusyError):
        await newcomer(crew, "reject")
    worker.tell(go_on=True)
    assert worker.finish() == ["answer", "wait=first waited"]
    assert (await newcomer(crew, "reject"))[-2:] == [("user", "second"), ("assistant", "ok")]


@pytest.mark.crash
async def test_the_thread_of_a_killed_worker_is_not_free_before_its_lease_is_over(crew: Crew) -> None:
    worker = holder(crew)
    worker.kill()
    assert worker.killed
    with pytest.raises(ThreadBusyError):
        await newcomer(crew, "reject")
    said = await newcomer(crew, "take_over")
    assert ("tool", unknown("taken_over")) in said


@pytest.mark.crash
async def test_who_waits_gets_the_thread_of_a_killed_worker_when_its_lease_is_over(crew: Crew) -> None:
    holder(crew, seconds=SHORT).kill()
    said = await newcomer(crew, "wait")
    assert ("tool", UNKNOWN) in said


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells by /proc that a process stands still")
async def test_a_worker_that_stood_still_for_longer_than_its_lease_writes_nothing_more(crew: Crew) -> None:
    worker = holder(crew, seconds=SHORT, stops=True)
    wait_until_it_stands_still(worker.pid)
    said = await newcomer(crew, "wait")
    os.kill(worker.pid, signal.SIGCONT)
    worker.tell(go_on=True)
    name, text = worker.finish()
    assert name == "ThreadTakenOverError"
    assert "another worker has taken this thread over" in text
    async with opened(crew.url) as store:
        assert spoken(await loaded(store, "t")) == said
