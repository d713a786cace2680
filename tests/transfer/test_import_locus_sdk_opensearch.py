"""Threads of locus-sdk 3 in OpenSearch, moved in and gone on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.testing.laws.base import dicts
from tests.backends.opensearch.store import OpenSearchStore
from tests.servers.opensearch import OpenSearchServer
from tests.servers.ports import free_port
from tests.transfer.locus_sdk_samples import SAMPLES, by_key, check, moved, opened

SAMPLE: dict[str, dict[str, Any]] = json.loads((SAMPLES / "opensearch.json").read_text())


@pytest.fixture
def old_index(opensearch_server: OpenSearchServer) -> Iterator[OpenSearchStore]:
    """The samples in an index with the mapping that version 3 gives it; the list of a thread lacks a checkpoint."""
    store = OpenSearchStore(opensearch_server.url)
    store.ask("PUT", store.index, {"mappings": SAMPLE["mappings"]})
    for key, source in SAMPLE["documents"].items():
        if key == "t-1:_checkpoints":
            source = {**source, "data": {"checkpoints": source["data"]["checkpoints"][1:]}}
        store.ask("PUT", f"{store.index}/_doc/{quote(key, safe='')}", source)
    store.ask("POST", f"{store.index}/_refresh")
    yield store
    store.ask("DELETE", store.index)


def _documents(store: OpenSearchStore) -> Any:
    body = {"size": 1_000, "sort": ["thread_id"], "seq_no_primary_term": True, "version": True}
    return store.ask("POST", f"{store.index}/_search", body)["hits"]["hits"]


async def test_opensearch(old_index: OpenSearchStore, tmp_path: Path) -> None:
    source, url = f"opensearch://{old_index.host}/{old_index.index}", f"sqlite:{tmp_path / 'agents.db'}"
    before = _documents(old_index)
    report = await moved(source, url)
    assert report.ok, report.problems
    assert (report.threads, report.moved, report.verified) == (4, 6, 6)
    assert _documents(old_index) == before
    keys = {key: document["data"] for key, document in SAMPLE["documents"].items()}
    await check(url, by_key(keys=keys))
    async with opened(url) as handle:
        assert await handle.list_threads(None) == ["bare", "t-1", "tenant/a", "tenant_a"]
        assert await dicts(handle).load("bare") == {"plain": [1, 2]}
        (entry,) = await handle.history("bare")
        assert entry.metadata == {"by": "hand"}
        assert entry.created_at.isoformat() == SAMPLE["documents"]["bare"]["updated_at"]
    again = await moved(source, url)
    assert (again.ok, again.moved) == (True, 0)


@pytest.mark.opensearch
async def test_what_is_no_such_index_is_told(opensearch_server: OpenSearchServer, tmp_path: Path) -> None:
    host, url = urlsplit(opensearch_server.url).netloc, f"sqlite:{tmp_path / 'agents.db'}"
    with pytest.raises(ConfigurationError, match="there is no index of locus-sdk 3"):
        await moved(f"opensearch://{host}/none", url)
    ours, others = OpenSearchStore(opensearch_server.url), OpenSearchStore(opensearch_server.url)
    ours.ask("PUT", ours.index, {"mappings": {"_meta": {"locus_format": 1}}})
    others.ask("PUT", others.index, {"mappings": {"properties": {"thread_id": {"type": "keyword"}}}})
    with pytest.raises(ConfigurationError, match="`locus copy` reads it"):
        await moved(f"opensearch://{host}/{ours.index}", url)
    with pytest.raises(ConfigurationError, match="not one of locus-sdk 3: choose another"):
        await moved(f"opensearch://{host}/{others.index}", url)
    for store in (ours, others):
        store.ask("DELETE", store.index)
    assert list(tmp_path.iterdir()) == []


async def test_an_outage_is_told(tmp_path: Path) -> None:
    source = f"opensearch://admin:very-secret@127.0.0.1:{free_port()}/old"
    with pytest.raises(BackendUnavailableError, match="OpenSearch cannot be used now") as caught:
        await moved(source, f"sqlite:{tmp_path / 'agents.db'}")
    assert "very-secret" not in str(caught.value)
