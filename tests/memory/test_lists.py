"""Lists of threads through every face of a store."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import CheckpointSaver, RecentThreads, ThreadSummary
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.storage import StorageBackend
from locus.memory.telemetry import instrument

NAMES = ["a/1", "a/2", "b/1"]


def _state(name: str) -> AgentState:
    return AgentState().with_message(Message.user(f"about {name}"))


def test_every_face_lists_the_same() -> None:
    checkpointer = MemoryCheckpointer()
    for name in NAMES:
        checkpointer.sync.save(_state(name), name, metadata={"k": "v"})
    saver = CheckpointSaver(checkpointer)
    for face in (checkpointer.sync, StorageBackend(checkpointer.store).sync, saver.sync):
        assert face.list_threads(limit=1, after="a/1") == ["a/2"]
        assert face.list_threads(prefix="a/", pattern="*1") == ["a/1"]
        page = face.recent_threads(limit=2, titles=True)
        assert isinstance(page, RecentThreads)
        assert [(one.thread_id, one.count, one.title) for one in page.threads] == [
            ("b/1", 1, "about b/1"),
            ("a/2", 1, "about a/2"),
        ]
        assert page.more
        (last,) = face.recent_threads(limit=2, before=page.next).threads
        assert isinstance(last, ThreadSummary)
        assert (last.thread_id, last.title, last.last.metadata) == ("a/1", None, {"k": "v"})
        assert [one.thread_id for one in face.recent_threads(prefix="b").threads] == ["b/1"]
    for verbs in (checkpointer.sync, saver.backend.sync):
        assert [one["thread_id"] for one in verbs.list_with_metadata(prefix="a/")] == ["a/2", "a/1"]
        assert [one["thread_id"] for one in verbs.query_by_metadata("k", "v", prefix="a/")] == ["a/2", "a/1"]
        assert {one["thread_id"] for one in verbs.search("about", prefix="a/")} == {"a/1", "a/2"}


async def test_lists_are_measured(tmp_path: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with instrument(sqlite_checkpointer(tmp_path / "a.db"), tracer_provider=provider) as checkpointer:
        await checkpointer.save(_state("a/1"), "a/1")
        assert await checkpointer.list_threads(after="a", prefix="a/") == ["a/1"]
        assert (await checkpointer.recent_threads(prefix="a/")).threads[0].count == 1
        assert (await checkpointer.recent_threads(titles=True)).threads[0].title == "about a/1"
        assert await checkpointer.search("about", prefix="b") == []
    names = [span.name.removeprefix("locus.") for span in exporter.get_finished_spans()]
    assert names == ["save", "list_threads", "recent_threads", "recent_threads", "read_items", "search"]
