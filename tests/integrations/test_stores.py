"""Whoever opens a store closes it: the same for the classes of all integrations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from a2a.server.context import ServerCallContext

from locus.memory.backends import sqlite_checkpointer
from locus.threads import AsyncStoreUser, BlockingStoreUser, BothWaysStoreUser, StoreUser

Call = Callable[[Any], Any]


class Case(NamedTuple):
    """A class, a call that needs the store, and the error that the call raises after `close`; None: it works."""

    module: str
    name: str
    call: Call
    error: str | None
    arguments: tuple[Any, ...] = ()
    """What the class takes before the store."""

    @property
    def made_class(self) -> Any:
        return getattr(import_module(f"locus.integrations.{self.module}"), self.name)

    def made(self, store: Any) -> Any:
        return self.made_class(*self.arguments, store)


_THREAD = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
_PROJECT = {"project_key": "p", "session_id": "s"}
_ADK = {"app_name": "a", "user_id": "u"}
CASES = [
    Case("langgraph", "LocusSaver", lambda one: one.aget_tuple(_THREAD), None),
    Case("langgraph", "LocusCache", lambda one: one.aget([(("n",), "k")]), None),
    Case("langgraph_store", "LocusStore", lambda one: one.aget(("a",), "k"), None),
    Case("llmfy", "LlmfyCheckpointer", lambda one: one.load("s"), None),
    Case("google_adk.sessions", "LocusSessionService", lambda one: one.list_sessions(**_ADK), None),
    Case("google_adk.artifacts", "LocusArtifactService", lambda one: one.list_artifact_keys(**_ADK), None),
    Case("openai_agents", "LocusSession", lambda one: one.get_items(), "SessionClosedError", ("s",)),
    Case("claude_agent_sdk", "LocusSessionStore", lambda one: one.load(_PROJECT), "SessionStoreClosedError"),
    Case("pydantic_ai", "LocusConversationStore", lambda one: one.read_record("c"), "ConversationStoreClosedError"),
    Case("agent_framework", "LocusHistoryProvider", lambda one: one.get_messages("s"), "ClosedError"),
    Case("agent_framework", "LocusAgentSessionStore", lambda one: one.get("s"), "ClosedError"),
    Case(
        "agent_framework",
        "LocusCheckpointStorage",
        lambda one: one.list_checkpoint_ids(workflow_name="w"),
        "ClosedError",
    ),
    Case("strands", "LocusSessionRepository", lambda one: one.read_session("s"), "SessionException"),
    Case("a2a", "LocusTaskStore", lambda one: one.get("t", ServerCallContext()), None),
    Case("strands", "LocusStorage", lambda one: one.read("k"), "StorageError"),
]
every_class = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


async def _done(result: Any) -> None:
    if isinstance(result, Awaitable):
        await result


async def _closed(one: Any) -> None:
    await _done(one.aclose() if isinstance(one, BothWaysStoreUser) else one.close())


def _url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'a.db'}"


def test_every_class_that_takes_a_store_is_here() -> None:
    listed = {case.made_class for case in CASES}
    from locus.integrations.agent_framework.owned import OwnedStore

    found: set[type[StoreUser]] = set()
    left: list[type[StoreUser]] = [StoreUser]
    while left:
        some = left.pop().__subclasses__()
        found.update(some)
        left += some
    # Those that others are made of have no name of their own in front of a user.
    assert {one for one in found if one.__module__.startswith("locus.")} - listed == {
        AsyncStoreUser,
        BlockingStoreUser,
        BothWaysStoreUser,
        OwnedStore,
    }


def _is_ready(one: Any) -> bool:
    """Whether the store is open, or a key space of it that is all that this class uses."""
    store = one._handle._store
    return any(each.ready for each in (store, *store._spaces.values()))


@every_class
async def test_what_was_opened_here_is_closed_once_or_twice(case: Case, tmp_path: Path) -> None:
    one = case.made(_url(tmp_path))
    await _done(case.call(one))
    assert _is_ready(one)
    for _ in range(2):
        await _closed(one)
        assert not _is_ready(one)
    assert repr(one).startswith(f"{case.name}(")
    if case.error is None:
        await _done(case.call(one))  # opens it again
        await _closed(one)
    else:
        with pytest.raises(Exception, match=f"closed: make a new {case.name}") as caught:
            await _done(case.call(one))
        assert type(caught.value).__name__ == case.error
    assert not _is_ready(one)


@every_class
async def test_what_was_given_stays_open(case: Case, tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        one = case.made(store)
        await _done(case.call(one))
        await _closed(one)
        assert _is_ready(one)
        if case.error is not None:
            with pytest.raises(Exception, match="closed: make a new"):
                await _done(case.call(one))
        assert await store.list_threads() == []


@every_class
async def test_the_end_of_a_block_closes(case: Case, tmp_path: Path) -> None:
    one = case.made(_url(tmp_path))
    if isinstance(one, AsyncStoreUser | BothWaysStoreUser):
        async with one as entered:
            assert entered is one
            await _done(case.call(one))
        assert not _is_ready(one)
    if isinstance(one, BlockingStoreUser):
        one = case.made(_url(tmp_path))

        def work() -> None:
            with one as entered:
                assert entered is one
                result = case.call(one)
                if inspect.isawaitable(result):
                    asyncio.run(_done(result))

        await asyncio.to_thread(work)
        assert not _is_ready(one)


async def test_a_view_of_a_storage_ends_with_it(tmp_path: Path) -> None:
    from locus.integrations.strands import LocusStorage

    for which in range(2):
        storage = LocusStorage(_url(tmp_path))
        view = storage.namespace("x")
        await view.write("k", b"1")
        await (storage, view)[which].close()
        for one in (storage, view):
            with pytest.raises(Exception, match="closed: make a new LocusStorage"):
                await one.read("k")
        assert not storage._handle._store.ready
