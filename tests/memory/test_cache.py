"""What a handle holds in memory: how much, for how long, and what loads make of it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError
from locus.memory import get_checkpointer
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend, sqlite_checkpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.backends.oci_bucket.config import OCIConfig
from locus.memory.backends.s3.config import S3Config
from locus.memory.cache import MOST_NOTES, LoadCache
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.manifest import newest_runs, visible, wanted
from locus.memory.model.payloads import dict_from, payload_text
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Run, Stored
from locus.memory.model.states import STATES, loaded_state
from locus.memory.model.warm import MANY_RUNS, TEXTS, HeldCheckpoint, LoadForm
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.testing.data import CHANGES, message
from locus.testing.laws.base import assert_same, assert_same_state, exact

R = TypeVar("R")


class HoldingEngine(MemoryEngine):
    """Sends what is new, as engines do: all of it, or only what is not hidden by something newer. Counts the runs."""

    def __init__(self, *, hidden_too: bool = True) -> None:
        super().__init__()
        self.hidden_too = hidden_too
        self.sent: list[int] = []
        self.lost: set[tuple[str, int]] = set()
        """Runs that get lost on the way."""

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        stored = await super().read(thread_id, namespace, checkpoint_id)
        if stored is not None:
            self.sent.append(sum(map(len, stored.runs.values())))
        return stored

    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        stored = await super().read(thread_id, namespace, checkpoint_id)
        known = await super().read(thread_id, namespace, held.checkpoint_id)
        if stored is None or known is None or known.entry.rev != held.rev:
            return stored
        newest = newest_runs([known.manifest])
        runs: dict[str, list[Run]] = {}
        for branch, found in stored.runs.items():
            runs[branch] = [run for run in found if run.number > newest.get(branch, -1)]
            if not self.hidden_too:
                extents = [extent for extent in wanted(stored.manifest) if extent.branch == branch]
                shown = {run.number for extent in extents for run, _, _ in visible(extent, found)}
                named = {extent.run for extent in extents}
                runs[branch] = [run for run in runs[branch] if run.number in shown | named]
            runs[branch] = [run for run in runs[branch] if (branch, run.number) not in self.lost]
        self.sent.append(sum(map(len, runs.values())))
        return replace(stored, runs={branch: found for branch, found in runs.items() if found}, since=held)


def opened(cache_mb: float = 64, *, hidden_too: bool = True) -> tuple[Checkpointer, HoldingEngine]:
    engine = HoldingEngine(hidden_too=hidden_too)
    return Checkpointer(CheckpointStore(engine, cache_mb=cache_mb)), engine


def on(engine: HoldingEngine, cache_mb: float = 64) -> Checkpointer:
    """One more handle."""
    return Checkpointer(CheckpointStore(engine, cache_mb=cache_mb))


def grown(state: AgentState, *numbers: int) -> AgentState:
    return state.with_messages([message(number) for number in numbers])


async def test_a_load_is_sent_only_what_is_new() -> None:
    checkpointer, engine = opened()
    writer, state = on(engine), AgentState()
    for turn in range(50):
        state = grown(state, 2 * turn, 2 * turn + 1)
        await writer.save(state, "t")
    for load in (checkpointer.load, StorageBackend(on(engine).store).load):
        engine.sent.clear()
        await load("t")
        await load("t")
        state = grown(state, 7)
        await writer.save(state, "t")
        await load("t")
        assert engine.sent[0] >= 50
        assert engine.sent[1:] == [0, 1]


async def test_what_a_handle_has_saved_is_not_sent_to_it() -> None:
    checkpointer, engine = opened()
    state = grown(AgentState(), 1, 2).with_metadata("large", "large " * 300)
    await checkpointer.save(state, "t")
    for turn in range(2 * MOST_NOTES):
        state = grown(state, turn)
        await checkpointer.save(state, "t")
    assert_same_state(await checkpointer.load("t"), state)
    loaded = await StorageBackend(checkpointer.store).load("t")
    assert loaded is not None
    assert engine.sent[0] == 0
    assert checkpointer.cache_info().hits == 1  # texts of what is decoded are not held twice


async def test_messages_are_shared_and_not_decoded_again() -> None:
    checkpointer, engine = opened()
    await on(engine).save(grown(AgentState(), *range(10)), "t")
    one = await checkpointer.load("t")
    assert one is not None
    await on(engine).save(grown(one, 11), "t")
    two = await checkpointer.load("t")
    assert two is not None
    assert all(mine is its for mine, its in zip(one.messages, two.messages, strict=False))
    assert len(two.messages) == 11


def _completed(form: LoadForm[R], sent: Stored, held: HeldCheckpoint) -> tuple[R, HeldCheckpoint | None] | None:
    """What is loaded and what is held then; None if what is held is of no use."""
    try:
        return form(sent, held)
    except CorruptCheckpointError:
        return None


def _traced(held: Any) -> Any:
    return {name: (field.text, field.cuts) for name, field in held.fields.items()}


@pytest.mark.parametrize("hidden_too", [True, False], ids=["all new runs", "only those that show something"])
@pytest.mark.parametrize("seed", range(4))
async def test_any_checkpoint_is_completed_from_any_other_or_not_at_all(seed: int, hidden_too: bool) -> None:
    """Forward and backward, over forks and deletions; and what is held afterwards serves the next."""
    draw = random.Random(seed)
    checkpointer, engine = opened(hidden_too=hidden_too)
    states, saved, count = [AgentState()], list[str](), iter(range(10_000))
    for turn in range(12):
        state = draw.choice(states[-2:])
        change = draw.choice([*CHANGES, *["append", "edit last"] * 4])
        match draw.choice(["messages", "messages", "metadata", "extra"]):
            case "messages":
                fresh = tuple(message(next(count)) for _ in range(3))
                state = state.with_messages_replaced(CHANGES[change](state.messages, fresh))
            case "metadata":
                entries = [{"n": next(count), "large": "x" * 1_100 * (turn % 2)} for _ in range(3)]
                log = CHANGES[change](list(state.metadata.get("log", [])), entries)
                table = {f"key {number}": "value" for number in range(80)}  # a large value with a list inside
                deep = {"note": "y" * 1_100, "log": list(log)[:2]}
                state = state.with_metadata({"log": log, "deep": deep, "table": {**table, "log": list(log)}})
            case _:
                log = CHANGES[change](list((state.__pydantic_extra__ or {}).get("total_tokens", [])), ["z" * 70] * 3)
                state = state.model_copy(update={"total_tokens": log, "summary": "s" * draw.choice([9, 1_200])})
        saved.append(await checkpointer.save(state, "t"))
        states.append(state)
        if turn % 5 == 4:
            await checkpointer.delete("t", saved.pop(draw.randrange(len(saved))))
    wholes: dict[str, Stored] = {}
    for checkpoint_id in saved:
        found = await MemoryEngine.read(engine, "t", DEFAULT_NAMESPACE, checkpoint_id)
        assert found is not None
        wholes[checkpoint_id] = found
    hits = 0
    for name, whole in wholes.items():
        state, trace = loaded_state(whole)
        assert repr(state) == repr(AgentState.model_validate_json(payload_text(whole)))
        for base in wholes.values():
            _, held = STATES(base, None)
            assert held is not None
            for _ in range(2):
                sent = await engine.read_since("t", DEFAULT_NAMESPACE, name, held.base)
                assert sent is not None
                completed = _completed(STATES, sent, held)
                if completed is None:
                    break
                hits += 1
                (found_state, found_trace), held = completed
                assert held is not None
                assert repr(found_state) == repr(state)
                assert found_state.model_fields_set == state.model_fields_set
                assert (found_trace.base, found_trace.passed) == (trace.base, trace.passed)
                assert {key: field.cuts.keys() for key, field in found_trace.fields.items()} == {
                    key: field.cuts.keys() for key, field in trace.fields.items()
                }
                if hidden_too:
                    assert _traced(found_trace) == _traced(trace)
            _, texts = TEXTS(base, None)
            assert texts is not None
            sent = await engine.read_since("t", DEFAULT_NAMESPACE, name, texts.base)
            assert sent is not None
            merged = _completed(TEXTS, sent, texts)
            if merged is not None:
                hits += 1
                assert exact(dict_from(merged[0])) == exact(dict_from(whole))
    assert hits > len(wholes) ** 2, "most are completed"


async def test_a_run_that_got_lost_between_two_is_noticed() -> None:
    """The last message was edited, and another one added. If the edit is not sent, only its number is missing."""
    checkpointer, engine = opened()
    writer = on(engine)
    state = grown(AgentState(), 1, 2, 3)
    await writer.save(state, "t")
    assert await checkpointer.load("t") == state
    edited = state.with_messages_replaced(state.messages[:-1] + (Message.user("another"),))
    await writer.save(edited, "t")
    state = grown(edited, 4)
    await writer.save(state, "t")
    (branch,) = newest_runs([(await _stored(engine)).manifest])
    engine.lost = {(branch, 1)}
    engine.sent.clear()
    assert_same_state(await checkpointer.load("t"), state)
    assert engine.sent == [1, 3], "what was sent was not trusted"


async def _stored(engine: HoldingEngine) -> Stored:
    stored = await MemoryEngine.read(engine, "t", DEFAULT_NAMESPACE, None)
    assert stored is not None
    return stored


async def test_what_cannot_be_completed_is_read_whole_once_before_it_is_damage() -> None:
    checkpointer, engine = opened()
    state = grown(AgentState(), 1, 2)
    await checkpointer.save(state, "t")
    await checkpointer.load("t")
    state = grown(state, 3)
    await on(engine).save(state, "t")
    (branch,) = newest_runs([(await _stored(engine)).manifest])
    engine.lost = {(branch, 1)}
    engine.sent.clear()
    assert_same_state(await checkpointer.load("t"), state)
    assert engine.sent == [0, 2]
    await on(engine).save(grown(state, 4), "t")
    runs = engine._tables["t"].runs
    for branch, found in runs.items():
        runs[branch] = [run._replace(items=run.items[:-2]) for run in found]
    with pytest.raises(CorruptCheckpointError):
        await checkpointer.load("t")


async def test_the_texts_of_a_long_thread_are_gathered() -> None:
    checkpointer, engine = opened()
    backend, writer = StorageBackend(checkpointer.store), StorageBackend(on(engine).store)
    data: dict[str, Any] = {"items": [], "log": [{"n": 0, "text": "a" * 60}]}
    for turn in range(MANY_RUNS + 30):
        data["items"].append({"turn": turn, "text": "b" * 60})
        await writer.save("t", data)
    for turn in range(3):
        data["items"] = [*data["items"][turn:-1], {"turn": "edited"}, {"turn": "added", "text": "c" * 60}]
        await writer.save("t", data)
        assert_same(await backend.load("t"), data)
    held = checkpointer.store.cache.get(("t", DEFAULT_NAMESPACE))
    assert held is not None
    assert all(len(runs) < MANY_RUNS for runs in held.runs.values())
    data["items"][5] = {"turn": "edited far from the end"}
    await writer.save("t", data)
    assert_same(await backend.load("t"), data)


async def test_the_cache_is_bounded_and_the_longest_unused_go_first() -> None:
    checkpointer, _ = opened(cache_mb=0.05)
    states = {f"t{number}": grown(AgentState(), *range(20)) for number in range(30)}
    for thread_id, state in states.items():
        await checkpointer.save(state, thread_id)
        await checkpointer.load("t0")
        info = checkpointer.cache_info()
        assert 0 < info.bytes <= info.max_bytes == int(0.05 * 1024 * 1024)
    assert info.entries < 30
    before = checkpointer.cache_info()
    await checkpointer.load("t0")  # used all the time
    await checkpointer.load("t1")  # long gone
    after = checkpointer.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (1, 1)
    await checkpointer.save(grown(AgentState(), *range(1_000)), "large")
    await checkpointer.load("large")
    assert checkpointer.cache_info().entries == after.entries, "more than half of the cache is not kept"


async def test_notes_of_saves_do_not_pile_up() -> None:
    checkpointer, _ = opened()
    state = AgentState()
    for turn in range(3 * MOST_NOTES):
        state = grown(state, turn)
        await checkpointer.save(state, f"t{turn % 3}")
        assert len(checkpointer.store.cache.notes) < MOST_NOTES
    await checkpointer.save(state.with_message(Message.user("x" * 100_000)), "large")
    assert not checkpointer.store.cache.notes


async def test_a_load_does_not_undo_what_a_save_has_left() -> None:
    """It was begun before the save, and has an older checkpoint in its hands."""
    checkpointer, _ = opened()
    state = grown(AgentState(), 1)
    await checkpointer.save(state, "t")
    cache = checkpointer.store.cache
    seen = cache.get(("t", DEFAULT_NAMESPACE))
    assert seen is not None
    saved_as = await checkpointer.save(grown(state, 2), "t")
    cache.put(("t", DEFAULT_NAMESPACE), seen, seen)
    held = cache.get(("t", DEFAULT_NAMESPACE))
    assert held is not None
    assert held.base.checkpoint_id == saved_as


async def test_a_closed_handle_holds_nothing() -> None:
    checkpointer, _ = opened()
    await checkpointer.save(grown(AgentState(), 1), "t")
    await checkpointer.load("t")
    assert checkpointer.cache_info().entries == 1
    await checkpointer.close()
    assert checkpointer.cache_info()[2:4] == (0, 0)


async def test_a_cache_of_no_size_holds_nothing() -> None:
    checkpointer, engine = opened(cache_mb=0)
    state = grown(AgentState(), 1)
    await checkpointer.save(state, "t")
    for _ in range(2):
        assert_same_state(await checkpointer.load("t"), state)
    assert checkpointer.cache_info() == (0, 0, 0, 0, 0)
    assert engine.sent == [1, 1]


def test_the_blocking_face_tells_of_the_cache() -> None:
    engine = HoldingEngine()
    checkpointer = on(engine)
    with checkpointer.sync as blocking:
        blocking.save(grown(AgentState(), 1), "t")
        blocking.load("t")
        assert blocking.cache_info()[:3] == (1, 0, 1)
        blocking.cache_clear()
        assert StorageBackend(checkpointer.store).sync.cache_info().entries == 0


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, "64", None, True])
def test_a_size_that_is_none_is_refused(value: Any, tmp_path: Path) -> None:
    for make in (MemoryCheckpointer, LoadCache):
        with pytest.raises(ConfigurationError, match="cache_mb must be a number of megabytes from 0 on"):
            make(**({"megabytes": value} if make is LoadCache else {"cache_mb": value}))
    for opening in (SQLiteBackend, sqlite_checkpointer):
        with pytest.raises(ConfigurationError, match="cache_mb"):
            opening(tmp_path / "a.db", cache_mb=value)
    with pytest.raises(ConfigurationError, match="cache_mb"):
        FileCheckpointer(tmp_path / "a", cache_mb=value)


URLS = {
    "memory": "memory:?",
    "file": "file:{folder}?",
    "sqlite": "sqlite:{folder}/a.db?",
    "postgresql": "postgresql://u@h/d?",
    "mysql": "mysql://u@h/d?",
    "oracle": "oracle://u@h/s?",
    "redis": "redis://h?",
    "valkeys": "valkeys://h?",
    "opensearch": "opensearch://h/index?",
    "http": "http://h:1/path?",
    "https": "https://h?",
}


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_every_url_says_how_much_may_be_held(url: str, tmp_path: Path) -> None:
    url = url.format(folder=tmp_path)
    megabyte = 1024 * 1024
    assert get_checkpointer(url.rstrip("?")).cache_info().max_bytes == 256 * megabyte
    assert get_checkpointer(f"{url}cache_mb=1.5").cache_info().max_bytes == 1.5 * megabyte
    assert get_checkpointer(url.rstrip("?"), cache_mb=64).cache_info().max_bytes == 64 * megabyte
    for wrong in ("-1", "nan", "much"):
        with pytest.raises(ConfigurationError, match="cache_mb"):
            get_checkpointer(f"{url}cache_mb={wrong}")


def test_urls_of_buckets_say_how_much_may_be_held() -> None:
    assert S3Config.from_url("s3://bucket?cache_mb=8", endpoint_url="http://h:1").cache_mb == 8
    assert S3Config.from_url("s3://bucket", endpoint_url="http://h:1", cache_mb=0).cache_mb == 0
    assert OCIConfig.from_url("oci://ns/bucket?cache_mb=8").cache_mb == 8
    assert OCIConfig.from_url("oci://ns/bucket").cache_mb == 256


@pytest.mark.parametrize("kept", [1, 63, 64, 65, 128, 256])
async def test_a_list_that_slides_is_loaded_warm(kept: int) -> None:
    """What was trimmed leaves nothing behind, however the runs of the rest are gathered."""
    backend = StorageBackend(CheckpointStore(MemoryEngine()))
    expected: list[Any] = []
    for number in range(400):
        found = await backend.load("t") or {"log": []}
        assert found["log"] == expected
        expected = [*expected, {"n": number}][-kept:]
        await backend.save("t", {"log": expected})
