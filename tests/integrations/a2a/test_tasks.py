"""A2A's own request handler on a store: tasks go on in another process, and belong to their owner."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore, TaskStore
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    Task,
    TaskState,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from locus.errors import CorruptCheckpointError, DamagedThreadsWarning, InvalidIdError, SerializationError
from locus.integrations.a2a import NAMESPACE, LocusTaskStore
from locus.looking.reading import conversation
from locus.looking.saves import saves_of
from locus.looking.turns import Stand, Status, turns_of
from locus.memory.backends import sqlite_checkpointer
from locus.memory.conversations import utterance_of
from locus.testing.stores import TestStore
from locus.threads import ThreadStore
from tests.integrations.a2a.agents import call_by, said, serving

ALICE, BOB, NOBODY = call_by("alice"), call_by("bob"), ServerCallContext()


@pytest_asyncio.fixture
async def tasks(tmp_path: Path) -> AsyncIterator[LocusTaskStore]:
    async with LocusTaskStore(f"sqlite:{tmp_path / 'a.db'}") as tasks:
        yield tasks


def texts(messages: Any) -> list[str]:
    return [message.parts[0].text for message in messages]


async def test_a_task_goes_on_in_another_process(tasks: LocusTaskStore, tmp_path: Path) -> None:
    async with serving(tasks) as (agent,):
        first = await said(agent, "Please", ALICE)
    assert first.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    async with LocusTaskStore(f"sqlite:{tmp_path / 'a.db'}") as another, serving(another) as (agent,):
        done = await said(agent, "A tea", ALICE, first)
        assert done.status.state == TaskState.TASK_STATE_COMPLETED
        kept = await agent.on_get_task(GetTaskRequest(id=first.id), ALICE)
    assert kept == await tasks.get(first.id, ALICE)
    assert kept is not None
    assert texts(kept.history) == ["Please", "Which drink?", "A tea"]
    assert texts(kept.artifacts) == ["cup 0", "cup 1", "cup 2"]
    assert texts([kept.status.message]) == ["Here you are."]
    states = [task.status.state for task in (await tasks.versions(first.id, ALICE, None)).values()]
    assert states[0] == TaskState.TASK_STATE_COMPLETED
    assert states[-1] == TaskState.TASK_STATE_SUBMITTED
    assert len(states) >= 6


async def test_a_task_is_there_for_its_owner_only(tasks: LocusTaskStore) -> None:
    async with serving(tasks) as (agent,):
        task = await said(agent, "Please", ALICE)
        for call in (BOB, NOBODY):
            with pytest.raises(TaskNotFoundError):
                await agent.on_get_task(GetTaskRequest(id=task.id), call)
            with pytest.raises(TaskNotFoundError):
                await agent.on_cancel_task(CancelTaskRequest(id=task.id), call)
            assert not (await agent.on_list_tasks(ListTasksRequest(), call)).tasks
            await tasks.delete(task.id, call)
        await tasks.save(Task(id=task.id, context_id="bob's"), BOB)
        assert (await agent.on_list_tasks(ListTasksRequest(), ALICE)).tasks[0].id == task.id
        assert await tasks.get(task.id, ALICE) == task
        await tasks.delete(task.id, ALICE)
        await tasks.delete(task.id, ALICE)
        assert await tasks.get(task.id, ALICE) is None
        assert (await tasks.get(task.id, BOB) or task).context_id == "bob's"


async def test_no_two_owners_share_a_task_whatever_their_names(tasks: LocusTaskStore) -> None:
    names = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("", "a/b/c"), ("A", "b/c"), ("a", "b%2Fc")]
    for owner, task_id in names:
        await tasks.save(Task(id=task_id, context_id=f"{owner} of {task_id}"), call_by(owner))
    for owner, task_id in names:
        task = await tasks.get(task_id, call_by(owner))
        assert task is not None
        assert task.context_id == f"{owner} of {task_id}"
        listed = await tasks.list(ListTasksRequest(), call_by(owner))
        assert {one.id for one in listed.tasks} == {each for whose, each in names if whose == owner}
    for owner, task_id in (("a", ""), ("a", "x" * 300), ("x" * 200, "y" * 100)):
        with pytest.raises(InvalidIdError):
            await tasks.get(task_id, call_by(owner))


async def test_the_owner_is_whom_the_resolver_names(tmp_path: Path) -> None:
    def tenant(call: ServerCallContext) -> str:
        return call.tenant

    async with LocusTaskStore(f"sqlite:{tmp_path / 'a.db'}", owner_resolver=tenant) as tasks:
        await tasks.save(Task(id="t"), ServerCallContext(tenant="one"))
        assert await tasks.get("t", ServerCallContext(tenant="two")) is None
        assert await tasks.get("t", ServerCallContext(tenant="one")) == Task(id="t")


def some_tasks() -> list[Task]:
    made = []
    for number in range(12):
        task = Task(id=f"t{number:02}", context_id=f"c{number % 3}")
        if number != 5:
            task.status.state = TaskState.TASK_STATE_WORKING if number % 2 else TaskState.TASK_STATE_COMPLETED
        if number not in (5, 6):
            task.status.timestamp.FromNanoseconds(1_000_000_007 * (number // 4))
        task.history.add(message_id=f"m{number}", role=Role.ROLE_USER).parts.add(text=f"said {number}")
        made.append(task)
    return made


QUERIES: list[Callable[[], ListTasksRequest]] = [
    lambda: ListTasksRequest(),
    lambda: ListTasksRequest(context_id="c1"),
    lambda: ListTasksRequest(context_id="c9"),
    lambda: ListTasksRequest(status=TaskState.TASK_STATE_WORKING),
    lambda: ListTasksRequest(status_timestamp_after={"seconds": 1}),
    lambda: ListTasksRequest(context_id="c2", status=TaskState.TASK_STATE_COMPLETED, page_size=1),
    lambda: ListTasksRequest(page_size=5),
    lambda: ListTasksRequest(page_size=12),
]


@pytest.mark.parametrize("number", range(len(QUERIES)))
async def test_pages_are_those_of_the_stores_of_the_sdk(tasks: LocusTaskStore, number: int) -> None:
    theirs = InMemoryTaskStore()
    stores: list[TaskStore] = [tasks, theirs]
    for task in some_tasks():
        for store in stores:
            await store.save(task, ALICE)
    request = QUERIES[number]()
    for _ in range(20):
        pages = [await store.list(request, ALICE) for store in stores]
        assert pages[0] == pages[1]
        if not pages[0].next_page_token:
            return
        request.page_token = pages[0].next_page_token
    pytest.fail("there is no last page")


async def test_a_page_token_that_nobody_gave_is_refused(tasks: LocusTaskStore) -> None:
    with pytest.raises(InvalidParamsError):
        await tasks.list(ListTasksRequest(page_token="{}"), ALICE)


async def test_a_list_reads_the_tasks_of_its_page_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db", cache_mb=0) as store:
        tasks = LocusTaskStore(store)
        for task in some_tasks():
            await tasks.save(task, ALICE)
        reads = []
        read = type(store.store.engine).read

        async def counted(*arguments: Any) -> Any:
            reads.append(arguments)
            return await read(*arguments)

        monkeypatch.setattr(type(store.store.engine), "read", counted)
        assert len((await tasks.list(ListTasksRequest(page_size=2), ALICE)).tasks) == 2
        assert len(reads) == 2


async def test_what_is_no_task_is_told_of(tasks: LocusTaskStore) -> None:
    await tasks.save(Task(id="good"), ALICE)
    await ThreadStore.document(tasks._store, "alice/bad", NAMESPACE).save({"history": "no list"})
    await ThreadStore.document(tasks._store, "alice/worse", NAMESPACE).save({}, metadata={"state": ["x"]})
    await ThreadStore.document(tasks._store, "alice/another", "framework").save({})
    with pytest.raises(CorruptCheckpointError, match="no task of A2A"):
        await tasks.get("bad", ALICE)
    with pytest.warns(DamagedThreadsWarning, match="2 damaged threads"):
        page = await tasks.list(ListTasksRequest(), ALICE)
    assert [task.id for task in page.tasks] == ["good"]
    await ThreadStore.document(tasks._store, "alice/good", "framework").save({})  # and is the newest of the thread
    with pytest.warns(DamagedThreadsWarning):
        assert [task.id for task in (await tasks.list(ListTasksRequest(), ALICE)).tasks] == ["good"]


async def test_whatever_is_kept_can_be_read(tasks: LocusTaskStore) -> None:
    inner: dict[str, Any] = {"number": -0.0, "big": 1e308, "none": None, "list": [[], {}, True, "\0 😀"]}
    kept = 0
    for depth in range(20, 400, 20):
        deep: dict[str, Any] = inner
        for _ in range(depth):
            deep = {"deeper": deep}
        task = Task(id=f"t{depth}")
        task.metadata.update(deep)
        task.history.add(role=Role.ROLE_AGENT).parts.add(raw=b"\xff\0", media_type="image/png")
        try:
            await tasks.save(task, ALICE)
        except SerializationError as error:
            assert re.search("nested (too deeply|more than)", str(error))  # noqa: PT017
        else:
            kept += 1
            assert await tasks.get(task.id, ALICE) == task
    assert kept >= 2
    task = Task(id="nan")
    task.metadata.update({"x": math.nan})
    with pytest.raises(SerializationError, match="NaN"):
        await tasks.save(task, ALICE)


async def test_a_task_reads_as_a_conversation(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store, serving(LocusTaskStore(store)) as (agent,):
        task = await said(agent, "Please", ALICE)
        await said(agent, "A tea", ALICE, task)
        thread_id = f"alice/{task.id}"
        assert [thread.title for thread in (await store.recent_threads(titles=True)).threads] == ["Please"]
        entry = await store.store.entry(thread_id, None, NAMESPACE)
        assert entry is not None
        found = await conversation(store.store, entry, 0, 10)
        assert found is not None
        told = [(one.role, one.text) for one in map(utterance_of, found[1].items)]
        assert told == [("user", "Please"), ("assistant", "Which drink?"), ("user", "A tea")]
        saves = await saves_of(store.store, await store.store.history(thread_id, None, None, None))
        (asked, *_) = [save for save in reversed(saves) if save.stand is Stand.WAITS]
        assert asked.lines == ["◷ waits for a person: Which drink?"]
        until_then = [save for save in saves if save.entry.seq <= asked.entry.seq]
        assert [turn.status for turn in turns_of(until_then)] == [Status.WAITING]
        assert [turn.answer.text for turn in turns_of(saves)[-1:] if turn.answer] == ["Here you are."]
    parts = [{"raw": "AAAA", "mediaType": "image/png"}, {"data": {"n": 1}}, {"text": "and"}]
    said_with_parts = utterance_of({"role": "ROLE_AGENT", "parts": parts})
    assert said_with_parts.text == '[image: image/png, 3 B]\n{"data": {"n": 1}}\nand'


async def test_tasks_on_a_server(server_store: TestStore) -> None:
    async with (
        server_store.open() as one,
        server_store.open() as another,
        serving(LocusTaskStore(one), LocusTaskStore(another)) as agents,
    ):
        task = await said(agents[0], "Please", ALICE)
        assert [each.id for each in (await agents[1].on_list_tasks(ListTasksRequest(), ALICE)).tasks] == [task.id]
        done = await said(agents[1], "A tea", ALICE, task)
        assert await agents[0].on_get_task(GetTaskRequest(id=task.id), ALICE) == done
        more = await asyncio.gather(*(said(agents[n % 2], f"tea {n}", ALICE) for n in range(6)))
        page = await agents[0].on_list_tasks(ListTasksRequest(page_size=3), ALICE)
        rest = await agents[1].on_list_tasks(ListTasksRequest(page_token=page.next_page_token), ALICE)
        assert sorted(each.id for each in (*page.tasks, *rest.tasks)) == sorted(each.id for each in (done, *more))
        assert (await agents[0].on_list_tasks(ListTasksRequest(), BOB)).total_size == 0
