"""Threads of locus-sdk 3 in buckets, of S3 and of OCI Object Storage, moved in and gone on with.

In the samples two ids have a slash in them, and `copy/é 1` is a copy that version 3 has made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest

from locus.errors import BackendUnavailableError, ConfigurationError, CorruptCheckpointError
from locus.memory import get_checkpointer
from locus.memory.backends.objects.client import ObjectStore
from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.oci_bucket.client import OCIObjectStore
from locus.memory.backends.oci_bucket.config import OCIConfig
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.ids import Pattern, check_pattern
from locus.transfer.sources.locus_sdk.bucket import PREFIX, OldBucket, open_bucket
from tests.backends.objects.in_memory import MemoryObjectStore
from tests.backends.s3.store import set_credentials
from tests.servers.oci.fixtures import quick_retries
from tests.servers.oci.server import OCIServer
from tests.servers.ports import free_port
from tests.servers.seaweedfs import SeaweedServer
from tests.transfer.locus_sdk_samples import SAMPLES, check, moved, opened

ALL: Pattern = check_pattern("*")
THREADS = ["a", "a/b", "copy/é 1", "t-1", "tenant/a"]


def sample(name: str) -> dict[str, bytes]:
    """The bodies of objects, by their keys behind the prefix."""
    found: dict[str, str] = json.loads((SAMPLES / f"{name}.json").read_text())
    return {key.removeprefix(PREFIX): body.encode() for key, body in found.items()}


def states(objects: dict[str, bytes], thread_id: str) -> dict[str, dict[str, Any]]:
    """The checkpoints of a thread, in the order of their times."""
    metas = [name for name in objects if name.startswith(f"{thread_id}/") and name.endswith(".meta.json")]
    found = [
        json.loads(objects[name.replace(".meta.json", ".json")]) | {"metadata": json.loads(objects[name])["metadata"]}
        for name in metas
    ]
    return {one["checkpoint_id"]: one for one in sorted(found, key=lambda one: str(one["created_at"]))}


def bucket_of(url: str) -> ObjectStore:
    """All objects of a bucket."""
    handle = get_checkpointer(url, prefix="")
    assert isinstance(handle, Checkpointer)
    engine = handle.store.engine
    assert isinstance(engine, ObjectEngine)
    return engine.store


async def fill(objects: ObjectStore, bodies: dict[str, bytes], prefix: str = "") -> None:
    for name, body in bodies.items():
        await objects.put(prefix + name, body, if_absent=True)


async def everything_comes_along(objects: ObjectStore, prefix: str, kind: str, source: str, url: str) -> None:
    bodies = sample(kind)
    await fill(objects, bodies, prefix)
    before = await objects.list(prefix)
    report = await moved(source, url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (5, 10, 10)
    assert await objects.list(prefix) == before
    async with opened(url) as handle:
        assert await handle.list_threads(None) == THREADS
        assert [entry.checkpoint_id for entry in await handle.history("a")] == ["b/x"]
    await check(url, states(bodies, "t-1"))
    await check(url, states(bodies, "copy/é 1"), "copy/é 1")
    again = await moved(source, url)
    assert (again.ok, again.moved, again.present) == (True, 0, 10)


@pytest.fixture
def s3_url(s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> str:
    set_credentials(s3_server, monkeypatch)
    return f"s3://{s3_server.bucket}?{urlencode({'endpoint_url': s3_server.url})}"


@pytest.mark.s3
async def test_s3(s3_url: str, tmp_path: Path) -> None:
    """With a prefix that does not end with a slash, as version 3 allows it."""
    prefix, url = f"old {uuid4().hex[:8]}-", f"sqlite:{tmp_path / 'agents.db'}"
    source = f"{s3_url}&{urlencode({'prefix': prefix})}"
    whole = bucket_of(s3_url)
    await everything_comes_along(whole, prefix, "s3", source, url)
    await whole.delete([one.key for one in await whole.list(prefix)])
    await whole.close()
    with pytest.raises(ConfigurationError, match="there is no thread in"):
        await moved(source, url)


@pytest.mark.s3
async def test_a_bucket_that_is_not_there_is_told(s3_url: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    with pytest.raises(BackendUnavailableError, match="the bucket does not exist"):
        await moved(s3_url.replace("s3://", "s3://no-"), url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.oci
async def test_oci(oci_server: OCIServer, oci_prefix: str, tmp_path: Path) -> None:
    source = oci_server.url_of(oci_prefix)
    whole = bucket_of(oci_server.url_of(""))
    await everything_comes_along(whole, oci_prefix, "oci", source, f"sqlite:{tmp_path / 'agents.db'}")
    await whole.close()
    with pytest.raises(BackendUnavailableError, match="is not there, or may not be used"):
        await moved(source.replace(f"/{oci_server.bucket}/", "/nothing/"), f"sqlite:{tmp_path / 'agents.db'}")


@pytest.mark.oci
async def test_an_outage_is_told(tmp_path: Path, oci_server: OCIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    nowhere = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(BackendUnavailableError, match="cannot be reached") as caught:
        await moved(f"s3://bucket?{urlencode({'endpoint_url': nowhere})}", f"sqlite:{tmp_path / 'agents.db'}")
    assert "very-secret" not in str(caught.value)
    config = OCIConfig(
        "b",
        "n",
        "",
        config_file=oci_server.config_file,
        service_endpoint=nowhere,
        timeout=(5.0, 5.0),
        retry_strategy=quick_retries(),
    )
    old = OldBucket(OCIObjectStore(config), PREFIX)
    with pytest.raises(BackendUnavailableError, match="did not answer"):
        await old.threads(ALL)
    await old.close()


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3://bucket", PREFIX),
        ("s3://bucket/", PREFIX),
        (f"s3://bucket/{quote('my agents')}/v3/", "my agents/v3/"),
        ("s3://bucket/ignored?prefix=agents-", "agents-"),
        ("s3://bucket?prefix=", ""),
    ],
)
async def test_prefixes(url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    old = open_bucket(url)
    assert old.name == f"s3:https://bucket.s3.us-east-1.amazonaws.com/{prefix}"
    await old.close()


async def _found(old: OldBucket) -> dict[str, list[tuple[str, Any]]]:
    """The ids and the metadata of all checkpoints, by thread."""
    return {
        thread_id: [(one.checkpoint_id, one.metadata) async for one in old.old_checkpoints(thread_id)]
        for thread_id in await old.threads(ALL)
    }


async def test_what_interrupted_saves_have_left() -> None:
    """Neither the pointer nor the metadata need be there; and metadata alone are no checkpoint."""
    bodies = {name: body for name, body in sample("s3").items() if not name.endswith("_latest")}
    del bodies["t-1/c1.meta.json"], bodies["a/b/x.meta.json"], bodies["a/b/c2.json"]
    bodies["t-1/note.meta.json"] = bodies["t-1/c2.json"].replace(b'"c2"', b'"note.meta"')
    bodies["t-1/note.meta.meta.json"] = bodies["t-1/c2.meta.json"].replace(b'"c2"', b'"note.meta"')
    store = MemoryObjectStore()
    await fill(store, bodies, PREFIX)
    found = await _found(OldBucket(store, PREFIX))
    assert list(found) == THREADS
    assert found["t-1"][1:] == [("c1", {}), ("c2", {"n": 2}), ("note.meta", {"n": 2})]
    assert (found["a"], found["a/b"]) == ([("b/x", {})], [("c1", {"n": 2})])


async def test_what_is_ours_under_the_same_prefix_is_left_alone() -> None:
    store = MemoryObjectStore()
    await fill(store, sample("oci"))
    before = await _found(OldBucket(store, ""))
    for name in ("locus.json", "n/t-2d1-000000000002.sure", "t/0f/s/999999999980-19"):
        await store.put(name, b"{}", if_absent=True)
    assert await _found(OldBucket(store, "")) == before


@pytest.mark.parametrize("name", ["t-1/c1.json", "t-1/c1.meta.json", "a/b/c1.json", "a/b/c1.meta.json"])
@pytest.mark.parametrize("body", [b"{", b"[]", b'{"checkpoint_id": "c1"}'])
async def test_damaged_objects_are_told(name: str, body: bytes) -> None:
    store = MemoryObjectStore()
    await fill(store, sample("s3") | {name: body})
    old = OldBucket(store, "")
    assert await old.threads(ALL) == THREADS
    with pytest.raises(CorruptCheckpointError, match=name):
        _ = [one async for one in old.checkpoints(name.rpartition("/")[0])]
    assert len([one async for one in old.checkpoints("tenant/a")]) == 1


async def test_an_object_with_another_checkpoint_is_told() -> None:
    bodies = sample("s3")
    store = MemoryObjectStore()
    await fill(store, bodies | {"t-1/c1.json": bodies["t-1/c2.json"]})
    old = OldBucket(store, "")
    await old.threads(ALL)
    with pytest.raises(CorruptCheckpointError, match=r"'t-1/c1.json' holds the checkpoint 'c2' instead"):
        _ = [one async for one in old.checkpoints("t-1")]
