"""What a session looks like in a store: older forms are read and carried on, and an event costs few steps."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from locus.integrations.google_adk import NAMESPACE, LocusSessionService
from locus.memory import get_checkpointer
from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.codec import decode
from locus.memory.model.ids import digest
from locus.memory.model.manifest import decode_manifest
from locus.memory.model.plan import run_of
from locus.memory.model.records import Base, Commit, Extent, Verdict
from tests.backends.test_walk import walking
from tests.integrations.google_adk.events import ALICE, event, texts

THREAD = "shop/alice/s"
APPEND_FRAMES = 150
NEW_OBJECT_FRAMES = 260
BASKET = [{"tea": number, "note": "x" * 100} for number in range(12)]


def frames_limit(state: dict[str, Any]) -> int:
    return NEW_OBJECT_FRAMES if state else APPEND_FRAMES


@pytest.mark.parametrize("state", [{}, {"n": 1, "basket": BASKET}], ids=["no state", "a list of objects"])
async def test_an_event_passes_few_frames(tmp_path: Path, state: dict[str, Any]) -> None:
    with walking() as walk:
        service = LocusSessionService(f"sqlite:{tmp_path / 'walk.db'}")
        session = await service.create_session(**ALICE, session_id="s", state={"basket": BASKET})
        for number in range(20):
            said = event(f"{number}", at=float(number), state=state)
            walk.begin()
            await service.append_event(session, said)
        assert len(walk.frames) <= frames_limit(state)
        await service.close()


async def test_a_state_that_an_event_leaves_alone_is_not_looked_at() -> None:
    checkpointer = MemoryCheckpointer()
    service = LocusSessionService(checkpointer)
    session = await service.create_session(**ALICE, session_id="s", state={"basket": BASKET})
    await service.append_event(session, event("one"))
    with walking() as walk:
        await service.append_event(session, event("two", at=2.0))
        assert walk.calls("fingerprints") == 1, "of the event"
    fresh = LocusSessionService(checkpointer)
    found = await fresh.get_session(**ALICE, session_id="s")
    assert found is not None
    assert (texts(found), found.state) == (["one", "two"], {"basket": BASKET})
    found.state["basket"].append("a copy")
    await fresh.append_event(found, event("three", at=3.0, state={"n": 1}))
    again = await service.get_session(**ALICE, session_id="s")
    assert again is not None
    assert again.state == {"basket": BASKET, "n": 1}


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_a_list_of_objects_that_is_stored_as_one_value_is_carried_on(url: str, tmp_path: Path) -> None:
    """Older versions stored a long list in the state so, as one value by its digest, and a short one in the head."""
    basket = '[{"tea":1,"note":"' + "x" * 2_000 + '"},{"tea":2}]'
    value = f"#{digest(basket)}"
    checkpointer = get_checkpointer("memory" if url == "memory" else f"sqlite:{tmp_path / 'old.db'}")
    service = LocusSessionService(checkpointer)
    assert await service.get_session(**ALICE, session_id="s") is None
    store = service._store._store
    content = '{"parts":[{"text":"hello"}],"role":"user"}'
    said = f'{{"content":{content},"invocation_id":"i","author":"user","id":"e1","timestamp":1.0}}'
    head = '{"items":[],"state":{"basket":null,"few":[{"a":1}]}'
    first = Commit(
        thread_id=THREAD,
        namespace=NAMESPACE,
        checkpoint_id="one",
        rev="one",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        metadata='{"log":"[\\"create\\",0]"}',
        head=f'{head},"last_update_time":1.0}}',
        manifest=f'[[["state","basket"],"{value}"]]',
        extents=(Extent(value, 0, 0, 1),),
        runs=(),
        values=(run_of(value, 0, 0, [basket]),),
        base=None,
        parent_id=None,
    )
    second = Commit(
        thread_id=THREAD,
        namespace=NAMESPACE,
        checkpoint_id="two",
        rev="two",
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        metadata='{"log":"[\\"add\\",1]"}',
        head=f"{head}}}",
        manifest=f'[[["items"],[["two0",0,0,1]]],[["state","basket"],"{value}"]]',
        extents=(Extent("two0", 0, 0, 1), Extent(value, 0, 0, 1)),
        runs=(run_of("two0", 0, 0, [said]),),
        values=(),
        base=Base("one", "one"),
        parent_id="one",
    )
    for commit in (first, second):
        async with store.using():
            assert (await store.commit(commit)).verdict is Verdict.COMMITTED
    found = await service.get_session(**ALICE, session_id="s")
    assert found is not None
    assert (texts(found), found.state) == (["hello"], {"basket": decode(basket), "few": [{"a": 1}]})
    await service.append_event(found, event("next", at=2.0))
    await service.append_event(found, event("last", at=3.0, state={"few": [{"a": 2}]}))
    fresh = LocusSessionService(checkpointer)
    found = await fresh.get_session(**ALICE, session_id="s")
    assert found is not None
    assert (texts(found), found.state) == (["hello", "next", "last"], {"basket": decode(basket), "few": [{"a": 2}]})
    earlier = await fresh.get_session(**ALICE, session_id="s", at="two")
    assert earlier is not None
    assert earlier.state == {"basket": decode(basket), "few": [{"a": 1}]}
    stored = await store.read(THREAD, None, NAMESPACE)
    assert stored is not None
    assert isinstance(decode_manifest(stored.manifest)["state", "basket"], tuple), "new saves keep it item by item"
    assert isinstance(checkpointer, Checkpointer)
    await checkpointer.close()
