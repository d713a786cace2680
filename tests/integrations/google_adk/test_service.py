"""What our session service does beyond ADK: order without clocks, refusals, history, forks, crashes between steps."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session

from locus.errors import (
    BackendUnavailableError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptCheckpointError,
    DamagedThreadsWarning,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.google_adk import NAMESPACE, LocusSessionService
from locus.integrations.google_adk.shared_state import SharedStates
from locus.memory.backends import SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.stores import TestStore
from tests.backends.every_store import embedded_store
from tests.integrations.google_adk.events import ALICE, event, texts


async def loaded(service: LocusSessionService, session_id: str, **how: Any) -> Session:
    found = await service.get_session(**ALICE, session_id=session_id, **how)
    assert found is not None
    return found


async def test_events_stay_in_order_whatever_their_clocks_say(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s")
    times = [5.0, 5.0, 5.0, 1.0, 9.0, 1.0]
    for number, at in enumerate(times):
        await service.append_event(session, event(str(number), at=at))
    other = LocusSessionService(handle)
    assert texts(await loaded(other, "s")) == ["0", "1", "2", "3", "4", "5"]
    assert texts(await loaded(other, "s", config=GetSessionConfig(num_recent_events=2))) == ["4", "5"]
    assert texts(await loaded(other, "s", config=GetSessionConfig(after_timestamp=5.0))) == ["0", "1", "2", "4"]


@pytest.mark.parametrize("at", [1.0, 4_000_000_000.0])
async def test_a_stale_writer_is_refused_whatever_its_clock_says(handle: Checkpointer, at: float) -> None:
    one, other = LocusSessionService(handle), LocusSessionService(handle)
    await one.create_session(**ALICE, session_id="s")
    first, second = await loaded(one, "s"), await loaded(other, "s")
    await one.append_event(first, event("first", at=at))
    with pytest.raises(StaleSessionError):
        await other.append_event(second, event("second", at=at + 1, state={"user:u": 1, "a": 1}))
    assert second.events == []
    found = await loaded(other, "s")
    assert (texts(found), found.state) == (["first"], {}), "whoever is refused changes nothing"
    await other.append_event(found, event("second", at=at))
    await other.append_event(found, event("third", at=at))
    assert texts(await loaded(one, "s")) == ["first", "second", "third"]


async def test_a_session_without_a_marker_is_known_by_its_newest_event(handle: Checkpointer) -> None:
    """One that was sent somewhere as JSON."""
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s")

    def sent(given: Session) -> Session:
        return Session.model_validate_json(given.model_dump_json())

    empty = sent(session)
    await service.append_event(empty, event("first"))
    again = sent(empty)
    with pytest.raises(StaleSessionError):
        await service.append_event(sent(session), event("late"))
    await service.append_event(again, event("second"))
    with pytest.raises(StaleSessionError):
        await service.append_event(sent(empty), event("late"))
    assert texts(await loaded(service, "s")) == ["first", "second"]


async def test_the_same_event_is_kept_once(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    await service.create_session(**ALICE, session_id="s")
    given = event("once", id="e", state={"user:n": 1})
    before = await loaded(service, "s")
    for session in (before, before, await loaded(service, "s"), await loaded(LocusSessionService(handle), "s")):
        await service.append_event(session.model_copy(deep=True), given.model_copy(deep=True))
    stale = before.model_copy(deep=True)
    await service.append_event(stale, given.model_copy(deep=True))
    assert texts(stale) == ["once"], "its answer may have got lost, and now it can go on"
    await service.append_event(stale, event("next"))
    assert texts(await loaded(service, "s")) == ["once", "next"]
    with pytest.raises(StaleSessionError):
        await service.append_event(before.model_copy(deep=True), given.model_copy(deep=True))


async def test_other_events_with_the_same_id_are_kept(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s")
    for text in ("a", "b"):
        await service.append_event(session, event(text, id="e"))
    assert texts(await loaded(service, "s")) == ["a", "b"]


async def test_a_deleted_session_is_gone_also_for_those_who_have_it(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s", state={"user:u": 1})
    await service.append_event(session, event())
    await service.delete_session(**ALICE, session_id="s")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event())
    await service.create_session(**ALICE, session_id="s")
    with pytest.raises(StaleSessionError):
        await service.append_event(session, event("into another session"))
    assert (await loaded(service, "s")).state == {"user:u": 1}


@pytest.mark.parametrize("missing", ["user", "app", "both"])
async def test_what_a_killed_process_left_undone_is_done_by_the_next(
    handle: Checkpointer, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """The session is stored first. If nothing else is, whoever loads it next does the rest."""
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s", state={"user:u": 0, "app:p": 0, "user:kept": 0})

    class Killed(BaseException):
        pass

    steps = {"user": 0, "both": 0, "app": 1}[missing]
    change = SharedStates.change

    async def dying(self: SharedStates, *args: Any) -> None:
        nonlocal steps
        if not steps:
            raise Killed
        steps -= 1
        await change(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(SharedStates, "change", dying)
        with pytest.raises(Killed):
            await service.append_event(session, event("e", id="e", state={"user:u": 1, "app:p": 1, "a": 1}))
    fresh = LocusSessionService(handle)
    assert (await fresh.get_user_state(**ALICE))["u"] == (1 if missing == "app" else 0)
    found = await loaded(fresh, "s")
    assert found.state == {"a": 1, "user:u": 1, "app:p": 1, "user:kept": 0}
    assert await fresh.get_user_state(**ALICE) == {"u": 1, "kept": 0}
    assert (await fresh.create_session(app_name="shop", user_id="bob")).state == {"app:p": 1}
    # The one that failed may try again, and goes on.
    await service.append_event(session, event("e", id="e", state={"user:u": 1, "app:p": 1, "a": 1}))
    await service.append_event(session, event("next", state={"user:u": 2}))
    assert texts(await loaded(fresh, "s")) == ["e", "next"]
    assert await fresh.get_user_state(**ALICE) == {"u": 2, "kept": 0}


async def test_what_is_done_late_does_not_undo_what_was_set_since(
    handle: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = LocusSessionService(handle)
    late, other = [await service.create_session(**ALICE, session_id=name) for name in ("late", "other")]

    async def failing(*_args: Any) -> None:
        raise BackendUnavailableError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(SharedStates, "change", failing)
        with pytest.raises(BackendUnavailableError):
            await service.append_event(late, event(state={"user:u": "late", "user:v": "late"}))
    await service.append_event(other, event(state={"user:u": "newer"}))
    found = await loaded(LocusSessionService(handle), "late")
    assert found.state == {"user:u": "newer", "user:v": "late"}
    await service.append_event(await loaded(service, "other"), event(state={"user:v": "newest"}))
    assert (await loaded(service, "late")).state == {"user:u": "newer", "user:v": "newest"}


async def test_users_and_apps_change_their_state_at_once(handle: Checkpointer) -> None:
    services = [LocusSessionService(handle) for _ in range(4)]
    sessions = [await service.create_session(**ALICE) for service in services]
    await asyncio.gather(
        *(
            service.append_event(session, event(state={f"user:{number}": number, f"app:{number}": number}))
            for number, (service, session) in enumerate(zip(services, sessions, strict=True))
        )
    )
    found = await loaded(services[0], sessions[0].id)
    assert found.state == {f"{kind}:{n}": n for kind in ("user", "app") for n in range(4)}


async def test_history_forks_and_going_back(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s", state={"n": 0})
    for number in (1, 2, 3):
        await service.append_event(session, event(str(number), state={"n": number, "user:n": number}))
    points = await service.history(**ALICE, session_id="s", limit=None)
    assert [(point.items, point.change) for point in points] == [(3, "add"), (2, "add"), (1, "add"), (0, "create")]
    assert points[0].parent_id == points[1].checkpoint_id
    assert points[0].created_at - points[-1].created_at >= timedelta(0)

    then = await loaded(service, "s", at=points[2].checkpoint_id)
    assert (texts(then), then.state) == (["1"], {"n": 1, "user:n": 3})
    with pytest.raises(StaleSessionError):
        await service.append_event(then, event("into the past"))

    forked = await service.fork_session(**ALICE, session_id="s", new_session_id="t", at=points[1].checkpoint_id)
    assert (forked.id, texts(forked), forked.state) == ("t", ["1", "2"], {"n": 2, "user:n": 3})
    await service.append_event(forked, event("other", state={"n": "other"}))
    whole = await service.fork_session(**ALICE, session_id="s")
    assert texts(whole) == ["1", "2", "3"]

    back = await service.rewind_session(**ALICE, session_id="s", at=points[2].checkpoint_id)
    assert (texts(back), back.state) == (["1"], {"n": 1, "user:n": 3})
    with pytest.raises(StaleSessionError):
        await service.append_event(session, event("from before"))
    await service.append_event(back, event("4"))
    assert texts(await loaded(LocusSessionService(handle), "s")) == ["1", "4"]
    assert texts(await loaded(service, "t")) == ["1", "2", "other"]
    newest = await service.history(**ALICE, session_id="s", limit=2)
    assert [point.change for point in newest] == ["add", "rewind"]
    assert texts(await loaded(service, "s", at=points[0].checkpoint_id)) == ["1", "2", "3"]


async def test_forks_and_points_that_cannot_be(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    await service.create_session(**ALICE, session_id="s")
    await service.create_session(**ALICE, session_id="t")
    with pytest.raises(AlreadyExistsError):
        await service.fork_session(**ALICE, session_id="s", new_session_id="t")
    with pytest.raises(SessionNotFoundError):
        await service.fork_session(**ALICE, session_id="none")
    with pytest.raises(CheckpointNotFoundError):
        await service.fork_session(**ALICE, session_id="s", at="none")
    with pytest.raises(CheckpointNotFoundError):
        await service.get_session(**ALICE, session_id="s", at="none")
    with pytest.raises(CheckpointNotFoundError):
        await service.rewind_session(**ALICE, session_id="s", at="none")
    assert await service.history(**ALICE, session_id="none") == []


async def test_names_are_data(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    names = [
        ("a/b", "c", "d"),
        ("a", "b/c", "d"),
        ("a", "b", "c/d"),
        ("a%2Fb", "c", "d"),
        ("*", "?", "ä ö"),
        ("a", "b", "c"),
        ("a", "b", " c "),
    ]
    for app, user, session_id in names:
        await service.create_session(app_name=app, user_id=user, session_id=session_id, state={"me": [app, user]})
    for app, user, session_id in names:
        found = await service.get_session(app_name=app, user_id=user, session_id=session_id)
        assert found is not None
        assert found.state == {"me": [app, user]}
    assert [one.id for one in (await service.list_sessions(app_name="a", user_id="b")).sessions].count("c/d") == 1
    assert {(one.user_id, one.id) for one in (await service.list_sessions(app_name="a")).sessions} == {
        ("b/c", "d"),
        ("b", "c/d"),
        ("b", "c"),
        ("b", " c "),
    }
    with pytest.raises(InvalidIdError, match="app_name, user_id, session_id have 257 characters together"):
        await service.get_session(app_name="a" * 100, user_id="b" * 100, session_id="c" * 55)
    for bad in ({"user_id": ""}, {"app_name": ""}, {"session_id": "\ud800"}, {"user_id": 5}):
        with pytest.raises(InvalidIdError):
            await service.get_session(**{**ALICE, "session_id": "s", **bad})


async def test_what_json_cannot_hold_is_said(handle: Checkpointer) -> None:
    service = LocusSessionService(handle)
    session = await service.create_session(**ALICE, session_id="s")
    with pytest.raises(SerializationError):
        await service.append_event(session, event("\ud800"))
    await service.append_event(session, event("fine"))
    assert texts(await loaded(service, "s")) == ["fine"]


async def test_damage_is_told_and_shows_nothing(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        service = LocusSessionService(store)
        backend = SQLiteBackend(tmp_path / "a.db")
        for payload in (
            {"items": [{"author": {"secret": 1}}], "state": {}, "last_update_time": 1.0},
            {"items": [], "state": "secret"},
        ):
            await backend.save("shop/alice/s", payload, namespace=NAMESPACE)
            with pytest.raises(CorruptCheckpointError) as told:
                await service.get_session(**ALICE, session_id="s")
            assert "secret" not in str(told.value)
            assert "alice" not in str(told.value)
        await backend.save("shop/bob", {"state": {}, "origins": {"a": ["secret"]}}, namespace=NAMESPACE)
        with pytest.raises(CorruptCheckpointError) as told:
            await service.get_user_state(app_name="shop", user_id="bob")
        assert "secret" not in str(told.value)
        await backend.close()


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_a_damaged_session_is_left_out_of_a_list_and_told_of(kind: str, tmp_path: Path) -> None:
    store = embedded_store(kind, tmp_path)
    async with store.open() as handle:
        service = LocusSessionService(handle)
        for user, session_id in (("alice", "a"), ("alice", "b"), ("bob", "c")):
            session = await service.create_session(app_name="shop", user_id=user, session_id=session_id)
            await service.append_event(session, event("secret"))
        await store.corrupt("shop/alice/a")
    async with store.open() as handle:
        service = LocusSessionService(handle)
        for user_id, left in (("alice", ["b"]), (None, ["b", "c"])):
            with pytest.warns(DamagedThreadsWarning, match="^1 damaged thread was left out") as told:
                listed = await service.list_sessions(app_name="shop", user_id=user_id)
            assert sorted(one.id for one in listed.sessions) == left
            assert "secret" not in str(told[0].message)
            assert "alice" not in str(told[0].message)
        with pytest.raises(CorruptCheckpointError):
            await service.get_session(**ALICE, session_id="a")
        assert texts(await loaded(service, "b")) == ["secret"]


async def test_sessions_of_a_user_whose_state_is_damaged(tmp_path: Path) -> None:
    """They are left out among those of others. Whoever asks for this user is told that none of them can be had."""
    async with sqlite_checkpointer(tmp_path / "a.db") as store, SQLiteBackend(tmp_path / "a.db") as backend:
        service = LocusSessionService(store)
        for user in ("alice", "bob"):
            await service.create_session(app_name="shop", user_id=user, session_id=f"of {user}")
        await backend.save("shop/alice", {"state": "secret"}, namespace=NAMESPACE)
        with pytest.warns(DamagedThreadsWarning):
            listed = await service.list_sessions(app_name="shop")
        assert [one.id for one in listed.sessions] == ["of bob"]
        with pytest.raises(CorruptCheckpointError):
            await service.list_sessions(**ALICE)
        await backend.save("shop/bob/no session", {"items": [], "state": {}}, namespace=NAMESPACE)
        with pytest.warns(DamagedThreadsWarning):
            listed = await service.list_sessions(app_name="shop", user_id="bob")
        assert [one.id for one in listed.sessions] == ["of bob"]


async def test_a_service_closes_what_it_opened(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with LocusSessionService(url) as service:
        await service.create_session(**ALICE, session_id="s")
        assert repr(service) == "LocusSessionService(SQLiteEngine)"
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        async with LocusSessionService(store) as service:
            assert await service.get_session(**ALICE, session_id="s") is not None
        assert await store.list_threads() == ["shop/alice/s"]
    with pytest.raises(ConfigurationError, match="sqlite:"):
        LocusSessionService(str(tmp_path / "a.db"))
    with pytest.raises(ConfigurationError):
        LocusSessionService(sqlite_checkpointer(tmp_path / "b.db"), durability="full")


async def test_a_session_on_a_server(server_store: TestStore) -> None:
    """What a server could get wrong: large values in the state, a value that stays, a fork, going back."""
    async with server_store.open() as one, server_store.open() as another:
        service, other = LocusSessionService(one), LocusSessionService(another)
        large = {"text": "ä" * 3_000, "same": "x" * 2_000, "list": [{"n": n, "t": "y" * 50} for n in range(40)]}
        session = await service.create_session(**ALICE, session_id="s/ä", state={"large": large, "user:u": large})
        for number in range(3):
            await service.append_event(session, event(str(number), state={"n": number}))
        found = await loaded(other, "s/ä")
        assert (texts(found), found.state) == (["0", "1", "2"], {"large": large, "user:u": large, "n": 2})
        await other.append_event(found, event("3", state={"large": {**large, "text": "b"}, "user:u": 1}))
        with pytest.raises(StaleSessionError):
            await service.append_event(session, event("late"))
        points = await service.history(**ALICE, session_id="s/ä", limit=None)
        then = await loaded(service, "s/ä", at=points[1].checkpoint_id)
        assert then.state == {"large": large, "user:u": 1, "n": 2}
        forked = await service.fork_session(**ALICE, session_id="s/ä", new_session_id="t", at=points[2].checkpoint_id)
        assert (texts(forked), forked.state["large"]) == (["0", "1"], large)
        back = await other.rewind_session(**ALICE, session_id="s/ä", at=points[3].checkpoint_id)
        assert (texts(back), back.state) == (["0"], {"large": large, "user:u": 1, "n": 0})
        await other.delete_session(**ALICE, session_id="s/ä")
        assert [one.id for one in (await service.list_sessions(**ALICE)).sessions] == ["t"]
        await service.append_event(forked, event("on"))
        assert texts(await loaded(other, "t")) == ["0", "1", "on"]
