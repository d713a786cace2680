"""What a session of ours has beyond the SDK's: every earlier point, forks, and going back."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from locus.errors import CheckpointNotFoundError, ConflictError
from locus.integrations.openai_agents import LocusSession
from locus.memory.checkpointer import Checkpointer
from tests.integrations.openai_agents.test_session import items


@pytest_asyncio.fixture
async def session(handle: Checkpointer) -> LocusSession:
    """With three items, of which the last was popped, and one more."""
    session = LocusSession("alice", handle)
    await session.add_items(items(1, 2))
    await session.add_items(items(3))
    await session.pop_item()
    await session.add_items(items(4))
    return session


async def test_the_history_says_what_was_done(session: LocusSession) -> None:
    points = await session.history()
    assert [(point.items, point.change) for point in points] == [(3, "add"), (2, "pop"), (3, "add"), (2, "add")]
    assert [point.parent_id for point in points] == [*(point.checkpoint_id for point in points[1:]), None]
    assert all(point.created_at.tzinfo is not None for point in points)
    assert await session.history(2) == points[:2]
    assert await session.history(None, before=points[1].checkpoint_id) == points[2:]


async def test_every_point_can_be_read(session: LocusSession) -> None:
    points = await session.history()
    views = [session.at(point.checkpoint_id) for point in points]
    assert [await view.get_items() for view in views] == [items(1, 2, 4), items(1, 2), items(1, 2, 3), items(1, 2)]
    assert await views[2].get_items(2) == items(2, 3)
    assert views[0].session_id == "alice"
    with pytest.raises(CheckpointNotFoundError, match="'nothing'"):
        await session.at("nothing").get_items()


async def test_a_fork_goes_on_by_itself(session: LocusSession) -> None:
    third = (await session.history())[2]
    forked = await session.fork("bob", third.checkpoint_id)
    await forked.add_items(items(10))
    await session.add_items(items(5))
    assert forked.session_id == "bob"
    assert await forked.get_items() == items(1, 2, 3, 10)
    assert await session.get_items() == items(1, 2, 4, 5)
    assert [point.items for point in await forked.history()] == [4, 3, 2]
    await session.clear_session()
    assert await forked.get_items() == items(1, 2, 3, 10)


async def test_a_fork_of_the_latest_and_of_nothing(session: LocusSession, handle: Checkpointer) -> None:
    assert await (await session.fork("bob")).get_items() == items(1, 2, 4)
    empty = await LocusSession("nobody", handle).fork("carol")
    await empty.add_items(items(1))
    assert await empty.get_items() == items(1)


async def test_forks_that_cannot_be(session: LocusSession, handle: Checkpointer) -> None:
    await LocusSession("bob", handle).add_items(items(1))
    with pytest.raises(ConflictError, match="'bob' exists already"):
        await session.fork("bob")
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint 'nothing' to fork from"):
        await session.fork("carol", "nothing")
    assert await LocusSession("bob", handle).get_items() == items(1)


async def test_going_back_keeps_what_came_after(session: LocusSession, handle: Checkpointer) -> None:
    points = await session.history()
    await session.rewind(points[2].checkpoint_id)
    assert await session.get_items() == items(1, 2, 3)
    await LocusSession("alice", handle).add_items(items(5))
    assert await session.get_items() == items(1, 2, 3, 5)
    newest, turned, *before = await session.history(None)
    assert (turned.change, turned.parent_id, newest.parent_id) == (
        "rewind",
        points[2].checkpoint_id,
        turned.checkpoint_id,
    )
    assert before == points
    assert await session.at(points[0].checkpoint_id).get_items() == items(1, 2, 4)
    with pytest.raises(CheckpointNotFoundError, match="'nothing'"):
        await session.rewind("nothing")


async def test_going_back_again_and_again_stays_right(handle: Checkpointer) -> None:
    """Each turn leaves a piece of a list behind; when there are too many the list is written anew."""
    session = LocusSession("alice", handle)
    expected: list[Any] = items(0)
    await session.add_items(expected)
    for number in range(1, 14):
        await session.add_items(items(number))
        after = (await session.history(1))[0].checkpoint_id
        await session.add_items(items(900))
        await session.rewind(after)
        expected += items(number)
    assert await session.get_items() == expected
    assert await session.pop_item() == items(13)[0]


async def test_points_can_be_removed_by_number(session: LocusSession, handle: Checkpointer) -> None:
    assert await handle.vacuum(keep_last=1) == 3
    assert await session.get_items() == items(1, 2, 4)
    assert [point.items for point in await session.history()] == [3]
    await session.add_items(items(5))
    assert await session.get_items() == items(1, 2, 4, 5)
