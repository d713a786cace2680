"""What ADK's docstrings and its own services promise of a session service, asked of them and of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from locus.integrations.google_adk import LocusSessionService
from tests.integrations.google_adk.events import ALICE, event, texts


@pytest_asyncio.fixture(params=["in memory, of ADK", "SQLite, of ADK", "memory", "file", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseSessionService]:
    if request.param == "in memory, of ADK":
        yield InMemorySessionService()
    elif request.param == "SQLite, of ADK":
        own = SqliteSessionService(str(tmp_path / "adk.db"))
        yield own
        await own.close()
    else:
        place = {"memory": "memory", "file": f"file:{tmp_path / 'threads'}", "sqlite": f"sqlite:{tmp_path / 'a.db'}"}
        async with LocusSessionService(place[request.param]) as ours:
            yield ours


async def test_a_session_is_created_once(service: BaseSessionService) -> None:
    created = await service.create_session(**ALICE, session_id="s", state={"a": 1})
    assert (created.id, created.app_name, created.user_id, created.state) == ("s", "shop", "alice", {"a": 1})
    assert created.events == []
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**ALICE, session_id="s")
    found = await service.get_session(**ALICE, session_id="s")
    assert found is not None
    assert (found.state, found.last_update_time) == ({"a": 1}, created.last_update_time)


async def test_ids_are_made(service: BaseSessionService) -> None:
    made = [await service.create_session(**ALICE, session_id=given) for given in (None, "", None)]
    assert len({session.id for session in made}) == 3
    for session in made:
        assert await service.get_session(**ALICE, session_id=session.id) is not None


async def test_what_is_not_there_is_none(service: BaseSessionService) -> None:
    assert await service.get_session(**ALICE, session_id="none") is None
    assert (await service.list_sessions(app_name="shop")).sessions == []
    assert (await service.list_sessions(**ALICE)).sessions == []
    assert await service.get_user_state(**ALICE) == {}
    await service.delete_session(**ALICE, session_id="none")
    session = await service.create_session(**ALICE)
    await service.delete_session(**ALICE, session_id=session.id)
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event())


async def test_events_come_back_as_they_were(service: BaseSessionService) -> None:
    session = await service.create_session(**ALICE)
    parts = [
        types.Part(text="häß 😀 \u2028"),
        types.Part(function_call=types.FunctionCall(id="c", name="add", args={"a": [1, 2.5, None, {"b": True}]})),
        types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes(range(256)))),
    ]
    given = [
        Event(
            author="clerk",
            invocation_id="i1",
            timestamp=5.25,
            content=types.Content(role="model", parts=parts),
            long_running_tool_ids={"c", "d"},
            branch="a.b",
            error_code="E",
            error_message="m",
            custom_metadata={"x": {"y": [1]}},
            usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=7),
        ),
        Event(author="clerk", invocation_id="i1", timestamp=6.0, output={"n": 1}),
    ]
    for one in given:
        assert await service.append_event(session, one) == one
    found = await service.get_session(**ALICE, session_id=session.id)
    assert found is not None
    assert found.events == given
    assert found.last_update_time == 6.0
    assert session.events == given


async def test_the_newest_events(service: BaseSessionService) -> None:
    session = await service.create_session(**ALICE)
    for number in range(5):
        await service.append_event(session, event(str(number), at=10.0 + number))

    async def found(**config: Any) -> list[str]:
        return texts(await service.get_session(**ALICE, session_id=session.id, config=GetSessionConfig(**config)))

    assert await found() == ["0", "1", "2", "3", "4"]
    assert await found(num_recent_events=2) == ["3", "4"]
    assert await found(num_recent_events=0) == []
    assert await found(num_recent_events=99) == ["0", "1", "2", "3", "4"]
    assert await found(after_timestamp=12.0) == ["2", "3", "4"]
    assert await found(after_timestamp=12.5, num_recent_events=1) == ["4"]
    assert await found(after_timestamp=12.5, num_recent_events=4) == ["3", "4"]
    assert await found(after_timestamp=99.0) == []


async def test_state_belongs_to_a_session_a_user_or_an_app(service: BaseSessionService) -> None:
    first = await service.create_session(**ALICE, state={"a": 1, "user:u": 1, "app:p": 1, "temp:t": 1})
    assert {key: first.state[key] for key in ("a", "user:u", "app:p")} == {"a": 1, "user:u": 1, "app:p": 1}
    second = await service.create_session(**ALICE)
    other = await service.create_session(app_name="shop", user_id="bob")
    elsewhere = await service.create_session(app_name="bank", user_id="alice")
    assert second.state == {"user:u": 1, "app:p": 1}
    assert other.state == {"app:p": 1}
    assert elsewhere.state == {}
    await service.append_event(second, event(state={"user:u": 2, "user:v": {"x": [1]}, "app:p": None, "b": 3}))
    found = await service.get_session(**ALICE, session_id=first.id)
    assert found is not None
    assert found.state == {"a": 1, "user:u": 2, "user:v": {"x": [1]}, "app:p": None}
    found = await service.get_session(app_name="shop", user_id="bob", session_id=other.id)
    assert found is not None
    assert found.state == {"app:p": None}
    assert await service.get_user_state(**ALICE) == {"u": 2, "v": {"x": [1]}}
    assert await service.get_user_state(app_name="bank", user_id="alice") == {}


async def test_a_change_of_state_replaces_a_value(service: BaseSessionService) -> None:
    """As `dict.update` does it: nothing inside of a value is merged, and None is a value."""
    session = await service.create_session(**ALICE, state={"d": {"x": 1}, "n": 1, "big": "x" * 5_000})
    await service.append_event(session, event(state={"d": {"y": 2.5}, "n": None, "big2": ["y" * 3_000]}))
    await service.append_event(session, event(state={"new": 0.1 + 0.2}))
    found = await service.get_session(**ALICE, session_id=session.id)
    expected = {"d": {"y": 2.5}, "n": None, "big": "x" * 5_000, "big2": ["y" * 3_000], "new": 0.1 + 0.2}
    assert found is not None
    assert found.state == session.state == expected


async def test_temporary_state_is_seen_in_memory_and_never_stored(service: BaseSessionService) -> None:
    session = await service.create_session(**ALICE)
    appended = await service.append_event(session, event(state={"temp:t": 1, "a": 1}))
    assert session.state == {"temp:t": 1, "a": 1}
    assert appended.actions.state_delta == {"a": 1}
    found = await service.get_session(**ALICE, session_id=session.id)
    assert found is not None
    assert found.state == {"a": 1}
    assert found.events[0].actions.state_delta == {"a": 1}


async def test_a_partial_event_is_not_stored(service: BaseSessionService) -> None:
    session = await service.create_session(**ALICE)
    await service.append_event(session, event("part", state={"a": 1}, partial=True))
    found = await service.get_session(**ALICE, session_id=session.id)
    assert found is not None
    assert (found.events, found.state) == ([], {})
    assert session.events == []


async def test_whoever_gets_a_session_may_change_it(service: BaseSessionService) -> None:
    session = await service.create_session(**ALICE, state={"l": [1], "user:l": [1]})
    session.state["l"].append(2)
    session.state["user:l"].append(2)
    session.state["unsaid"] = 1
    for _ in range(2):
        found = await service.get_session(**ALICE, session_id=session.id)
        assert found is not None
        assert found.state == {"l": [1], "user:l": [1]}
        found.state["l"].append(3)
        found.state["user:l"].append(3)
    (await service.get_user_state(**ALICE))["l"].append(4)
    assert await service.get_user_state(**ALICE) == {"l": [1]}
    found = await service.get_session(**ALICE, session_id=session.id)
    assert found is not None
    await service.append_event(found, event(at=found.last_update_time + 1))
    found = await service.get_session(**ALICE, session_id=session.id)
    assert found is not None
    assert found.state == {"l": [1], "user:l": [1]}, "what no event says is not stored"


async def test_sessions_are_listed_by_their_time(service: BaseSessionService) -> None:
    names = {"a": 30.0, "b": 10.0, "c": 20.0}
    far = 4_000_000_000.0
    for name, at in names.items():
        session = await service.create_session(**ALICE, session_id=name, state={"n": name, "user:u": 1})
        await service.append_event(session, event(at=far + at))
    bob = await service.create_session(app_name="shop", user_id="bob", session_id="d", state={"app:p": 1})
    await service.append_event(bob, event(at=far + 15.0))
    await service.create_session(app_name="shopping", user_id="alice", session_id="e")
    of_alice = (await service.list_sessions(**ALICE)).sessions
    assert [one.id for one in of_alice] == ["b", "c", "a"]
    assert [one.events for one in of_alice] == [[], [], []]
    assert of_alice[0].state == {"n": "b", "user:u": 1, "app:p": 1}
    everyone = (await service.list_sessions(app_name="shop")).sessions
    assert [(one.user_id, one.id) for one in everyone] == [("alice", "b"), ("bob", "d"), ("alice", "c"), ("alice", "a")]
    assert everyone[1].state == {"app:p": 1}
    assert everyone[0].last_update_time == far + 10.0


async def test_tasks_that_share_a_session_all_append(service: BaseSessionService) -> None:
    """As the branches of one invocation do."""
    session = await service.create_session(**ALICE)
    await asyncio.gather(*(service.append_event(session, event(str(n), at=session.last_update_time)) for n in range(6)))
    found = await service.get_session(**ALICE, session_id=session.id)
    assert sorted(texts(found)) == ["0", "1", "2", "3", "4", "5"]
