"""Reads the index of locus-sdk 3 in OpenSearch.

A document is a key with its value: thread_id (the key, which is also the id of the document), data, data_json (the data
as text, for searches), metadata, created_at and updated_at.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from locus.errors import ConfigurationError
from locus.memory.backends.opensearch.client import Client
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.backends.opensearch.index import mappings
from locus.memory.registry import get_checkpointer
from locus.transfer.sources.locus_sdk.key_value import OldKeyValueStore, plain_checkpoint
from locus.transfer.sources.locus_sdk.source import OldCheckpoint, as_dict, moment

_FIELDS = {"thread_id", "data", "updated_at"}


class OldIndex(OldKeyValueStore):
    """An index with one document per key."""

    def __init__(self, url: str) -> None:
        opened = get_checkpointer(url)
        self._engine = cast(OpenSearchEngine, opened.store.engine)

    @property
    def name(self) -> str:
        return self._engine.identity

    async def all_keys(self) -> list[str]:
        return await self._engine.ask(self._list_keys)

    def _list_keys(self, client: Client) -> list[str]:
        self._check(mappings(client))
        query = {"query": {"match_all": {}}, "sort": [{"thread_id": "asc"}], "_source": False}
        return [document.id for page in client.pages(query) for document in page]

    def _check(self, indexes: dict[str, Any] | None) -> None:
        """Raise unless the index exists, and is one of locus-sdk 3."""
        if not indexes:
            raise ConfigurationError(f"there is no index of locus-sdk 3 at {self.name}: name another in the URL's path")
        for about in indexes.values():
            mapping = about.get("mappings", {})
            if "locus_format" in mapping.get("_meta", {}):
                raise ConfigurationError(f"the index at {self.name} is not one of locus-sdk 3: `locus copy` reads it")
            if not mapping.get("properties", {}).keys() >= _FIELDS:
                raise ConfigurationError(f"the index at {self.name} is not one of locus-sdk 3: choose another")

    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        source = await self._source(key)
        return None if source is None else (as_dict(source.get("data"), key), moment(source.get("updated_at")))

    async def plain(self, key: str) -> OldCheckpoint | None:
        source = await self._source(key)
        if source is None:
            return None
        metadata = as_dict(source.get("metadata") or {}, key)
        return plain_checkpoint(as_dict(source.get("data"), key), moment(source.get("updated_at")), metadata)

    async def _source(self, key: str) -> dict[str, Any] | None:
        """The document of a key, without the text for searches, which is as long as the data."""
        documents = await self._engine.ask(lambda client: client.get_many(key, [key], excludes="data_json"))
        return documents[key].source if key in documents else None

    async def close(self) -> None:
        await self._engine.close()
