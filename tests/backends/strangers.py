"""Key-value objects of other people: five plain methods, async or not, and one that fails."""

from __future__ import annotations

import copy
from typing import Any


class SyncStore:
    """The five methods, blocking."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.log: list[str] = []

    def save(self, key: str, data: dict[str, Any]) -> None:
        self.log.append(f"save {key}")
        self.data[key] = copy.deepcopy(data)

    def load(self, key: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.data.get(key))

    def delete(self, key: str) -> bool:
        self.log.append(f"delete {key}")
        return self.data.pop(key, None) is not None

    def exists(self, key: str) -> bool:
        return key in self.data

    def list_threads(self) -> list[str]:
        return list(self.data)


class AsyncStore:
    """The same, to be awaited."""

    def __init__(self) -> None:
        self._inner = SyncStore()
        self.data = self._inner.data
        self.log = self._inner.log

    async def save(self, key: str, data: dict[str, Any]) -> None:
        self._inner.save(key, data)

    async def load(self, key: str) -> dict[str, Any] | None:
        return self._inner.load(key)

    async def delete(self, key: str) -> bool:
        return self._inner.delete(key)

    async def exists(self, key: str) -> bool:
        return self._inner.exists(key)

    async def list_threads(self) -> list[str]:
        return self._inner.list_threads()


class FourMethods:
    """A store that cannot list."""

    def __init__(self) -> None:
        self._inner = SyncStore()
        self.data = self._inner.data
        self.save = self._inner.save
        self.load = self._inner.load
        self.delete = self._inner.delete
        self.exists = self._inner.exists


class Talented(FourMethods):
    """A store with methods that only it knows."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Any, ...]] = []

    async def search(self, query: str, limit: int) -> list[dict[str, Any]]:
        self.asked.append(("search", query, limit))
        return [{"thread_id": "t", "score": 1.0}]

    def query_by_metadata(self, key: str, value: Any, limit: int) -> list[dict[str, Any]]:
        self.asked.append(("query_by_metadata", key, value, limit))
        return [{"thread_id": "t"}]

    async def vacuum(self, older_than_days: float) -> int:
        self.asked.append(("vacuum", older_than_days))
        return 7

    def list_with_metadata(self, limit: int) -> list[dict[str, Any]]:
        self.asked.append(("list_with_metadata", limit))
        return [{"thread_id": "t"}]


class Failing(SyncStore):
    """A store that raises, once it is told to."""

    SECRET = "connection to db://user:s3cret@host refused"

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.methods = methods
        self.broken = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("save", "load", "delete", "list_threads") and self.broken and name in self.methods:
            return self._fail
        return found

    def _fail(self, *_args: Any, **_options: Any) -> Any:
        raise ConnectionError(self.SECRET)

    search = query_by_metadata = _fail
