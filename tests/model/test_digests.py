"""Chains: every run knows what precedes it, whoever writes it, and a warm save digests only what is new."""

from __future__ import annotations

import random

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.model import digests
from locus.memory.model.digests import BEGINNING, digest_text, extended, texts_of
from locus.memory.model.manifest import digest_before, fits, visible
from locus.memory.model.records import Extent, Run


def engine_of(cp: MemoryCheckpointer) -> MemoryEngine:
    engine = cp.store.engine
    assert isinstance(engine, MemoryEngine)
    return engine


async def all_runs(cp: MemoryCheckpointer, thread_id: str = "t") -> list[Run]:
    return [run for run in (await engine_of(cp).export(thread_id, 0, 1_000, {})).runs if run.branch[0] != "#"]


def expected(run: Run, runs: list[Run]) -> str | None:
    """The digest of what precedes a run, worked out from the items of its branch."""
    found = BEGINNING
    branch = [other for other in runs if other.branch == run.branch]
    for older, low, high in visible(Extent(run.branch, run.number - 1, 0, run.start), branch):
        for text in texts_of(older, sort_keys=False)[low:high]:
            found = extended(found, text)
    return digest_text(found)


@pytest.mark.parametrize("seed", range(12))
async def test_every_run_knows_what_precedes_it(seed: int) -> None:
    """Appended, edited, trimmed and forked, by one handle and by others that load first."""
    chance = random.Random(seed)
    cp = MemoryCheckpointer()
    states = [AgentState(agent_id="a").with_messages([Message.user(f"{n}") for n in range(3)])]
    names = [await cp.save(states[0], "t")]
    for number in range(25):
        state = states[-1]
        if chance.random() < 0.4:
            state = await cp.load("t", chance.choice(names[-3:])) or state
        fresh = tuple(Message.user(f"message {number}.{n}") for n in range(chance.randint(1, 3)))
        kept = state.messages
        match chance.choice(["append", "append", "edit", "trim"]):
            case "edit":
                kept = kept[: -chance.randint(1, 2)]
            case "trim" if len(kept) > 4:
                kept = kept[chance.randint(1, 2) :]
        states.append(state.with_messages_replaced(kept + fresh))
        names.append(await cp.save(states[-1], "t"))
    runs = await all_runs(cp)
    later = [run for run in runs if run.start > 0]
    assert len(later) > 5
    for run in later:
        assert run.before in (None, expected(run, runs))
    assert sum(run.before is not None for run in later) > len(later) * 0.8


async def test_dicts_have_chains_too() -> None:
    cp = MemoryCheckpointer()
    items: list[dict[str, int]] = []
    for number in range(6):
        items.append({"b": number, "a": 1})
        await cp.save(AgentState(agent_id="a", metadata={"list": [{"n": item} for item in items]}), "t")
    runs = await all_runs(cp)
    assert [run.before for run in runs if run.start] == [expected(run, runs) for run in runs if run.start]


async def test_a_warm_save_digests_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    cp = MemoryCheckpointer()
    state = AgentState(agent_id="a")
    for number in range(300):
        state = state.with_message(Message.user(f"message {number}"))
        await cp.save(state, "t")
    digested: list[str] = []

    def noted(before: bytes, text: str) -> bytes:
        digested.append(text)
        return extended(before, text)

    monkeypatch.setattr(digests, "extended", noted)
    await cp.save(state.with_message(Message.user("last")), "t")
    assert len(digested) == 1


def test_runs_that_do_not_follow_each_other_do_not_fit() -> None:
    first = Run("b", 0, 0, 2, '["a"\n,"b"]')
    after_both = digest_text(extended(extended(BEGINNING, '"a"'), '"b"'))
    after_one = digest_text(extended(BEGINNING, '"a"'))
    assert fits(first, Run("b", 2, 2, 1, '["c"]', after_both))
    assert fits(first, Run("b", 2, 1, 1, '["c"]', after_one))
    assert not fits(first, Run("b", 2, 2, 1, '["c"]', after_one))
    assert fits(first, Run("b", 2, 2, 1, '["c"]'))
    assert fits(
        Run("b", 0, 0, 1, '[{"b":1,"a":2}]'), Run("b", 2, 1, 1, "[1]", digest_text(extended(b"", '{"a":2,"b":1}')))
    )


@pytest.mark.parametrize("before", ["", "x", "ä" * 22, "#" * 22, "a" * 23])
def test_what_is_no_digest_is_unknown(before: str) -> None:
    assert digest_before(Run("b", 1, 2, 1, "[1]", before)) is None
