"""A plugin of pytest: the tests of LangGraph's stores with `LocusStore` in the place of theirs."""

from __future__ import annotations

import os
import tempfile
from typing import Any, ClassVar
from uuid import uuid4

import langgraph.store.memory
import langgraph.store.postgres
import langgraph.store.postgres.aio
import langgraph.store.sqlite
import langgraph.store.sqlite.aio

from locus.integrations.langgraph_store import LocusStore

_FOLDER = tempfile.TemporaryDirectory(prefix="locus-suites-")
_FILES: dict[str, str] = {}
"""The URL of the store that takes the place of a file."""


def _url(place: str) -> str:
    """A new store for each test, but the same one for the same file or database."""
    store, name = os.environ.get("LOCUS_SUITE_STORE", "sqlite"), f"t{uuid4().hex[:12]}"
    if place.startswith("postgres"):
        return place
    url = f"sqlite:{_FOLDER.name}/{name}.db" if store == "sqlite" else store.format(name=name)
    return url if place == ":memory:" else _FILES.setdefault(place, url)


class Store(LocusStore):
    """`LocusStore` with the arguments that the tests give to LangGraph's stores."""

    MIGRATIONS: ClassVar[list[str]] = []

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> LocusStore:  # type: ignore[override]
        theirs = ("pipeline", "pool_config")
        return cls(_url(conn_string), **{name: value for name, value in options.items() if name not in theirs})

    def _cursor(self) -> _Nothing:
        """The tests change a column of LangGraph's table first."""
        return _Nothing()


class _Nothing:
    async def __aenter__(self) -> _Nothing:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def execute(self, _: str) -> None:
        pass


class MemoryStore(Store):
    def __init__(self, *, index: Any = None) -> None:
        super().__init__(_url(":memory:"), **({} if index is None else {"index": index}))


def pytest_plugin_registered(plugin: object) -> None:
    """Let the tests for PostgreSQL use the server that was given."""
    if hasattr(plugin, "DEFAULT_URI") and "LOCUS_SUITE_SERVER" in os.environ:
        plugin.DEFAULT_URI = os.environ["LOCUS_SUITE_SERVER"]


langgraph.store.memory.InMemoryStore = MemoryStore  # type: ignore[misc, assignment]
for module in (langgraph.store.sqlite, langgraph.store.sqlite.aio):
    module.AsyncSqliteStore = Store  # type: ignore[attr-defined]
for module in (langgraph.store.postgres, langgraph.store.postgres.aio):
    module.AsyncPostgresStore = Store  # type: ignore[attr-defined]
langgraph.store.sqlite.SqliteStore = Store  # type: ignore[misc, assignment]
langgraph.store.postgres.PostgresStore = Store  # type: ignore[misc, assignment]
