"""An event comes back equal, whichever of its fields are missing, empty, or set to their defaults."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from hypothesis import example, given

from locus.errors import CorruptCheckpointError
from locus.integrations.google_adk import NAMESPACE, LocusSessionService
from locus.integrations.google_adk.names import thread_of
from tests.integrations.every_field import FEW, objects
from tests.integrations.google_adk.events import ALICE, event

EMPTY = EventActions(agent_state={}, route="", transfer_to_agent="", render_ui_widgets=[], set_model_response={})
"""An empty `agent_state` says that a resumable agent has begun."""


@FEW
@given(objects(Event))
@example(Event(author="clerk", actions=EMPTY))
@example(Event(author="clerk", output={}, error_message="", custom_metadata={}))
def test_an_event_comes_back_equal(event: Event) -> None:
    async def stored() -> list[Event]:
        service = LocusSessionService("memory")
        session = await service.create_session(**ALICE, session_id="s")
        await service.append_event(session, event)
        found = await service.get_session(**ALICE, session_id="s")
        assert found is not None
        return found.events

    assert asyncio.run(stored()) == ([] if event.partial else [event])


@pytest.mark.parametrize("item", [{"tone": "warm"}, {"actions": {"tone": {}}}, {"node_info": {"tone": ""}}])
async def test_a_field_of_a_newer_version_is_kept(item: dict[str, Any]) -> None:
    """It is out of sight, or an error if the model of the framework has none that it does not know."""
    service = LocusSessionService("memory")
    session = await service.create_session(**ALICE, session_id="s")
    document = service._store.document(thread_of("shop", "alice", "s"), NAMESPACE, ("items",))
    newer = {**event().model_dump(mode="json", exclude_none=True), **item}
    await document.save({}, lists={"items": [newer]})
    if "actions" in item:
        with pytest.raises(CorruptCheckpointError, match="a newer version of ADK"):
            await service.get_session(**ALICE, session_id="s")
    else:
        found = await service.get_session(**ALICE, session_id="s")
        assert found is not None
        session = found
        await service.append_event(session, event("next", at=2.0))
    page = await document.items("items")
    assert page is not None
    assert page.items[0] == newer


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_cancelled_append_is_settled_when_the_caller_goes_on(when: str) -> None:
    service = LocusSessionService("memory")
    session = await service.create_session(**ALICE, session_id="s")
    store, waiting = service._store._store, asyncio.Event()
    commit = store.commit

    async def interrupted(given: Any) -> Any:
        store.commit = commit  # type: ignore[method-assign]
        if when == "after":
            await commit(given)
        waiting.set()
        await asyncio.Event().wait()

    store.commit = interrupted  # type: ignore[method-assign,assignment]
    said = event("cancelled")
    task = asyncio.create_task(service.append_event(session, said))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await service.get_session(**ALICE, session_id="s")
    assert found is not None
    assert found.events == [said]
