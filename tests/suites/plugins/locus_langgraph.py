"""A plugin of pytest: LangGraph's tests with `LocusSaver` and `LocusCache` where they use SQLite."""

from __future__ import annotations

import os
import tempfile
from typing import Any
from uuid import uuid4

import langgraph.cache.sqlite
import langgraph.checkpoint.sqlite
import langgraph.checkpoint.sqlite.aio

from locus.integrations.langgraph import LocusCache, LocusSaver

_FOLDER = tempfile.TemporaryDirectory(prefix="locus-suites-")


def _url() -> str:
    """A new store for each test: LangGraph's own is `:memory:`."""
    name = f"t{uuid4().hex[:12]}"
    store = os.environ.get("LOCUS_SUITE_STORE", "sqlite")
    return f"sqlite:{_FOLDER.name}/{name}.db" if store == "sqlite" else store.format(name=name)


class Saver(LocusSaver):
    """`LocusSaver` with the arguments that the tests give to `SqliteSaver`."""

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> LocusSaver:  # type: ignore[override]
        return LocusSaver(_url(), **options)


def _cache(*, path: str, **options: Any) -> LocusCache[Any]:
    return LocusCache(_url(), **options)


langgraph.checkpoint.sqlite.SqliteSaver = Saver  # type: ignore[misc, assignment]
langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver = Saver  # type: ignore[misc, assignment]
langgraph.cache.sqlite.SqliteCache = _cache  # type: ignore[misc, assignment]
