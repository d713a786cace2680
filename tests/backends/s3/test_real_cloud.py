"""A real cloud, if there is one: `LOCUS_TEST_S3_BUCKET=s3://bucket/prefix?region_name=…`, with AWS's own variables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory import get_checkpointer
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message

URL = os.environ.get("LOCUS_TEST_S3_BUCKET", "")

pytestmark = [
    pytest.mark.s3,
    pytest.mark.skipif(not URL, reason="LOCUS_TEST_S3_BUCKET names no bucket"),
    pytest.mark.timeout(600),
]


@pytest_asyncio.fixture
async def checkpointer() -> AsyncIterator[Checkpointer]:
    opened = get_checkpointer(URL, prefix=f"locus-test/{uuid4().hex}")
    assert isinstance(opened, Checkpointer)
    yield opened
    engine = opened.store.engine
    assert isinstance(engine, ObjectEngine)
    await engine.store.delete([listed.key for listed in await engine.store.list("")])
    await opened.close()


async def test_a_thread_is_kept(checkpointer: Checkpointer) -> None:
    state = AgentState().with_messages(conversation(3))
    saved = {}
    for number in range(40):
        state = state.with_message(message(number))
        saved[await checkpointer.save(state, "t", metadata={"n": number})] = state
    await checkpointer.close()
    assert await checkpointer.list_checkpoints("t", limit=100) == list(saved)[::-1]
    for name in list(saved)[::7]:
        assert await checkpointer.load("t", name) == saved[name]
    assert await checkpointer.list_threads() == ["t"]
    assert await checkpointer.delete("t")
    assert await checkpointer.list_threads() == []


async def test_of_two_writers_one_is_told(checkpointer: Checkpointer) -> None:
    first = await checkpointer.save(AgentState(), "t")
    answers = await asyncio.gather(
        *(checkpointer.save(AgentState(iteration=n), "t", if_latest=first) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(answer, ConflictError) for answer in answers) == 7
    assert len(await checkpointer.list_checkpoints("t")) == 2
