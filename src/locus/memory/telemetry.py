"""OpenTelemetry: a span and some figures for every operation of a handle. `instrument(handle)` turns it on.

A handle keeps its threads in a store, and every operation of every handle passes through that. `instrument` puts an
`ObservedStore` in its place, which measures and passes on. Nothing else knows of it; without it nothing is measured.

Attributes name the operation, the kind of store and the kind of error. They hold no ids, no payloads and no texts of
errors, which may quote either. docs/operations.md lists the names and units.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from locus.errors import ConfigurationError, ConflictError
from locus.extras import require
from locus.memory.checkpointer import StoreVerbs
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.plan import Payload
from locus.memory.model.records import (
    Commit,
    Outcome,
    Stored,
    TaskWrites,
    Write,
)
from locus.memory.model.sizes import text_bytes
from locus.memory.model.warm import LoadForm
from locus.memory.saver import CheckpointSaver
from locus.memory.store import CheckpointStore, Loaded, Saved

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

SCOPE = "locus"
OPERATION_ATTRIBUTE = "locus.operation"
STORE_ATTRIBUTE = "locus.store"
FOUND_ATTRIBUTE = "locus.found"
BYTES_ATTRIBUTE = "locus.bytes"
ATTEMPTS_ATTRIBUTE = "locus.attempts"
CACHE_ATTRIBUTE = "locus.cache"
ERROR_ATTRIBUTE = "error.type"

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=StoreVerbs | CheckpointSaver)


def instrument(
    handle: H, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> H:
    """Measure everything that a checkpointer, a storage backend or a saver does, and return it.

    Without providers, those that the program has set for OpenTelemetry are used. What was made of the handle before, an
    agent for instance, is not measured. A handle that is measured already stays as it is.
    """
    if not isinstance(handle, StoreVerbs | CheckpointSaver):
        raise ConfigurationError(f"a handle on a Locus store can be measured, and {type(handle).__name__} is none")
    if not isinstance(handle.store, ObservedStore):
        handle.store = ObservedStore(handle.store, Telemetry(handle.store, tracer_provider, meter_provider))
    return handle


class Telemetry:
    """The spans and figures of one store."""

    def __init__(
        self, store: CheckpointStore, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        require("opentelemetry.trace", "otel")
        from opentelemetry import metrics, trace

        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._client = trace.SpanKind.CLIENT
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._store = store.engine.identity.partition(":")[0]
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._seconds = meter.create_histogram("locus.operation.duration", "s", "How long an operation took")
        self._saves = meter.create_counter("locus.saves", "{save}", "Checkpoints saved")
        self._loads = meter.create_counter("locus.loads", "{load}", "Checkpoints asked for")
        self._conflicts = meter.create_counter("locus.conflicts", "{conflict}", "Saves refused because of another one")
        self._retries = meter.create_counter("locus.retries", "{retry}", "Times that a save was planned again")
        self._written = meter.create_counter("locus.written", "By", "What saves have sent to the store")
        self._read = meter.create_counter("locus.read", "By", "What loads have got from the store")
        self._hits = meter.create_counter("locus.cache.hits", "{load}", "Loads that read only what was new")
        self._misses = meter.create_counter("locus.cache.misses", "{load}", "Loads that read everything")
        self._held_bytes = meter.create_up_down_counter("locus.cache.size", "By", "What handles hold in memory")
        self._held_threads = meter.create_up_down_counter(
            "locus.cache.entries", "{thread}", "Threads of which handles hold something"
        )
        self._cache = store.cache
        self._told = (0, 0)

    @contextmanager
    def operation(self, name: str) -> Iterator[Span]:
        """Measure what is done inside."""
        attributes = {OPERATION_ATTRIBUTE: name, STORE_ATTRIBUTE: self._store}
        began = time.perf_counter()
        # What an exception says may quote an id, so the span does not get it.
        with self._tracer.start_as_current_span(
            f"locus.{name}",
            kind=self._client,
            attributes={STORE_ATTRIBUTE: self._store},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                attributes[ERROR_ATTRIBUTE] = type(error).__name__
                span.set_attribute(ERROR_ATTRIBUTE, type(error).__name__)
                span.set_status(self._failed)
                if isinstance(error, ConflictError):
                    self._conflicts.add(1, self._about())
                raise
            finally:
                self._seconds.record(time.perf_counter() - began, attributes)

    def saved(self, span: Span, saved: Saved) -> None:
        size = 0 if saved.commit is None else size_of_commit(saved.commit)
        span.set_attributes({BYTES_ATTRIBUTE: size, ATTEMPTS_ATTRIBUTE: saved.attempts})
        self._saves.add(1, self._about())
        self._written.add(size, self._about())
        if saved.attempts > 1:
            self._retries.add(saved.attempts - 1, self._about())

    def held(self) -> None:
        """Tell what has changed in the cache. As differences, because several handles add up."""
        info = self._cache.info()
        told, self._told = self._told, (info.bytes, info.entries)
        for counter, before, now in zip((self._held_bytes, self._held_threads), told, self._told, strict=True):
            if now != before:
                counter.add(now - before, self._about())

    def loaded(self, span: Span, stored: Stored | None, hit: bool | None = None) -> None:
        size = 0 if stored is None else size_of_stored(stored)
        if hit is not None:
            span.set_attribute(CACHE_ATTRIBUTE, "hit" if hit else "miss")
            (self._hits if hit else self._misses).add(1, self._about())
        span.set_attributes({BYTES_ATTRIBUTE: size, FOUND_ATTRIBUTE: stored is not None})
        self._loads.add(1, {**self._about(), FOUND_ATTRIBUTE: stored is not None})
        self._read.add(size, self._about())

    def _about(self) -> dict[str, str]:
        return {STORE_ATTRIBUTE: self._store}


def _measured(
    operation: str,
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    note: Callable[[Telemetry, Span, R], None] = lambda _telemetry, _span, _result: None,
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """A method of a store that is measured: it is called on the inner store, and its result is noted."""
    name = method.__name__

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._telemetry.operation(operation) as span:
            result: R = await getattr(self._inner, name)(*args, **kwargs)
            note(self._telemetry, span, result)
            return result

    return call


class ObservedStore(CheckpointStore):
    """A store that measures each operation, and passes it on to the store that it wraps."""

    def __init__(self, inner: CheckpointStore, telemetry: Telemetry) -> None:
        self._inner = inner
        self._telemetry = telemetry
        self.engine = inner.engine
        self.ttl_seconds = inner.ttl_seconds
        self.cache = inner.cache
        self.caches = inner.caches

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # of one that is only being made, by `copy` for instance
            raise AttributeError(name)
        return getattr(self._inner, name)

    def key_space(self, name: str) -> Self:
        return type(self)(self._inner.key_space(name), self._telemetry)

    def hold_nothing(self) -> None:
        self._inner.hold_nothing()
        self.caches = False

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        return self._inner.capabilities

    @property
    def keeps_writes(self) -> bool:
        return self._inner.keeps_writes

    @property
    def commits_with_writes(self) -> bool:
        return self._inner.commits_with_writes

    def task_writes(self, *args: Any) -> TaskWrites:
        return self._inner.task_writes(*args)

    def using(self) -> Any:
        return self._inner.using()

    async def save(self, thread_id: str, payload: Payload, **options: Any) -> Saved:
        with self._telemetry.operation("save") as span:
            saved = await self._inner.save(thread_id, payload, **options)
            self._telemetry.saved(span, saved)
            self._telemetry.held()
            return saved

    async def commit(self, commit: Commit) -> Outcome:
        return await self._inner.commit(commit)

    async def load(
        self,
        thread_id: str,
        checkpoint_id: str | None,
        namespace: str,
        form: LoadForm[R],
        writes: list[Write] | None = None,
    ) -> Loaded[R] | None:
        with self._telemetry.operation("load") as span:
            loaded = await self._inner.load(thread_id, checkpoint_id, namespace, form, writes)
            if loaded is None:
                self._telemetry.loaded(span, None)
            else:
                self._telemetry.loaded(span, loaded.sent, loaded.hit)
            self._telemetry.held()
            return loaded

    read = _measured("load", CheckpointStore.read, Telemetry.loaded)
    read_part = _measured("read_items", CheckpointStore.read_part, Telemetry.loaded)
    read_since = _measured("load", CheckpointStore.read_since, Telemetry.loaded)
    entry = _measured("get_metadata", CheckpointStore.entry)
    history = _measured("history", CheckpointStore.history)
    ancestors = _measured("history", CheckpointStore.ancestors)
    diff = _measured("diff", CheckpointStore.diff)
    compare = _measured("diff", CheckpointStore.compare)
    namespaces = _measured("list_namespaces", CheckpointStore.namespaces)
    delete = _measured("delete", CheckpointStore.delete)
    delete_found = _measured("delete", CheckpointStore.delete_found)
    confirm_deletions = _measured("delete", CheckpointStore.confirm_deletions)
    list_threads = _measured("list_threads", CheckpointStore.list_threads)
    unlisted_threads = _measured("list_threads", CheckpointStore.unlisted_threads)
    recent = _measured("list_with_metadata", CheckpointStore.recent)
    newest_threads = _measured("recent_threads", CheckpointStore.newest_threads)
    find = _measured("query_by_metadata", CheckpointStore.find)
    search_terms = _measured("search", CheckpointStore.search_terms)
    vacuum = _measured("vacuum", CheckpointStore.vacuum)
    sizes = _measured("sizes", CheckpointStore.sizes)
    copy = _measured("copy_thread", CheckpointStore.copy)
    put_writes = _measured("put_writes", CheckpointStore.put_writes)
    send_writes = _measured("put_writes", CheckpointStore.send_writes)
    get_writes = _measured("get_writes", CheckpointStore.get_writes)

    async def close(self) -> None:
        await self._inner.close()
        self._telemetry.held()


def size_of_commit(commit: Commit) -> int:
    """The bytes of what a commit sends to the store."""
    texts = (run.items for runs in (commit.runs, commit.values) for run in runs)
    return sum(map(text_bytes, (commit.metadata, commit.head, commit.manifest, *texts)))


def size_of_stored(stored: Stored) -> int:
    """The bytes of what a load gets from the store."""
    runs: Mapping[str, Any] = stored.runs
    texts = (run.items for found in runs.values() for run in found)
    return sum(map(text_bytes, (stored.head, *texts)))
