"""Public methods that only the backends on SQL servers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory.backends.sql.engine import SQLServerEngine
from locus.memory.checkpointer import entry_dict
from locus.memory.model.arguments import UNLIMITED, checked_limit
from locus.memory.model.codec import canonical, decode
from locus.memory.model.ids import check_pattern
from locus.memory.runtime.once import made_once
from locus.memory.storage import StorageBackend
from locus.memory.sync import SyncBackend


class ServerAddress(Protocol):
    """The settings of a server that its backend shows."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def database(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def password(self) -> SecretStr: ...
    @property
    def table_name(self) -> str: ...
    @property
    def ttl_seconds(self) -> float | None: ...


class SQLBackend(StorageBackend):
    """Plain dicts in an SQL server."""

    @property
    def _engine(self) -> SQLServerEngine[Any]:
        return cast(SQLServerEngine[Any], self.store.engine)

    async def search_data(self, path: str | Sequence[str], value: Any, limit: int = 100) -> list[dict[str, Any]]:
        """Find checkpoints whose payload has `value` at `path`, newest first, like those of `query_by_metadata`.

        The path is keys with dots between them (`"agent_id"`, `"metadata.user.id"`), or a list of keys if one of them
        contains a dot. A list in the payload stands for each of its items: `"messages.role"` is the role of every
        message. A dict as the value matches a dict that has at least the same keys and values.
        """
        keys = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
        if not keys or not all(isinstance(key, str) and key for key in keys):
            raise ConfigurationError(f"path is keys with dots between them, or a list of keys, got {path!r:.80}")
        wanted = decode(canonical(value, ("value",)))
        async with self.store.using():
            entries = await self._engine.search_data(keys, wanted, checked_limit(limit, UNLIMITED))
        return [entry_dict(entry) for entry in entries]

    async def count(self, pattern: str = "*") -> int:
        """Count the checkpoints of all threads whose ids match the pattern."""
        matching = check_pattern(pattern)
        async with self.store.using():
            return await self._engine.count(matching)

    @made_once
    def sync(self) -> SyncSQLBackend:
        return SyncSQLBackend(self)


class ConfiguredBackend(SQLBackend):
    """An SQL backend that finds its server by a `config`, and shows the options it was given."""

    if TYPE_CHECKING:  # a subclass that is a pydantic model would make a field of it
        config: ServerAddress

    @property
    def host(self) -> str:
        return self.config.host

    @property
    def port(self) -> int:
        return self.config.port

    @property
    def database(self) -> str:
        return self.config.database

    @property
    def user(self) -> str:
        return self.config.user

    @property
    def password(self) -> SecretStr:
        return self.config.password

    @property
    def table_name(self) -> str:
        return self.config.table_name

    @property
    def ttl_seconds(self) -> float | None:
        return self.config.ttl_seconds


class SyncSQLBackend(SyncBackend):
    """A blocking `SQLBackend`."""

    def __init__(self, backend: SQLBackend) -> None:
        super().__init__(backend)
        self._backend = backend

    def search_data(self, path: str | Sequence[str], value: Any, limit: int = 100) -> list[dict[str, Any]]:
        return self._run(self._backend.search_data(path, value, limit))

    def count(self, pattern: str = "*") -> int:
        return self._run(self._backend.count(pattern))
