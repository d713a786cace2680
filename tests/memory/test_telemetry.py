"""Spans and figures, as the SDK of OpenTelemetry gets them: what they count, and what they never hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError, ConflictError
from locus.memory import get_checkpointer
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer, SQLiteBackend, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.saver import CheckpointSaver
from locus.memory.store import CheckpointStore
from locus.memory.telemetry import ObservedStore, instrument
from tests.memory.test_cache import HoldingEngine

SECRET = "a-private-kangaroo"
UNMEASURED = {"refused", "search", "not_found", "other_namespaces"}
"""What a store has beside the verbs that are measured: they need nothing, or go through one of these."""
STATE = AgentState(agent_id="a").with_message(Message.user(SECRET))


class Measured:
    """What was exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meter_provider = MeterProvider([self._reader])

    @property
    def providers(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracer_provider, "meter_provider": self.meter_provider}

    def spans(self) -> list[ReadableSpan]:
        return [*self._spans.get_finished_spans()]

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """The attributes and the value (of a histogram, the count) of every figure, by its name."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "locus"
                for metric in scope.metrics:
                    found[metric.name] = [
                        (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", None)))
                        for point in metric.data.data_points
                    ]
        return found

    def total(self, name: str) -> int:
        return sum(value for _, value in self.points().get(name, ()))

    def text(self) -> str:
        return f"{[span.to_json() for span in self.spans()]}{self.points()}"


@pytest.fixture
def measured() -> Iterator[Measured]:
    made = Measured()
    yield made
    made.tracer_provider.shutdown()
    made.meter_provider.shutdown()


@pytest.fixture
async def checkpointer(measured: Measured, tmp_path: Path) -> Any:
    async with instrument(sqlite_checkpointer(tmp_path / f"{SECRET}.db"), **measured.providers) as handle:
        yield handle


async def test_every_verb_has_a_span_and_a_duration(checkpointer: Checkpointer, measured: Measured) -> None:
    one = await checkpointer.save(STATE, f"{SECRET}/1", metadata={"k": SECRET})
    two = await checkpointer.save(STATE.with_message(Message.assistant("yes")), f"{SECRET}/1")
    await checkpointer.load(f"{SECRET}/1")
    await checkpointer.load("not there")
    await checkpointer.exists(f"{SECRET}/1", one)
    await checkpointer.exists(f"{SECRET}/1")
    await checkpointer.get_metadata(f"{SECRET}/1")
    await checkpointer.list_checkpoints(f"{SECRET}/1")
    await checkpointer.search("kangaroo")
    await checkpointer.query_by_metadata("k", SECRET)
    await checkpointer.list_threads(pattern=f"{SECRET}*")
    await checkpointer.list_with_metadata()
    await checkpointer.list_namespaces(f"{SECRET}/1")
    await checkpointer.read_items(f"{SECRET}/1")
    await checkpointer.put_writes(f"{SECRET}/1", two, SECRET, [(SECRET, SECRET)])
    await checkpointer.get_writes(f"{SECRET}/1", two)
    await checkpointer.copy_thread(f"{SECRET}/1", f"{SECRET}/2")
    await checkpointer.diff(f"{SECRET}/1", one, two)
    await checkpointer.vacuum()
    await checkpointer.delete(f"{SECRET}/1")
    verbs = [
        "save", "save", "load", "load", "get_metadata", "history", "get_metadata", "history", "search",
        "query_by_metadata", "list_threads", "list_with_metadata", "list_namespaces", "read_items", "put_writes",
        "get_writes", "copy_thread", "diff", "vacuum", "delete",
    ]  # fmt: skip
    assert measured.names() == [f"locus.{verb}" for verb in verbs]
    assert {span.kind for span in measured.spans()} == {SpanKind.CLIENT}
    assert {(span.attributes or {})["locus.store"] for span in measured.spans()} == {"sqlite"}
    durations = {
        attributes["locus.operation"]: count for attributes, count in measured.points()["locus.operation.duration"]
    }
    assert durations == {verb: verbs.count(verb) for verb in verbs}
    for secret in (SECRET, one, two):
        assert secret not in measured.text()


async def test_saves_loads_and_bytes_are_counted(checkpointer: Checkpointer, measured: Measured) -> None:
    await checkpointer.save(STATE, "t")
    small = measured.total("locus.written")
    assert small > len(SECRET)
    long = STATE.with_message(Message.user("é" * 10_000))
    await checkpointer.save(long, "t", "c2")
    grown = measured.total("locus.written") - small
    assert 20_000 < grown < 20_000 + 2 * small, "only what is new, in bytes"
    await checkpointer.save(long, "t", "c2")  # which is there
    assert measured.total("locus.written") == small + grown
    assert measured.total("locus.saves") == 3
    checkpointer.cache_clear()
    assert await checkpointer.load("t") == long
    assert await checkpointer.load("none") is None
    loads = {attributes["locus.found"]: count for attributes, count in measured.points()["locus.loads"]}
    assert loads == {True: 1, False: 1}
    assert 20_000 < measured.total("locus.read") < 20_000 + 3 * small
    assert measured.spans()[1].attributes == {"locus.store": "sqlite", "locus.bytes": grown, "locus.attempts": 1}
    assert "locus.conflicts" not in measured.points()


async def test_what_a_handle_holds_is_counted(measured: Measured) -> None:
    async with instrument(Checkpointer(CheckpointStore(HoldingEngine())), **measured.providers) as handle:
        await handle.save(STATE, "t")
        for _ in range(2):
            await handle.load("t")
        handle.cache_clear()
        await handle.load("t")
        assert (measured.total("locus.cache.hits"), measured.total("locus.cache.misses")) == (2, 1)
        info = handle.cache_info()
        assert measured.total("locus.cache.size") == info.bytes > 0
        assert measured.total("locus.cache.entries") == info.entries == 1
    assert [(span.attributes or {}).get("locus.cache") for span in measured.spans()] == [None, "hit", "hit", "miss"]
    assert measured.total("locus.cache.size") == measured.total("locus.cache.entries") == 0
    assert 0 < measured.total("locus.read") < 4 * measured.total("locus.written")


async def test_a_conflict_is_counted_and_not_quoted(checkpointer: Checkpointer, measured: Measured) -> None:
    await checkpointer.save(STATE, SECRET, f"{SECRET}-1")
    with pytest.raises(ConflictError, match=SECRET):
        await checkpointer.save(STATE, SECRET, if_latest=f"{SECRET}-0")
    assert measured.total("locus.conflicts") == 1
    assert measured.total("locus.saves") == 1
    span = measured.spans()[-1]
    assert (span.status.status_code, span.status.description, list(span.events)) == (StatusCode.ERROR, None, [])
    assert (span.attributes or {})["error.type"] == "ConflictError"
    failed = [
        attributes for attributes, _ in measured.points()["locus.operation.duration"] if "error.type" in attributes
    ]
    assert failed == [{"locus.operation": "save", "locus.store": "sqlite", "error.type": "ConflictError"}]
    assert SECRET not in measured.text()


async def test_what_another_writer_makes_necessary_is_a_retry(
    checkpointer: Checkpointer, measured: Measured, tmp_path: Path
) -> None:
    await checkpointer.save(STATE, "t")
    async with sqlite_checkpointer(tmp_path / f"{SECRET}.db") as other:
        state = await other.load("t")
        assert state is not None
        await other.save(state.with_message(Message.user("first")), "t")
    await checkpointer.save(STATE.with_message(Message.user("second")), "t")
    assert measured.total("locus.retries") == 1
    assert (measured.spans()[-1].attributes or {})["locus.attempts"] == 2


async def test_an_outage_is_an_error_of_its_kind(measured: Measured) -> None:
    async with instrument(HTTPCheckpointer("http://127.0.0.1:1"), **measured.providers) as handle:
        with pytest.raises(BackendUnavailableError):
            await handle.load("t")
    (span,) = measured.spans()
    assert (span.attributes or {})["error.type"] == "HTTPUnavailableError"
    assert "locus.loads" not in measured.points()


async def test_a_span_is_a_child_of_the_programs_own(checkpointer: Checkpointer, measured: Measured) -> None:
    with measured.tracer_provider.get_tracer("program").start_as_current_span("turn") as turn:
        await checkpointer.load("t")
    load = measured.spans()[0]
    assert load.parent is not None
    assert load.parent.span_id == turn.get_span_context().span_id


async def test_every_face_of_a_store_is_measured(measured: Measured, tmp_path: Path) -> None:
    async with instrument(SQLiteBackend(tmp_path / "a.db"), **measured.providers) as backend:
        await backend.save("t", {"n": 1})
        assert await backend.load("t") == {"n": 1}
        saver = CheckpointSaver(backend)
        await saver.put(thread_id="t", checkpoint_id="c2", checkpoint_data={"n": 2})
    assert measured.names() == ["locus.save", "locus.load", "locus.save"]
    own = instrument(CheckpointSaver(MemoryCheckpointer()), **measured.providers)
    await own.put(thread_id="t", checkpoint_id="c1", checkpoint_data={"n": 1})
    assert (measured.spans()[-1].attributes or {})["locus.store"] == "memory"


def test_blocking_calls_are_measured(measured: Measured) -> None:
    with instrument(MemoryCheckpointer(), **measured.providers).sync as handle:
        handle.save(STATE, "t")
        assert handle.load("t") == STATE
    assert measured.names() == ["locus.save", "locus.load"]


async def test_a_measured_store_is_the_other_one_in_all_else(measured: Measured) -> None:
    plain = MemoryCheckpointer()
    store = plain.store
    handle = instrument(plain, **measured.providers)
    assert handle is plain
    observed = handle.store
    assert isinstance(observed, ObservedStore)
    assert instrument(handle).store is observed, "it is measured once"
    assert (observed.engine, observed.capabilities) == (store.engine, store.capabilities)
    assert observed.keeps_writes
    async with observed.using() as engine:
        assert engine is store.engine
    assert observed.ready is store.ready is True
    own = {name for name in vars(CheckpointStore) if not name.startswith("_")}
    assert own - vars(ObservedStore).keys() <= UNMEASURED


def test_what_is_no_handle_cannot_be_measured() -> None:
    wrong: Any = "sqlite:///agents.db"
    with pytest.raises(ConfigurationError, match="str is none"):
        instrument(wrong)


def test_without_it_nothing_of_it_is_imported(tmp_path: Path) -> None:
    """And where it is missing, the error says what to install."""
    script = f"""
import asyncio, sys
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.memory.telemetry import instrument
checkpointer = get_checkpointer("sqlite:{tmp_path / "t.db"}")
asyncio.run(checkpointer.save(AgentState(), "t"))
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
sys.modules["opentelemetry"] = None
try:
    instrument(checkpointer)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingDependencyError opentelemetry.trace is not installed: pip install")
    assert "[otel]" in done.stdout


def test_a_handle_by_its_name_can_be_measured(measured: Measured) -> None:
    handle = get_checkpointer("memory")
    assert isinstance(handle, Checkpointer)
    assert instrument(handle, **measured.providers).capabilities.search
