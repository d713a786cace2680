"""locus.memory.backends.opensearch.backend"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from locus.memory.backends.opensearch.client import Client, Settings
from locus.memory.backends.opensearch.config import (
    checked_client,
    checked_count,
    checked_index,
    connection_options,
    host_settings,
    location_options,
    shown_hosts,
)
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import checked_seconds
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore


class OpenSearchBackend(StorageBackend):
    """Threads in OpenSearch, as plain dicts; `opensearch_checkpointer(hosts)` keeps `AgentState` there.

    `hosts` are `"host:9200"` or URLs. The index is made by the first use, with `shards` shards and `replicas`
    replicas (one, as soon as there is a second node). `timeout` is for each request, in seconds; up to
    `connections` of them are under way at once. A `client` (an `opensearchpy.OpenSearch`) is used as it is, and
    not closed.
    """

    def __init__(
        self,
        hosts: Sequence[str] | None = None,
        index_name: str = "locus-checkpoints",
        username: str | None = None,
        password: str | SecretStr | None = None,
        *,
        use_ssl: bool | None = None,
        verify_certs: bool = True,
        ca_certs: str | None = None,
        client_cert: str | None = None,
        client_key: str | None = None,
        ttl_seconds: float | None = None,
        timeout: float = 30.0,
        connections: int = 8,
        shards: int = 1,
        replicas: int | None = None,
        client: Any = None,
    ) -> None:
        checked_seconds(timeout, "timeout")
        checked_count(connections, "connections", least=1)
        checked_count(shards, "shards", least=1)
        if replicas is not None:
            checked_count(replicas, "replicas", least=0)
        self.index_name = checked_index(index_name)
        places, user, secret = host_settings(hosts, use_ssl)
        options = connection_options(
            username if username is not None else user,
            password if password is not None else secret,
            verify_certs=verify_certs,
            ca_certs=ca_certs,
            client_cert=client_cert,
            client_key=client_key,
        )
        self._shown = shown_hosts(places)
        settings = Settings(places, self.index_name, timeout, options)
        given = checked_client(client)
        engine = OpenSearchEngine(
            settings, lambda: Client(settings, given), connections=connections, shards=shards, replicas=replicas
        )
        super().__init__(CheckpointStore(engine, ttl_seconds=ttl_seconds))

    async def get_by_metadata(self, key: str, value: Any, limit: int = 100) -> list[dict[str, Any]]:
        """The same as `query_by_metadata`."""
        return await self.query_by_metadata(key, value, limit)

    def __repr__(self) -> str:
        return f"OpenSearchBackend([{self._shown}], {self.index_name!r})"


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"opensearch://user:password@host:9200/index-name?ssl=true"`."""
    from locus.memory.backends.adapters import opensearch_checkpointer

    return opensearch_checkpointer(**{**location_options(location), **options})


def from_secure_location(location: str = "", **options: Any) -> Checkpointer:
    """`"opensearchs://…"`: the same, over TLS."""
    return from_location(location, **{"use_ssl": True, **options})
