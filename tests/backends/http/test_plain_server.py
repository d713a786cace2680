"""`HTTPCheckpointer` and servers of other makers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from locus.agent import Agent
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    ConflictError,
    CorruptCheckpointError,
)
from locus.memory import get_checkpointer
from locus.memory.backends import HTTPCheckpointer
from locus.memory.backends.http.client import HTTPAuthenticationError, HTTPRefusedError, HTTPUnavailableError
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.storage import StorageBackend
from locus.models import MockModel
from tests.backends.http.foreign import Foreign, Manners, foreign_server

STATE = AgentState(agent_id="a").with_messages([Message.user("hi"), Message.assistant("héllo")])


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    with foreign_server() as foreign:
        yield foreign


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("listed", ["checkpoints", "data", ""])
@pytest.mark.parametrize("objects", [True, False])
async def test_its_answers_may_have_any_of_the_usual_shapes(wrapped: bool, listed: str, objects: bool) -> None:
    with foreign_server(Manners(wrapped=wrapped, listed=listed, objects=objects)) as foreign:
        async with HTTPCheckpointer(foreign.url) as checkpointer:
            assert await checkpointer.load("t") is None
            assert await checkpointer.list_checkpoints("t") == []
            first = await checkpointer.save(STATE, "t", metadata={"k": "v"})
            longer = STATE.with_message(Message.user("again"))
            second = await checkpointer.save(longer, "t")
            assert await checkpointer.load("t") == longer
            assert await checkpointer.load("t", first) == STATE
            assert await checkpointer.load("t", "none") is None
            assert await checkpointer.list_checkpoints("t") == [second, first]
            assert await checkpointer.list_checkpoints("t", limit=1) == [second]
            assert [entry.checkpoint_id for entry in await checkpointer.history("t", None, second)] == [first]
            assert await checkpointer.exists("t")
            assert await checkpointer.exists("t", first)
            assert not await checkpointer.exists("t", "none")
            assert not await checkpointer.exists("u")
            assert await checkpointer.get_metadata("t", first) == ({"k": "v"} if wrapped or objects else {})
            assert len((await checkpointer.diff("t", first, second)).added) == 1
            assert await checkpointer.delete("t", second)
            assert not await checkpointer.delete("t", second)
            assert await checkpointer.load("t") == STATE
            assert await checkpointer.delete("t")
            assert not await checkpointer.delete("t")
            assert await checkpointer.load("t") is None


async def test_a_save_is_what_such_servers_expect(foreign: Foreign) -> None:
    async with HTTPCheckpointer(f"{foreign.url}/") as checkpointer:
        await checkpointer.save(STATE, "t", "c1", {"k": "v"})
    method, path, body = foreign.requests[-1]
    assert (method, path) == ("POST", "/threads/t/checkpoints")
    assert set(body) == {"checkpoint_id", "thread_id", "created_at", "state", "metadata"}
    assert (body["checkpoint_id"], body["thread_id"], body["metadata"]) == ("c1", "t", {"k": "v"})
    assert AgentState.from_checkpoint(body["state"]) == STATE


@pytest.mark.parametrize("name", ["a/b", "..", ".", "...", "a%2Fb", "?x=1", "#", "é", " ", "\0", "a\\b", ";", "~"])
async def test_ids_are_escaped(foreign: Foreign, name: str) -> None:
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        await checkpointer.save(STATE, name, name)
        assert foreign.threads == {name: foreign.threads[name]}
        assert [*foreign.threads[name]] == [name]
        assert await checkpointer.load(name, name) == STATE
        assert await checkpointer.load(name) == STATE
        assert await checkpointer.delete(name, name)
    assert all(path.count("/") <= 4 for _, path, _ in foreign.requests)


async def test_plain_dicts_are_kept_too(foreign: Foreign) -> None:
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        backend = StorageBackend(checkpointer.store)
        for data in ({"n": 1}, {"state": {"x": 1}}, {"state": 7}, {"items": [{"a": [1] * 100}] * 50}):
            await backend.save("t", data)
            assert await backend.load("t") == data


async def test_what_such_a_server_can_do_is_known_after_the_first_request(foreign: Foreign) -> None:
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        assert checkpointer.capabilities.search
        assert await checkpointer.health_check()
        assert checkpointer.capabilities == CheckpointerCapabilities(persistent_checkpoint_ids=True)
        calls: list[Any] = [
            checkpointer.search("x"),
            checkpointer.query_by_metadata("k", "v"),
            checkpointer.list_threads(),
            checkpointer.list_with_metadata(),
            checkpointer.copy_thread("t", "u"),
            checkpointer.vacuum(),
            checkpointer.put_writes("t", "c", "task", [("x", 1)]),
            checkpointer.get_writes("t", "c"),
            checkpointer.save(STATE, "t", namespace="other"),
            checkpointer.save(STATE, "t", parent="c"),
        ]
        for call in calls:
            with pytest.raises(CapabilityError):
                await call
    async with HTTPCheckpointer(foreign.url, ttl_seconds=60) as checkpointer:
        with pytest.raises(CapabilityError):
            await checkpointer.save(STATE, "t")
    assert foreign.threads == {}


async def test_a_condition_is_checked_before_the_save(foreign: Foreign) -> None:
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        first = await checkpointer.save(STATE, "t", if_latest=None)
        with pytest.raises(ConflictError) as caught:
            await checkpointer.save(STATE, "t", if_latest=None)
        assert (caught.value.expected, caught.value.latest) == (None, first)
        second = await checkpointer.save(STATE.next_iteration(), "t", if_latest=first)
        with pytest.raises(ConflictError):
            await checkpointer.save(STATE, "t", if_latest=first)
        assert await checkpointer.list_checkpoints("t") == [second, first]


async def test_a_duplicate_that_is_refused_is_a_success_if_it_is_equal() -> None:
    with foreign_server(Manners(refuses_duplicates=True)) as foreign:
        async with HTTPCheckpointer(foreign.url) as checkpointer:
            for _ in range(2):
                assert await checkpointer.save(STATE, "t", "c") == "c"
            with pytest.raises(HTTPRefusedError, match="409"):
                await checkpointer.save(STATE.next_iteration(), "t", "c")
            assert await checkpointer.load("t", "c") == STATE


def _calls(checkpointer: HTTPCheckpointer) -> list[Any]:
    return [
        checkpointer.load("t"),
        checkpointer.load("t", "c"),
        checkpointer.save(STATE, "t"),
        checkpointer.list_checkpoints("t"),
        checkpointer.exists("t"),
        checkpointer.delete("t", "c"),
        checkpointer.delete("t"),
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, HTTPAuthenticationError),
        (403, HTTPAuthenticationError),
        (400, HTTPRefusedError),
        (410, HTTPRefusedError),
        (418, HTTPRefusedError),
        (302, HTTPRefusedError),
        (429, HTTPUnavailableError),
        (500, HTTPUnavailableError),
        (503, HTTPUnavailableError),
    ],
)
async def test_what_is_no_success_raises(foreign: Foreign, status: int, kind: type[Exception]) -> None:
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        await checkpointer.exists("t")
        foreign.manners.fails_with = status
        for call in _calls(checkpointer):
            with pytest.raises(kind, match=str(status)) as caught:
                await call
            assert isinstance(caught.value, httpx.HTTPError)
            assert isinstance(caught.value, CheckpointError)
            assert isinstance(caught.value.__cause__, httpx.HTTPStatusError)
        assert await checkpointer.health_check() is False


async def test_a_save_that_finds_nothing_is_no_success(foreign: Foreign) -> None:
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        foreign.manners.fails_with = 404
        with pytest.raises(BackendUnavailableError):
            await checkpointer.save(STATE, "t")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_a_server_in_trouble_is_not_taken_for_another_one(foreign: Foreign, status: int) -> None:
    foreign.manners.fails_with = status
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        with pytest.raises(BackendUnavailableError):
            await checkpointer.load("t")
        foreign.manners.fails_with = None
        assert await checkpointer.load("t") is None


async def test_garbage_is_no_empty_thread(foreign: Foreign) -> None:
    foreign.manners.answers_garbage = True
    async with HTTPCheckpointer(foreign.url) as checkpointer:
        with pytest.raises(BackendUnavailableError):
            await checkpointer.load("t")
        with pytest.raises(BackendUnavailableError):
            await checkpointer.list_checkpoints("t")
        with pytest.raises(CorruptCheckpointError):
            await checkpointer.load("t", "c")


@pytest.mark.parametrize("root", [200, 301, 401, 403, 405])
async def test_whatever_stands_at_its_root(root: int) -> None:
    with foreign_server(Manners(root=root)) as foreign:
        async with HTTPCheckpointer(foreign.url) as checkpointer:
            await checkpointer.save(STATE, "t")
            assert await checkpointer.load("t") == STATE


async def test_credentials_are_sent_and_never_shown() -> None:
    with foreign_server(Manners(password="Basic dTpzZWNyZXQ=")) as foreign:
        address = foreign.url.removeprefix("http://")
        for checkpointer in (
            HTTPCheckpointer(foreign.url, auth=("u", "secret")),
            HTTPCheckpointer(foreign.url, headers={"Authorization": "Basic dTpzZWNyZXQ="}),
            get_checkpointer(f"http://u:secret@{address}"),
        ):
            async with checkpointer:
                assert await checkpointer.save(STATE, "t")
            assert "secret" not in repr(checkpointer)
        async with HTTPCheckpointer(foreign.url, auth=("u", "wrong-one")) as checkpointer:
            with pytest.raises(HTTPAuthenticationError) as caught:
                await checkpointer.load("t")
            assert "wrong-one" not in str(caught.value)


async def test_an_agent_goes_on_where_it_was(foreign: Foreign) -> None:
    """Without a place for the results of single tools, and without lists of threads."""
    for turn in range(3):
        async with HTTPCheckpointer(foreign.url) as checkpointer:
            agent = Agent(model=MockModel(responses=["yes"]), checkpointer=checkpointer)
            await agent.invoke(f"question {turn}", thread_id="t")
            state = await checkpointer.load("t")
            assert state is not None
            assert [said.text for said in state.messages if said.role == "user"] == [
                f"question {number}" for number in range(turn + 1)
            ]


async def test_the_sync_face(foreign: Foreign) -> None:
    checkpointer = HTTPCheckpointer(foreign.url)
    saved = checkpointer.sync.save(STATE, "t")
    assert checkpointer.sync.load("t", saved) == STATE
    checkpointer.sync.close()
