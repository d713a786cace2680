"""S3's corners, on moto: pages of a thousand keys, conditions, and the bodies of errors."""

from __future__ import annotations

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from locus.errors import BackendUnavailableError
from locus.memory.backends.objects.client import ByteSpan, ObjectStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.s3.backend import S3Backend
from locus.memory.backends.s3.client import S3ObjectStore
from tests.backends.s3.conftest import moto_backend_of

pytestmark = pytest.mark.s3("moto")


def objects_of(backend: S3Backend) -> ObjectStore:
    engine = backend.store.engine
    assert isinstance(engine, ObjectEngine)
    return engine.store


async def test_pages_past_a_thousand_keys_are_listed_and_deleted(moto_backend: S3Backend) -> None:
    async with moto_backend:
        objects = objects_of(moto_backend)
        keys = [f"many/{number:05}" for number in range(1_050)]
        await objects.put(keys[0], keys[0].encode(), if_absent=False)
        # The others past the network: a thousand requests would take moto a quarter of a minute.
        assert isinstance(objects, S3ObjectStore)
        kept = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for key in keys[1:]:
            kept.put_object(objects._config.bucket, f"{objects._config.prefix}{key}", key.encode())
        objects.requests.clear()
        assert [listed.key for listed in await objects.list("many/")] == keys
        assert objects.requests["list"] == 2
        assert [listed.key for listed in await objects.list("many/", start_after=keys[20])] == keys[21:]
        assert [listed.key for listed in await objects.list("many/", limit=1_020)] == keys[:1_020]
        assert [listed.size for listed in await objects.list("many/", limit=2)] == [10, 10]
        assert await objects.list("none/") == []
        objects.requests.clear()
        await objects.delete([*keys, "many/never-was"])
        assert objects.requests["delete"] == 2
        assert await objects.list("") == []


async def test_a_put_on_condition_finds_what_is_there(moto_backend: S3Backend) -> None:
    async with moto_backend:
        objects = objects_of(moto_backend)
        assert await objects.get("k") is None
        assert await objects.put("k", b"first", if_absent=True)
        assert not await objects.put("k", b"second", if_absent=True)
        assert await objects.get("k") == b"first"
        assert await objects.put("k", b"third", if_absent=False)
        assert await objects.get("k") == b"third"
        await objects.delete(["k", "k2"])
        assert await objects.get("k") is None
        large = bytes(range(256)) * 20_000
        assert await objects.put("large", large, if_absent=True)
        assert await objects.get("large") == large


async def test_a_part_of_an_object_is_got(moto_backend: S3Backend) -> None:
    async with moto_backend:
        store = objects_of(moto_backend)
        await store.put("a", b"0123456789", if_absent=True)
        assert await store.get("a", ByteSpan(2, 5)) == b"234"
        assert await store.get("a", ByteSpan(8, 20)) == b"89"
        assert await store.get("a", ByteSpan(10, 20)) == b""
        assert await store.get("nothing", ByteSpan(0, 5)) is None


async def test_a_long_thread_is_saved_listed_and_deleted(moto_backend: S3Backend) -> None:
    async with moto_backend:
        items: list[int] = []
        for number in range(40):
            items = [*items, number]
            await moto_backend.save("thread/ä", {"items": items})
        assert await moto_backend.load("thread/ä") == {"items": items}
        assert await moto_backend.list_threads() == ["thread/ä"]
        assert await moto_backend.delete("thread/ä")
        assert await moto_backend.list_threads() == []


async def test_a_bucket_that_is_not_there_is_no_empty_one(moto_url: str) -> None:
    async with moto_backend_of(moto_url, "no-such-bucket") as backend:
        for work in (backend.load("t"), backend.list_threads(), backend.save("t", {}), backend.exists("t")):
            with pytest.raises(BackendUnavailableError, match=r"NoSuchBucket.*create it"):
                await work
