"""What a handle remembers of payloads that do not say where they come from: as much as it may weigh."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.cache import TraceCache, weight_of_trace
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import Planner
from locus.memory.model.records import Base
from locus.memory.model.trace import Trace
from locus.memory.storage import StorageBackend

ITEMS: list[object] = [{"n": n, "text": "x" * 100} for n in range(50)]
TEXTS = {f"field {n}": f"{n}" + "x" * 900 for n in range(80)}
"""About 100 KB that stay in the head."""


def _trace(payload: dict[str, object]) -> Trace:
    return Trace(Base("c", "c"), Planner("c", None).plan(dict_payload(payload)).fields)


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
    assert taken / 3 < weight_of_trace(kept) < taken * 3


def test_texts_count_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceCache, "MAX_WEIGHT", 1_000_000)
    cache = TraceCache()
    for number in range(20):
        cache.put((f"t{number}", ""), _trace({"list": ITEMS, **TEXTS}))
    kept = [number for number in range(20) if cache.known.get((f"t{number}", "")) is not None]
    assert 5 < len(kept) < 12
    assert kept == list(range(20))[-len(kept) :]
    for number in range(20):
        cache.drop((f"t{number}", ""))
    assert cache._weight == 0


def test_one_that_is_too_heavy_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceCache, "MAX_WEIGHT", 1_000)
    cache = TraceCache()
    cache.put(("t", ""), _trace({"list": ITEMS, **TEXTS}))
    assert cache.known.get(("t", "")) is None
    assert cache._weight == 0


async def test_what_was_forgotten_is_saved_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceCache, "MAX_WEIGHT", 1_000)
    async with MemoryCheckpointer() as handle:
        backend = StorageBackend(handle.store)
        for number in range(4):
            payload = {"list": list(range(number * 10)), "text": "x" * 10_000}
            await backend.save("t", payload)
            assert await backend.load("t") == payload


async def test_a_payload_without_anything_to_compare_is_not_remembered() -> None:
    async with MemoryCheckpointer() as handle:
        backend, known = StorageBackend(handle.store), handle.store._traces.known
        await backend.save("t", {"list": ITEMS})
        assert [*known] == [("t", "default")]
        await backend.save("t", {"n": 1})
        assert not known, "the next payload is not compared with an older checkpoint"
