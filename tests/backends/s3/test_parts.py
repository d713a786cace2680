"""Parts of objects on SeaweedFS, and a long thread of which only these are read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locus.core.state import AgentState
from locus.memory.backends.objects.client import ByteSpan
from locus.memory.model.parts import Range, page_of
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.testing.data import conversation
from tests.backends.objects.small import make_small
from tests.backends.proxied import proxy_for
from tests.backends.s3.store import S3Store, objects_of, set_credentials
from tests.servers.seaweedfs import SeaweedServer


@pytest.fixture
def store(
    s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[S3Store]:
    set_credentials(s3_server, monkeypatch)
    with proxy_for(request, s3_server.port) as proxy:
        store = S3Store(s3_server, proxy)
        yield store
        store.remove()


async def test_a_part_of_an_object_is_got(store: S3Store) -> None:
    async with store.open() as handle:
        objects = objects_of(handle)
        await objects.put("a", b"0123456789", if_absent=True)
        assert await objects.get("a", ByteSpan(2, 5)) == b"234"
        assert await objects.get("a", ByteSpan(8, 20)) == b"89"
        assert await objects.get("a", ByteSpan(10, 20)) == b""
        assert await objects.get("nothing", ByteSpan(0, 5)) is None


async def test_the_last_items_of_a_long_thread_are_read_from_the_end_of_its_objects(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    async with store.open() as writer, store.open() as reader:
        state = AgentState()
        for turn in range(30):
            state = state.with_messages(conversation(2, 2 * turn))
            await writer.save(state, "t")
        last = Range(("messages",), -4, 4)
        found = await reader.store.read_part("t", None, DEFAULT_NAMESPACE, last)
        assert found is not None
        assert [item["content"] for item in page_of(found, last).items] == [one.text for one in conversation(4, 56)]
        assert len(found.runs) == 1
        assert objects_of(reader).requests["list"] == 1
        assert await reader.load("t") == state
