"""Objects in a bucket, through Oracle's SDK: what the object engine stands on."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from locus.errors import BackendUnavailableError
from locus.memory.backends.objects.client import MAX_KEY, ByteSpan
from locus.memory.backends.oci_bucket.client import OCIObjectStore
from locus.memory.backends.oci_bucket.config import OCIConfig
from tests.backends.oci.conftest import OpenStore, failing
from tests.servers.oci.faults import Fault
from tests.servers.oci.server import OCIServer

pytestmark = pytest.mark.oci


async def test_an_object_is_put_got_and_deleted(store: OCIObjectStore) -> None:
    body = bytes(range(256)) * 50
    assert await store.get("a/b") is None
    assert await store.put("a/b", body, if_absent=True)
    assert await store.get("a/b") == body
    assert not await store.put("a/b", b"other", if_absent=True)
    assert await store.get("a/b") == body
    assert await store.put("a/b", b"", if_absent=False)
    assert await store.get("a/b") == b""
    await store.delete(["a/b"])
    assert await store.get("a/b") is None


async def test_a_part_of_an_object_is_got(store: OCIObjectStore) -> None:
    await store.put("a", b"0123456789", if_absent=True)
    assert await store.get("a", ByteSpan(2, 5)) == b"234"
    assert await store.get("a", ByteSpan(8, 20)) == b"89"
    assert await store.get("a", ByteSpan(10, 20)) == b""
    assert await store.get("nothing", ByteSpan(0, 5)) is None


async def test_it_tells_the_time_by_which_objects_are_dated(store: OCIObjectStore) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)  # it is told to the second
    told = await store.server_time()
    assert told is not None
    assert before <= told <= datetime.now(UTC)
    await store.put("a", b"", if_absent=True)
    (listed,) = await store.list("a")
    assert listed.modified >= told


async def test_a_key_may_be_as_long_as_the_engine_makes_them(store: OCIObjectStore) -> None:
    key = "k" * MAX_KEY
    assert await store.put(key, b"body", if_absent=True)
    assert [found.key for found in await store.list("k")] == [key]
    assert await store.get(key) == b"body"


async def test_only_one_of_many_creates_an_object(store: OCIObjectStore, open_store: OpenStore) -> None:
    stores = [store, open_store(), open_store()]
    created = await asyncio.gather(
        *(stores[number % 3].put("contested", b"%d" % number, if_absent=True) for number in range(24))
    )
    assert created.count(True) == 1
    assert await store.get("contested") == b"%d" % created.index(True)


async def test_a_large_object(store: OCIObjectStore) -> None:
    body = os.urandom(3_000_000)
    assert await store.put("large", body, if_absent=True)
    assert not await store.put("large", body, if_absent=True)
    assert await store.get("large") == body


async def test_many_are_got_at_once(store: OCIObjectStore) -> None:
    keys = [f"k{number:02}" for number in range(40)]
    await asyncio.gather(*(store.put(key, key.encode(), if_absent=True) for key in keys))
    found = await store.get_many([*keys, "nothing"])
    assert found == {**{key: key.encode() for key in keys}, "nothing": None}


async def test_keys_are_listed_in_order_and_in_pages(store: OCIObjectStore, oci_server: OCIServer) -> None:
    """More than one request can list."""
    keys = [f"n/{number:05}" for number in range(2_100)]
    await asyncio.gather(*(store.put(key, b"x", if_absent=True) for key in keys[::700]))
    found = await store.list("n/")
    assert [item.key for item in found] == keys[::700]
    await asyncio.gather(*(store.put(key, b"x", if_absent=False) for key in keys))
    oci_server.counts(reset=True)
    found = await store.list("n/")
    assert [item.key for item in found] == keys
    assert oci_server.counts() == {"ListObjects": 3}
    assert {item.size for item in found} == {1}
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=2) < item.modified <= now for item in found)
    assert [item.key for item in await store.list("n/", limit=1_500)] == keys[:1_500]
    assert [item.key for item in await store.list("n/", start_after="n/00010", limit=2)] == keys[11:13]
    assert [item.key for item in await store.list("n/", start_after="n/00010")] == keys[11:]
    assert [item.key for item in await store.list("n/020")] == keys[2_000:]
    assert await store.list("nothing") == []
    oci_server.counts(reset=True)
    await store.delete([*keys, "n/nothing"])
    assert oci_server.counts() == {"BatchDeleteObjects": 3}
    assert await store.list("") == []


async def test_two_prefixes_do_not_see_each_other(store: OCIObjectStore, oci_server: OCIServer) -> None:
    await store.put("a", b"1", if_absent=True)
    assert [item.key for item in await store.list("")] == ["a"]
    assert await store.get("../a") is None


async def test_what_could_not_be_deleted_at_once_is_deleted_one_by_one(
    store: OCIObjectStore, oci_faulty: OCIServer
) -> None:
    keys = ["a", "b", "c"]
    for key in keys:
        await store.put(key, b"x", if_absent=True)
    oci_faulty.fail(Fault("answer", times=2, operation="BatchDeleteObjects", status=503))
    await store.delete(keys)
    assert await store.list("") == []


async def test_an_event_loop_never_waits_for_a_request(store: OCIObjectStore, oci_faulty: OCIServer) -> None:
    await store.put("a", b"1", if_absent=True)
    oci_faulty.fail(Fault("hang", seconds=2.0))
    waiting = asyncio.create_task(store.get("a"))
    longest, last = 0.0, time.perf_counter()
    while not waiting.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    assert await waiting == b"1"
    assert longest < 1.0


async def test_requests_are_made_on_a_bounded_number_of_threads(open_store: OpenStore, oci_faulty: OCIServer) -> None:
    store = open_store(max_connections=3)
    oci_faulty.fail(Fault("hang", times=12, seconds=0.02))
    gets = asyncio.gather(*(store.get(f"k{number}") for number in range(12)))
    await asyncio.sleep(0.03)
    assert len(_threads()) == 3
    assert await gets == [None] * 12
    await store.close()
    assert not _left()
    assert await store.get("a") is None


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("locus-oci")]


def _left() -> list[threading.Thread]:
    """The threads that do not end within a moment."""
    for thread in _threads():
        thread.join(5)
    return _threads()


async def test_a_store_that_nobody_needs_any_more_leaves_no_thread(
    open_store: OpenStore, oci_server: OCIServer
) -> None:
    config = OCIConfig(
        oci_server.bucket,
        oci_server.namespace,
        "gone/",
        config_file=oci_server.config_file,
        service_endpoint=oci_server.endpoint,
        timeout=(5.0, 5.0),
    )
    store = OCIObjectStore(config)
    assert await store.get("a") is None
    assert _threads()
    del store
    gc.collect()
    assert not _left()


async def test_a_bucket_that_is_not_there_is_an_error_and_not_an_empty_one(
    open_store: OpenStore, oci_server: OCIServer
) -> None:
    for options, code in (({"bucket": "nowhere"}, "BucketNotFound"), ({"namespace": "other"}, "NamespaceNotFound")):
        store = open_store(**options)
        calls = (
            store.get("a"),
            store.list(""),
            store.put("a", b"", if_absent=True),
            store.delete(["a"]),
            store.delete(["a", "b"]),
        )
        for call in calls:
            async with failing(store, BackendUnavailableError, match=f"404 {code}.*policy") as caught:
                await call
            assert caught.value.__cause__ is not None


async def test_the_number_of_requests_is_known(store: OCIObjectStore) -> None:
    await store.put("a", b"", if_absent=True)
    await store.get("a")
    await store.list("")
    await store.delete(["a", "b"])
    assert dict(store.requests) == {"put": 1, "get": 1, "list": 1, "delete": 1}


async def test_two_handles_on_the_same_objects_have_one_identity(open_store: OpenStore, oci_server: OCIServer) -> None:
    assert open_store().identity == open_store(timeout=(1.0, 1.0)).identity
    assert open_store().identity != open_store(bucket="another").identity
    in_region = open_store(service_endpoint=None).identity
    assert in_region == open_store(service_endpoint=None, region="eu-frankfurt-1").identity
    assert in_region != open_store(service_endpoint=None, region="us-ashburn-1").identity
