"""The real Object Storage, if there is one: `LOCUS_TEST_OCI_URL=oci://namespace/bucket/prefix?profile_name=…`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConflictError
from locus.memory import get_checkpointer
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.oci_bucket.backend import OCIBucketBackend
from locus.testing.data import conversation, message

URL = os.environ.get("LOCUS_TEST_OCI_URL", "")

pytestmark = [
    pytest.mark.oci,
    pytest.mark.skipif(not URL, reason="LOCUS_TEST_OCI_URL names no bucket"),
    pytest.mark.timeout(600),
]


@pytest_asyncio.fixture
async def backend(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OCIBucketBackend]:
    monkeypatch.undo()
    given = get_checkpointer(URL)
    assert isinstance(given, OCIBucketBackend)
    opened = get_checkpointer(URL, prefix=f"{given.prefix}{uuid4().hex}")
    assert isinstance(opened, OCIBucketBackend)
    yield opened
    engine = opened.store.engine
    assert isinstance(engine, ObjectEngine)
    await engine.store.delete([listed.key for listed in await engine.store.list("")])
    await opened.close()


async def test_a_conversation(backend: OCIBucketBackend) -> None:
    state, saved = AgentState(), dict[str, AgentState]()
    for turn in range(40):
        state = state.with_message(message(turn))
        saved[await backend.save(state, "t", metadata={"turn": turn})] = state
    assert await backend.list_checkpoints("t", limit=100) == [*reversed(saved)]
    for checkpoint_id, expected in saved.items():
        assert await backend.load("t", checkpoint_id) == expected
    assert [hit["metadata"] for hit in await backend.query_by_metadata("turn", 7)] == [{"turn": 7}]
    assert await backend.copy_thread("t", "copy")
    assert await backend.list_threads() == ["copy", "t"]
    assert await backend.delete("t")
    assert await backend.load("t") is None
    assert await backend.load("copy") == state
    assert await backend.sweep(timedelta(0)) > 0
    assert await backend.load("copy") == state


async def test_one_of_many_wins(backend: OCIBucketBackend) -> None:
    first = await backend.save(AgentState().with_messages(conversation(2)), "t")
    others = [get_checkpointer(URL, prefix=backend.prefix) for _ in range(4)]
    answers = await asyncio.gather(
        *(other.save(AgentState(), "t", if_latest=first) for other in others),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, str) for answer in answers) == 1
    assert sum(isinstance(answer, ConflictError) for answer in answers) == 3
    for other in others:
        await other.close()


async def test_more_than_one_page(backend: OCIBucketBackend) -> None:
    engine = backend.store.engine
    assert isinstance(engine, ObjectEngine)
    keys = [f"page/{number:04}" for number in range(1_050)]
    await asyncio.gather(*(engine.store.put(key, b"x", if_absent=True) for key in keys))
    assert [listed.key for listed in await engine.store.list("page/")] == keys
    assert not await engine.store.put(keys[0], b"y", if_absent=True)
    await engine.store.delete([*keys, "page/nothing"])
    assert await engine.store.list("page/") == []


async def test_a_bucket_that_is_not_there(backend: OCIBucketBackend) -> None:
    place, _, options = URL.partition("?")
    namespace = place.split("/")[2]
    wrong = get_checkpointer(f"oci://{namespace}/locus-{uuid4().hex}?{options}")
    with pytest.raises(BackendUnavailableError, match="404"):
        await wrong.load("t")
    await wrong.close()
