"""Reads the keys of locus-sdk 3 in Redis."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from locus.errors import BackendUnavailableError, ConfigurationError
from locus.extras import require
from locus.memory.model.codec import decode
from locus.memory.model.foreign import SDK_PREFIXES
from locus.memory.runtime.url import StoreURL
from locus.transfer.sources.locus_sdk.key_value import OldKeyValueStore
from locus.transfer.sources.locus_sdk.source import as_dict


class OldRedis(OldKeyValueStore):
    """A database with one key per checkpoint, whose value is JSON."""

    def __init__(self, url: str) -> None:
        redis = require("redis.asyncio", "redis")
        refusal = "the URL of Redis cannot be read: redis://user:password@host:6379/0"
        parts = StoreURL(url, refusal)
        options = dict(parse_qsl(parts.query))
        given = options.pop("prefix", None)
        self._prefixes = (given,) if given else SDK_PREFIXES
        self._prefix = self._prefixes[0]
        self._name = f"{parts.scheme}://{parts.host or 'localhost'}:{parts.port or 6379}{parts.path}"
        self._client: Any = None
        with suppress(ValueError):
            self._client = redis.Redis.from_url(parts.changed(query=urlencode(options)))
        if self._client is None:
            raise ConfigurationError(refusal)
        self._errors: type[Exception] = require("redis", "redis").RedisError

    @property
    def name(self) -> str:
        return self._name

    async def all_keys(self) -> list[str]:
        by_prefix = {prefix: keys for prefix in self._prefixes if (keys := await self._keys_with(prefix))}
        if len(by_prefix) > 1:
            raise ConfigurationError(f"{self._name} has keys under {' and '.join(by_prefix)}: say which with ?prefix=…")
        for self._prefix, keys in by_prefix.items():
            return keys
        return []

    async def _keys_with(self, prefix: str) -> list[str]:
        pattern = "".join(f"\\{char}" if char in "*?[]\\" else char for char in prefix) + "*"
        start = len(prefix.encode())
        try:
            full_keys = {bytes(key) async for key in self._client.scan_iter(pattern, count=1_000, _type="STRING")}
        except (self._errors, OSError) as error:
            raise self._unreachable(error) from error
        return [key[start:].decode() for key in full_keys]

    async def value(self, key: str) -> tuple[dict[str, Any], datetime | None] | None:
        try:
            text = await self._client.get(self._prefix + key)
        except (self._errors, OSError) as error:
            raise self._unreachable(error) from error
        return None if text is None else (as_dict(decode(text), key), None)

    def _unreachable(self, error: Exception) -> BackendUnavailableError:
        return BackendUnavailableError(f"{self._name} cannot be read now: {type(error).__name__}")

    async def close(self) -> None:
        await self._client.aclose()
