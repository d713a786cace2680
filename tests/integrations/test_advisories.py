"""What published advisories of the field describe, tried here. docs/security.md says which is tried where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from locus.errors import SerializationError
from locus.integrations.langgraph import LocusSaver
from locus.integrations.langgraph_store.store import LocusStore
from locus.memory.backends import sqlite_checkpointer
from tests.integrations.langgraph.graphs import thread

INJECTIONS = [
    "x') OR '1'='1",
    "x') OR 1=1 --",
    "x') UNION SELECT * FROM locus_checkpoints --",
    'x" OR "1"="1',
    "'; DROP TABLE locus_checkpoints; --",
    "$.user",
    "user",
    "*",
    "x}) | (@user:{*",
    "@user:{eve}",
    "\\",
    "\0",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


@pytest.fixture
def saver(path: Path) -> Iterator[LocusSaver]:
    with LocusSaver(f"sqlite:{path}") as saver:
        yield saver


@pytest.mark.parametrize("injection", INJECTIONS)
def test_keys_and_values_of_a_filter_are_data(saver: LocusSaver, injection: str) -> None:
    """As CVE-2025-67644 and CVE-2026-27022, in which the keys of a filter became part of a query."""
    config = thread(checkpoint_ns="")
    saver.put(config, empty_checkpoint(), {"user": "eve"}, {})  # type: ignore[typeddict-unknown-key]
    for wanted in ({injection: "dummy"}, {"user": injection}, {"user": "eve", injection: 1}):
        if wanted != {"user": "eve"}:
            assert list(saver.list(None, filter=wanted)) == []
            assert list(saver.list(thread(), filter=wanted)) == []
    marked = saver.put(config, empty_checkpoint(), {injection: "dummy"}, {})  # type: ignore[misc]
    (found,) = saver.list(None, filter={injection: "dummy"})
    assert found.config["configurable"]["checkpoint_id"] == marked["configurable"]["checkpoint_id"]


@pytest.mark.parametrize("injection", INJECTIONS)
async def test_filters_of_a_store_are_data(path: Path, injection: str) -> None:
    """As CVE-2025-8709 and CVE-2025-64104: operators and keys of a filter that became part of a query."""
    async with sqlite_checkpointer(path) as checkpointer:
        store = LocusStore(checkpointer)
        await store.aput(("docs",), "a", {"user": "eve", "n": 1})
        await store.aput(("docs",), "b", {"nested": {injection: "x"}})
        for wanted in (
            {injection: "dummy"},
            {"user": {"$eq": injection}},
            {injection: {"$gt": 5}},
            {"user": injection},
        ):
            assert await store.asearch(("docs",), filter=wanted) == []
        assert len(await store.asearch(("docs",))) == 2


def test_a_text_that_cannot_be_written_is_refused_and_not_written_in_another_way(saver: LocusSaver) -> None:
    """As CVE-2025-64439, in which a lone surrogate led to a format that runs code when it is read."""
    armed = {"lc": 2, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"text": "\ud800", "armed": armed}
    checkpoint["channel_versions"] = {"text": 1, "armed": 1}
    with pytest.raises(SerializationError, match="lone surrogate"):
        saver.put(thread(checkpoint_ns=""), checkpoint, {}, {"text": 1, "armed": 1})
    assert list(saver.list(None)) == []
