"""Metadata queries: values are matched exactly, under keys that are only text."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError, LocusError, SerializationError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import EXACT_VALUES, HOSTILE_IDS, HOSTILE_KEYS, at
from locus.testing.laws.base import Clock, Laws, assert_same, dicts, exact

_DISTINCT: tuple[Any, ...] = (
    1, "1", 1.0, True, 0, False, 0.0, -0.0, None, "", [], {}, [1], ["1"], [1.0], [[1]], {"a": 1}, {"a": "1"},
    {"a": 1, "b": None}, {"a": {"a": 1}}, "null", "true", "[]", "%", "_", "*", "a", "A", "a ", "é", "e\u0301", "\0",
    2**70, 1e22, 10**22,
)  # fmt: skip


async def _threads_with(handle: Checkpointer, key: str, value: Any) -> list[str]:
    return sorted(found["thread_id"] for found in await handle.query_by_metadata(key, value, 1_000))


class MetadataLaws(Laws):
    """`query_by_metadata`, `get_metadata` and `list_with_metadata` match values exactly."""

    queried_every: ClassVar[int] = 1
    """Query every nth of the stored values: more than 1 where a query takes long."""

    async def test_a_value_is_matched_exactly(self, checkpointer: Checkpointer) -> None:
        for index, value in enumerate(_DISTINCT):
            await dicts(checkpointer).save(f"t{index}", {}, metadata={"key": value, "other": "x"})
        await dicts(checkpointer).save("missing", {}, metadata={"other": "x"})
        await dicts(checkpointer).save("none at all", {})
        for index, value in [*enumerate(_DISTINCT)][:: self.queried_every]:
            assert await _threads_with(checkpointer, "key", value) == [f"t{index}"], repr(value)
        assert await _threads_with(checkpointer, "key", "nothing has this") == []
        assert len(await _threads_with(checkpointer, "other", "x")) == len(_DISTINCT) + 1

    async def test_every_value_can_be_queried(self, checkpointer: Checkpointer) -> None:
        for index, value in enumerate(EXACT_VALUES):
            await dicts(checkpointer).save(f"t{index}", {}, metadata={"key": value})
        for index, value in [*enumerate(EXACT_VALUES)][:: self.queried_every]:
            expected = sorted(f"t{i}" for i, other in enumerate(EXACT_VALUES) if exact(other) == exact(value))
            assert await _threads_with(checkpointer, "key", value) == expected, index

    async def test_the_order_of_keys_in_a_value_does_not_count(self, checkpointer: Checkpointer) -> None:
        await dicts(checkpointer).save("t", {}, metadata={"key": {"a": 1, "b": {"c": 2, "d": 3}}})
        assert await _threads_with(checkpointer, "key", {"b": {"d": 3, "c": 2}, "a": 1}) == ["t"]

    async def test_keys_are_data(self, checkpointer: Checkpointer) -> None:
        names = sorted({*HOSTILE_KEYS, *HOSTILE_IDS[::4]})
        for index, key in enumerate(names):
            await dicts(checkpointer).save(f"t{index}", {}, metadata={key: index, "inner": {key: -1}})
        for index, key in [*enumerate(names)][:: self.queried_every]:
            assert await _threads_with(checkpointer, key, index) == [f"t{index}"], repr(key)
            assert await _threads_with(checkpointer, key, -1) == [], repr(key)
        for key in ("inner.a", "$.inner.a", "inner->a", "no such key"):
            assert await _threads_with(checkpointer, key, -1) == []

    async def test_hits_are_newest_first_and_limited(self, checkpointer: Checkpointer, clock: Clock) -> None:
        saved = []
        for number in range(6):
            clock.stop(at(number))
            saved.append(await dicts(checkpointer).save(f"t{number % 2}", {"n": number}, metadata={"k": "v"}))
        found = await checkpointer.query_by_metadata("k", "v")
        assert [hit["checkpoint_id"] for hit in found] == saved[::-1]
        found = await checkpointer.query_by_metadata("k", "v", 2)
        assert [hit["checkpoint_id"] for hit in found] == saved[:-3:-1]
        assert await checkpointer.query_by_metadata("k", "v", 0) == []

    async def test_hits_of_one_thread_are_in_the_order_of_commits(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        saved = []
        for number in range(4):
            clock.stop(at(900 - number * 60))
            saved.append(await dicts(checkpointer).save("t", {"n": number}, metadata={"k": "v"}))
        hits = await checkpointer.query_by_metadata("k", "v")
        assert [hit["checkpoint_id"] for hit in hits] == saved[::-1]
        (newest,) = await checkpointer.query_by_metadata("k", "v", 1)
        assert newest["checkpoint_id"] == saved[-1]

    async def test_a_hit_says_where_it_is(self, checkpointer: Checkpointer) -> None:
        first = await checkpointer.save(AgentState(), "t", metadata={"k": "v", "more": [1]}, namespace="n")
        (hit,) = await checkpointer.query_by_metadata("k", "v")
        (entry,) = await checkpointer.history("t", namespace="n")
        assert hit["metadata"] == {"k": "v", "more": [1]}
        assert (hit["thread_id"], hit["checkpoint_id"], hit["namespace"]) == ("t", first, "n")
        assert hit == vars(entry)

    async def test_what_is_deleted_or_replaced_is_found_no_more(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        await backend.save("t", {}, "a", {"k": 1})
        await backend.save("t", {}, "b", {"k": 1})
        await backend.save("u", {}, "c", {"k": 1})
        assert await backend.delete("t", "a")
        await backend.save("t", {"x": 1}, "b", {"k": 2})
        assert await _threads_with(checkpointer, "k", 1) == ["u"]
        assert await _threads_with(checkpointer, "k", 2) == ["t"]
        assert await backend.delete("u")
        assert await _threads_with(checkpointer, "k", 1) == []

    async def test_metadata_of_the_latest_of_one_and_of_none(self, checkpointer: Checkpointer) -> None:
        assert await checkpointer.get_metadata("t") is None
        first = await checkpointer.save(AgentState(), "t", metadata={"n": 1})
        second = await checkpointer.save(AgentState(), "t")
        assert await checkpointer.get_metadata("t") == {}
        assert await checkpointer.get_metadata("t", first) == {"n": 1}
        assert await checkpointer.get_metadata("t", second) == {}
        assert await checkpointer.get_metadata("t", "nothing") is None
        assert await checkpointer.get_metadata("t", first, namespace="other") is None

    async def test_metadata_is_a_copy(self, checkpointer: Checkpointer) -> None:
        given: dict[str, Any] = {"list": [1]}
        await checkpointer.save(AgentState(), "t", metadata=given)
        given["list"].append(2)
        for _ in range(2):
            found = await checkpointer.get_metadata("t")
            assert_same(found, {"list": [1]})
            assert found is not None
            found["list"].append(3)

    async def test_all_threads_are_listed_with_their_metadata(self, checkpointer: Checkpointer, clock: Clock) -> None:
        saved = []
        for number in range(6):
            clock.stop(at(number))
            name = await checkpointer.save(AgentState(), f"t{number % 3}", metadata={"n": number})
            saved.append((f"t{number % 3}", name, {"n": number}))
        found = await checkpointer.list_with_metadata()
        assert [(hit["thread_id"], hit["checkpoint_id"], hit["metadata"]) for hit in found] == saved[::-1]
        assert await checkpointer.list_with_metadata(2) == found[:2]

    async def test_a_key_that_is_no_text_and_a_value_json_cannot_hold_are_refused(
        self, checkpointer: Checkpointer
    ) -> None:
        await checkpointer.save(AgentState(), "t", metadata={"k": 1})
        bad: Any
        for bad in (1, None, ["k"], {"$ne": 1}, b"k"):
            with pytest.raises(LocusError):
                await checkpointer.query_by_metadata(bad, 1)
        for bad in (float("nan"), {1, 2}, object(), b"x", {1: 2}):
            with pytest.raises(SerializationError):
                await checkpointer.query_by_metadata("k", bad)
        for bad in (-1, "5", 1.5):
            with pytest.raises(ConfigurationError):
                await checkpointer.query_by_metadata("k", 1, bad)

    async def test_a_query_without_a_limit_is_never_empty(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t", metadata={"k": 1})
        none: Any = None
        try:
            found = await checkpointer.query_by_metadata("k", 1, none)
        except ConfigurationError:
            found = await checkpointer.query_by_metadata("k", 1, 1)
        assert len(found) == 1
