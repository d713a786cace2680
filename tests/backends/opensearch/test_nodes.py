"""OpenSearch with three nodes: one is killed under load, the others take over, and nothing acknowledged is lost.

Three nodes take about a minute to start, so only `make soak` runs this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.error import HTTPError

import pytest

from locus.core.state import AgentState
from locus.doctor import examine
from locus.errors import BackendUnavailableError
from locus.memory import get_checkpointer
from tests.backends.opensearch.store import ask
from tests.backends.under_load import UnderLoad
from tests.servers.opensearch import OpenSearchCluster, OpenSearchNode

pytestmark = [pytest.mark.soak, pytest.mark.opensearch("opensearch-nodes")]

Report = Callable[[str, object], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearchCluster]:
    with OpenSearchCluster(tmp_path_factory.mktemp("opensearch")) as cluster:
        yield cluster


def node_with_the_primary_shard(cluster: OpenSearchCluster, index: str) -> OpenSearchNode:
    shards = ask(cluster.nodes[0].url, "GET", f"_cat/shards/{index}?format=json&h=prirep,node")
    return cluster.node(next(shard["node"] for shard in shards if shard["prirep"] == "p"))


def elected_manager(cluster: OpenSearchCluster, _index: str) -> OpenSearchNode:
    (manager,) = ask(cluster.nodes[0].url, "GET", "_cat/cluster_manager?format=json&h=node")
    return cluster.node(manager["node"])


def until_green(cluster: OpenSearchCluster, index: str) -> None:
    asked = f"_cluster/health/{index}?wait_for_status=green&wait_for_nodes=3&timeout=30s"
    for _ in range(10):
        with suppress(HTTPError):  # 408: not yet
            ask(cluster.nodes[0].url, "GET", asked)
            return
    raise TimeoutError(f"{index} has no complete set of copies")


@pytest.mark.crash
@pytest.mark.parametrize("options", ["", "&replicas=2&wait_for_active_shards=2"], ids=["defaults", "two replicas"])
@pytest.mark.parametrize("victim", [node_with_the_primary_shard, elected_manager])
async def test_a_node_killed_under_load_loses_nothing_that_was_acknowledged(
    cluster: OpenSearchCluster,
    victim: Callable[[OpenSearchCluster, str], OpenSearchNode],
    options: str,
    record_property: Report,
) -> None:
    index = f"{victim.__name__}-{'two' if options else 'one'}".replace("_", "-")
    url = f"opensearch://{cluster.hosts}/{index}?timeout=10{options}"
    async with get_checkpointer(url) as handle, UnderLoad(handle) as load:
        await load.saved.more_of_each(3)
        await asyncio.to_thread(until_green, cluster, index)
        await load.saved.more_of_each(10)
        killed = victim(cluster, index)
        load.count_from_now()
        await asyncio.to_thread(killed.kill)
        await load.saved.more_of_each(20)
    record_property("outage", f"{load.outage:.1f} s, {len(load.errors)} errors")
    async with get_checkpointer(url) as reader:
        await load.check(reader)
    await asyncio.to_thread(killed.start)
    await asyncio.to_thread(until_green, cluster, index)
    ask(cluster.nodes[0].url, "DELETE", f"{index}-v1")


async def test_a_save_is_refused_while_too_few_copies_are_there(cluster: OpenSearchCluster) -> None:
    async with get_checkpointer(
        f"opensearch://{cluster.hosts}/refused?timeout=3&replicas=0&wait_for_active_shards=2"
    ) as handle:
        with pytest.raises(BackendUnavailableError, match="unavailable_shards_exception"):
            await handle.save(AgentState(), "t", "a")
    async with get_checkpointer(f"opensearch://{cluster.hosts}/refused") as handle:
        assert await handle.load("t") is None, "nothing was written"
        await handle.save(AgentState(), "t", "a")
        found = await examine(handle.store)
        assert [finding.severity for finding in found.findings] == ["warning"]
        assert "no replicas" in found.findings[0].what
