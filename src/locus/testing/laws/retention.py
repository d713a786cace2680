"""Vacuum: by age, by number, and counted beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import conversation, message
from locus.testing.laws.base import (
    Clock,
    Laws,
    OpenHandle,
    assert_all_load,
    assert_same_state,
    ids,
    parent_of,
    snapshot,
)


async def _aged(handle: Checkpointer, clock: Clock, ages: list[float], thread_id: str = "t") -> dict[str, AgentState]:
    """A conversation saved over days; its states by checkpoint id."""
    state, saved = AgentState(), dict[str, AgentState]()
    for number, age in enumerate(ages):
        clock.shift(days=-age)
        state = state.with_messages(conversation(2, number)).with_metadata("large", f"{number // 2} " * 600)
        saved[await handle.save(state, thread_id, metadata={"age": age})] = state
    clock.shift()
    return saved


class RetentionLaws(Laws):
    """`vacuum`."""

    async def test_what_is_older_goes_and_the_rest_stays(
        self, checkpointer: Checkpointer, open_handle: OpenHandle, clock: Clock
    ) -> None:
        saved = await _aged(checkpointer, clock, [50, 40, 31, 29, 5, 0])
        assert await checkpointer.vacuum() == 3
        kept = dict(list(saved.items())[3:])
        for handle in (checkpointer, open_handle()):
            await assert_all_load(handle, "t", kept)
        assert await parent_of(checkpointer, "t", next(iter(kept))) is None
        assert await checkpointer.vacuum(older_than_days=4) == 2
        assert await checkpointer.vacuum(older_than_days=4) == 0
        await assert_all_load(checkpointer, "t", dict(list(saved.items())[5:]))

    async def test_threads_with_nothing_newer_are_gone(self, checkpointer: Checkpointer, clock: Clock) -> None:
        old = await _aged(checkpointer, clock, [50, 40], "old")
        await checkpointer.put_writes("old", next(iter(old)), "task", [("x", 1)])
        young = await _aged(checkpointer, clock, [50, 2], "young")
        assert await checkpointer.vacuum(30) == 3
        assert await checkpointer.list_threads() == ["young"]
        assert not await checkpointer.exists("old")
        assert await checkpointer.get_writes("old", next(iter(old))) == []
        await assert_all_load(checkpointer, "young", dict(list(young.items())[1:]))
        assert await checkpointer.save(AgentState(), "old", if_latest=None)

    async def test_all_namespaces_are_vacuumed(self, checkpointer: Checkpointer, clock: Clock) -> None:
        for days, namespace in ((50, "default"), (50, ""), (50, "n"), (1, ""), (1, "n")):
            clock.shift(days=-days)
            await checkpointer.save(AgentState(), "t", namespace=namespace)
        clock.shift()
        assert await checkpointer.vacuum() == 3
        assert [len(await ids(checkpointer, "t", namespace=name)) for name in ("default", "", "n")] == [0, 1, 1]

    async def test_a_dry_run_counts_and_changes_nothing(self, checkpointer: Checkpointer, clock: Clock) -> None:
        await _aged(checkpointer, clock, [50, 40, 31, 2, 1], "a")
        await _aged(checkpointer, clock, [50, 49], "b")
        before = await snapshot(checkpointer)
        options: list[dict[str, Any]] = [
            {},
            {"older_than_days": 45},
            {"keep_last": 2},
            {"keep_last": 1, "older_than_days": 45},
        ]
        counted = [await checkpointer.vacuum(**chosen, dry_run=True) for chosen in options]
        assert counted == [5, 3, 3, 2]
        assert await snapshot(checkpointer) == before
        for chosen, count in zip(reversed(options), (2, 2, 1, 0), strict=True):
            assert await checkpointer.vacuum(**chosen, dry_run=True) == count
            assert await checkpointer.vacuum(**chosen) == count

    async def test_a_number_is_kept_of_each_thread(self, checkpointer: Checkpointer, clock: Clock) -> None:
        threads = {name: await _aged(checkpointer, clock, [9.0] * length, name) for name, length in _LENGTHS.items()}
        assert await checkpointer.vacuum(keep_last=3) == sum(max(0, n - 3) for n in _LENGTHS.values())
        for name, saved in threads.items():
            await assert_all_load(checkpointer, name, dict(list(saved.items())[-3:]))

    async def test_age_alone_does_not_matter_when_a_number_is_kept(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        saved = await _aged(checkpointer, clock, [50, 40, 1, 0])
        assert await checkpointer.vacuum(keep_last=3) == 1
        await assert_all_load(checkpointer, "t", dict(list(saved.items())[1:]))

    async def test_number_and_age_must_both_hold(self, checkpointer: Checkpointer, clock: Clock) -> None:
        saved = await _aged(checkpointer, clock, [50, 40, 35, 2, 1, 0])
        assert await checkpointer.vacuum(older_than_days=30, keep_last=5) == 1
        assert await checkpointer.vacuum(older_than_days=30, keep_last=1) == 2
        await assert_all_load(checkpointer, "t", dict(list(saved.items())[3:]))

    async def test_every_fork_is_a_line_of_its_own(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        """root ← a1 … a6, and from a2 a fork b1 … b3: keep two of each."""
        states: dict[str, AgentState] = {"root": AgentState()}
        await checkpointer.save(states["root"], "t", "root")
        lines = {"a": ("root", 6), "b": ("a2", 3)}
        for line, (start, length) in lines.items():
            state = await checkpointer.load("t", start)
            assert state is not None
            for number in range(1, length + 1):
                state = state.with_message(message(number * 10 + ord(line)))
                states[f"{line}{number}"] = state
                await checkpointer.save(state, "t", f"{line}{number}")
        assert await checkpointer.vacuum(keep_last=2) == 6
        kept = {name: states[name] for name in ("a5", "a6", "b2", "b3")}
        await assert_all_load(open_handle(), "t", kept)
        assert await parent_of(checkpointer, "t", "a6") == "a5"
        assert await parent_of(checkpointer, "t", "a5") is None
        assert await parent_of(checkpointer, "t", "b2") is None
        assert await checkpointer.vacuum(keep_last=2) == 0

    async def test_a_vacuumed_thread_goes_on(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        state, saved = AgentState(), dict[str, AgentState]()
        for turn in range(20):
            state = state.with_messages_replaced(state.messages[turn % 3 == 2 :] + tuple(conversation(2, turn * 2)))
            saved[await checkpointer.save(state, "t")] = state
            if turn % 4 == 3:
                assert await open_handle().vacuum(keep_last=2) == len(saved) - 2
                saved = dict(list(saved.items())[-2:])
        await assert_all_load(open_handle(), "t", saved)

    async def test_the_latest_is_never_lost_to_a_number(self, checkpointer: Checkpointer) -> None:
        """Whatever the shape of the tree: roots, forks, replaced and deleted parents."""
        state = AgentState().with_message(message(1))
        for name in ("a", "b", "c", "a"):
            state = state.with_message(message(ord(name)))
            await checkpointer.save(state, "t", name)
        await checkpointer.save(AgentState(), "t", "lonely", parent=None)
        await checkpointer.delete("t", "b")
        last = AgentState().with_error("last")
        await checkpointer.save(last, "t", "last", parent="lonely")
        await checkpointer.vacuum(keep_last=1)
        assert_same_state(await checkpointer.load("t"), last)
        assert await checkpointer.load("t", "a") is not None

    async def test_options_that_cannot_work_are_refused_and_nothing_is_removed(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        await _aged(checkpointer, clock, [50, 0])
        before = await snapshot(checkpointer)
        for keep_last in (0, -1):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(keep_last=keep_last)
        for days in (-1, float("nan")):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(older_than_days=days)
        wrong: Any
        for wrong in ("2", 1.5, [1]):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(keep_last=wrong)
        for wrong in ("30", [1], {}):
            with pytest.raises(ConfigurationError):
                await checkpointer.vacuum(older_than_days=wrong)
        assert await snapshot(checkpointer) == before

    async def test_no_age_and_no_number_do_not_mean_everything(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t")
        none: Any = None
        with pytest.raises(ConfigurationError):
            await checkpointer.vacuum(older_than_days=none)
        assert await checkpointer.exists("t")

    async def test_an_age_older_than_the_calendar_removes_nothing(
        self, checkpointer: Checkpointer, clock: Clock
    ) -> None:
        await _aged(checkpointer, clock, [3_650, 0])
        for days in (1_000_000, 10**12, float("inf")):
            assert await checkpointer.vacuum(older_than_days=days) == 0
        assert len(await ids(checkpointer, "t")) == 2


_LENGTHS = {"none over": 2, "just": 3, "more": 7}
