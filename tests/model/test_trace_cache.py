"""What a handle remembers of payloads that do not say where they come from: as much as it may weigh."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import Planner
from locus.memory.model.records import Base
from locus.memory.model.trace import Trace, TraceCache
from locus.memory.storage import StorageBackend

ITEMS: list[object] = [{"n": n, "text": "x" * 100} for n in range(50)]
TEXTS = {f"field {n}": f"{n}" + "x" * 900 for n in range(80)}
"""About 100 KB that stay in the head."""


def _trace(payload: dict[str, object]) -> Trace:
    return Trace(Base("c", "c"), Planner("c", None).plan(dict_payload(payload)).fields)


def _cache() -> TraceCache:
    return TraceCache(threading.Lock())


@pytest.mark.parametrize(
    "payload",
    [
        {"list": [{"n": n} for n in range(20_000)]},
        {"list": ITEMS, **{f"field {n}": f"{n}" + "x" * 900 for n in range(1_000)}},
        {"list": ITEMS, **{f"field {n}": n for n in range(5_000)}},
    ],
    ids=["digests", "texts", "fields"],
)
def test_a_trace_weighs_what_it_takes(payload: dict[str, object]) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        kept = _trace(payload).without_objects()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 3 < kept.weight < taken * 3


def test_texts_count_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceCache, "MAX_WEIGHT", 1_000_000)
    cache = _cache()
    for number in range(20):
        cache.put((f"t{number}", ""), _trace({"list": ITEMS, **TEXTS}))
    kept = [number for number in range(20) if cache.get((f"t{number}", "")) is not None]
    assert 5 < len(kept) < 12
    assert kept == list(range(20))[-len(kept) :]
    cache.put(("t19", ""), _trace({"n": 1}))
    assert cache.get(("t19", "")) is None, "it has nothing that could be compared"
    for number in range(20):
        cache.drop((f"t{number}", ""))
    assert cache._weight == 0


def test_one_that_is_too_heavy_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceCache, "MAX_WEIGHT", 1_000)
    cache = _cache()
    cache.put(("t", ""), _trace({"list": ITEMS, **TEXTS}))
    assert cache.get(("t", "")) is None
    assert cache._weight == 0


async def test_what_was_forgotten_is_saved_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceCache, "MAX_WEIGHT", 1_000)
    async with MemoryCheckpointer() as handle:
        backend = StorageBackend(handle.store)
        for number in range(4):
            payload = {"list": list(range(number * 10)), "text": "x" * 10_000}
            await backend.save("t", payload)
            assert await backend.load("t") == payload
