"""What one save adds to a list is stored in runs of a bounded size, and everything else works as if it were one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer, StorageBackendAdapter
from locus.memory.backends.memory import MemoryEngine
from locus.memory.item_log import ItemLog
from locus.memory.model.manifest import digest_before, fits
from locus.memory.model.payloads import dict_payload
from locus.memory.model.plan import LONGEST_RUN, MOST_ITEMS, Planner, run_of, run_portions
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Commit, Outcome, Run
from tests.backends.strangers import AsyncStore
from tests.model.planned import Plans

MANY = 2 * MOST_ITEMS + 88


def _items(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"n": number} for number in range(first, first + count)]


def _state(count: int, first: int = 0) -> AgentState:
    return AgentState(agent_id="a").with_messages(_messages(count, first))


def _messages(count: int, first: int = 0) -> tuple[Message, ...]:
    return tuple(Message.user(f"message {number}") for number in range(first, first + count))


class _NotingEngine(MemoryEngine):
    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> Outcome:
        self.commits.append(commit)
        return await super().commit(commit)


class Listening(MemoryCheckpointer):
    """Notes what is committed."""

    def __init__(self) -> None:
        super().__init__()
        self.store.engine = engine = _NotingEngine()
        self.commits = engine.commits

    @property
    def last_runs(self) -> list[tuple[str, int, int, int]]:
        """Of the last commit: branch, number, start and length of each run."""
        return [run[:4] for run in self.commits[-1].runs]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, LONGEST_RUN + 9).map(lambda size: min(size, 9) if size % 3 else size), max_size=700))
def test_portions_are_all_items_in_order_and_none_is_too_large(sizes: list[int]) -> None:
    texts = ["x" * size for size in sizes]
    found = list(run_portions(texts))
    assert [text for some in found for text in some] == texts
    for some in found:
        run = run_of("b", 0, 0, some)
        assert len(some) <= MOST_ITEMS
        assert len(some) <= 1 or len(run.items) <= LONGEST_RUN
    for some, following in pairwise(found):
        longer = run_of("b", 0, 0, [*some, following[0]])
        assert longer.length > MOST_ITEMS or len(longer.items) > LONGEST_RUN, "as few runs as can be"


@pytest.mark.parametrize("count", [1, MOST_ITEMS - 1, MOST_ITEMS])
def test_what_fits_into_one_run_is_written_as_ever(count: int) -> None:
    plan = Planner("rev", None).plan(dict_payload({"list": _items(count)}))
    texts = [f'{{"n":{number}}}' for number in range(count)]
    assert plan.runs == (Run("rev0", 0, 0, count, "[" + "\n,".join(texts) + "]"),)
    assert plan.manifest == f'[[["list"],[["rev0",0,0,{count}]]]]'


def test_a_large_item_is_a_run_of_its_own() -> None:
    large = "x" * LONGEST_RUN
    plan = Planner("rev", None).plan(dict_payload({"list": ["a", "b", large, "c", large]}))
    assert [(run.number, run.start, run.length) for run in plan.runs] == [(0, 0, 2), (1, 2, 1), (2, 3, 1), (3, 4, 1)]
    plans = Plans()
    plans.save(dict_payload({"list": ["a", "b", large, "c", large]}))
    assert plans.read(0) == {"list": ["a", "b", large, "c", large]}


def test_two_lists_of_one_save_are_on_two_branches() -> None:
    plans = Plans()
    plan = plans.save(dict_payload({"a": _items(MANY), "b": _items(MANY, 5)}))
    assert len({run.branch for run in plan.runs}) == 2
    assert [run.number for run in plan.runs] == [0, 1, 2] * 2
    assert plans.read(0) == {"a": _items(MANY), "b": _items(MANY, 5)}


async def test_runs_of_one_save_follow_each_other_and_know_what_precedes_them() -> None:
    cp, state = Listening(), _state(MANY)
    await cp.save(state, "t", "first")
    ((branch, *_), *_) = cp.last_runs
    assert cp.last_runs == [(branch, 0, 0, 256), (branch, 1, 256, 256), (branch, 2, 512, 88)]
    runs = list(cp.commits[-1].runs)
    grown = state.with_messages(_messages(300, MANY))
    await cp.save(grown, "t", "second")
    assert cp.last_runs == [(branch, 3, 600, 256), (branch, 4, 856, 44)]
    runs += cp.commits[-1].runs
    assert all(run.before for run in runs[1:])
    assert all(digest_before(newer) is not None and fits(older, newer) for older, newer in pairwise(runs))
    edited = grown.with_messages_replaced(grown.messages[:-1] + _messages(1, 7_000))
    await cp.save(edited, "t", "third")
    assert cp.last_runs == [(branch, 5, 899, 1)]
    for name, saved in (("first", state), ("second", grown), ("third", edited)):
        loaded = await cp.load("t", name)
        assert loaded is not None
        assert loaded.messages == saved.messages
        # A fork of it writes only what is new, however far it is from the end of the branch.
        await cp.save(loaded.with_message(Message.user("fork")), "t")
        assert sum(run[3] for run in cp.last_runs) == 1


async def test_a_branch_that_has_gone_on_is_left_for_one_of_its_own() -> None:
    cp = Listening()
    base = _state(MANY)
    await cp.save(base, "t", "base")
    await cp.save(base.with_messages(_messages(MANY, 1_000)), "t", "one")
    await cp.save(base.with_messages(_messages(MANY, 3_000)), "t", "other")
    assert [size[1] for size in cp.last_runs] == [0, 1, 2]
    for name, first in (("one", 1_000), ("other", 3_000)):
        loaded = await cp.load("t", name)
        assert loaded is not None
        assert loaded.messages == (*_messages(MANY), *_messages(MANY, first))


async def test_the_same_state_under_the_same_id_is_the_same() -> None:
    cp = Listening()
    await cp.save(_state(MANY), "t", "c")
    state = await cp.load("t", "c")
    assert state is not None
    await cp.save(AgentState.model_validate(state.model_dump()), "t", "c")
    (entry,) = await cp.store.history("t", None, None, DEFAULT_NAMESPACE)
    assert entry.rev == cp.commits[0].rev


async def test_a_store_of_whole_states_gets_all_of_it() -> None:
    checkpointer = StorageBackendAdapter(AsyncStore())
    await checkpointer.save(_state(MANY), "t", "c")
    loaded = await checkpointer.load("t")
    assert loaded is not None
    assert loaded.messages == _messages(MANY)


async def test_a_log_adds_many_items_in_several_runs() -> None:
    cp = Listening()
    log = ItemLog(cp.store, "t", "log")
    await log.append(_items(MANY))
    await log.append(_items(300, MANY))
    ((branch, *_), *_) = cp.last_runs
    assert cp.last_runs == [(branch, 3, 600, 256), (branch, 4, 856, 44)]
    assert all(run.before for run in cp.commits[-1].runs)
    assert await log.read() == _items(900)
    assert await log.pop() == {"n": 899}
    await ItemLog(cp.store, "t", "log").append(_items(1, 5_000))
    assert (await ItemLog(cp.store, "t", "log").read())[-2:] == [{"n": 898}, {"n": 5_000}]
    assert cp.commits[0].base is None
    assert cp.commits[-1].base == Base(cp.commits[-2].checkpoint_id, cp.commits[-2].rev)
