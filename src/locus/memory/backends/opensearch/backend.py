"""The public face of OpenSearch: `OpenSearchBackend`, and the factories that the registry calls for a URL."""

from __future__ import annotations

from functools import partial
from typing import Any

from locus.memory.backends.opensearch.client import Client
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import taking
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore


class OpenSearchBackend(StorageBackend):
    """Keeps threads in OpenSearch, as plain dicts; `opensearch_checkpointer(hosts)` keeps `AgentState` there.

    `hosts` are `"host:9200"` or URLs. The first use creates the index, with `shards` shards and `replicas` replicas
    (by default one, as soon as there is a second node). `timeout` applies to each request, in seconds. Up to
    `connections` requests run at once. With `wait_for_active_shards`, a write is refused while fewer copies of its
    shard, the primary among them, are there. A `client` (an `opensearchpy.OpenSearch`) is used as it is, and not
    closed.
    """

    @taking(OpenSearchConfig.from_options)
    def __init__(self, config: OpenSearchConfig) -> None:
        self.index_name = config.index
        self.hosts = config.shown_hosts.split(",")
        self.ttl_seconds = config.ttl_seconds
        self.timeout = config.timeout
        engine = OpenSearchEngine(
            config,
            lambda config: Client(config, config.client),
            connections=config.connections,
            shards=config.shards,
            replicas=config.replicas,
        )
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    async def get_by_metadata(self, key: str, value: Any, limit: int = 100) -> list[dict[str, Any]]:
        """An alias of `query_by_metadata`."""
        return await self.query_by_metadata(key, value, limit)

    def __repr__(self) -> str:
        return f"OpenSearchBackend([{','.join(self.hosts)}], {self.index_name!r})"


def _from_url(scheme: str, location: str = "", **options: Any) -> Checkpointer:
    from locus.memory.backends.adapters import StorageBackendAdapter

    return StorageBackendAdapter(OpenSearchBackend(**OpenSearchConfig.options_in(f"{scheme}:{location}", **options)))


from_location = partial(_from_url, "opensearch")
"""Open `"opensearch://user:password@host:9200/index-name?ssl=true"`, of which it gets what follows the scheme."""
from_secure_location = partial(_from_url, "opensearchs")
"""Open `"opensearchs://user:password@host:9200/index-name"`, over TLS."""
