"""A thread of very many runs is measured, exported, copied and trimmed in portions, between which others go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from locus.memory.backends.redis import scripts
from locus.memory.backends.redis.engine import RedisEngine
from locus.memory.backends.redis.portions import MOST_RUNS
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Commit, Run, RunInfo
from locus.memory.model.retention import Line
from locus.testing.laws.base import present
from tests.backends.redis.stores import RedisStore

RUNS = 5_200
"""Of one checkpoint: two have more than a script goes through at once, and one more than a step removes."""
REMOVED_AT_ONCE = 2_000


def _commit(number: int, base: str | None = None) -> Commit:
    """Checkpoint `number`: a list of so many runs of its own, and that of checkpoint 0."""
    rev, first = f"c{number}-revision", "c0-revision0"
    cuts = {"own": [[f"{rev}0", RUNS - 1, 0, RUNS]], "first": [[first, RUNS - 1, 0, RUNS]]}
    return Commit(
        "t",
        DEFAULT_NAMESPACE,
        f"c{number}",
        rev,
        datetime.now(UTC),
        "{}",
        '{"own":[],"first":[]}',
        json.dumps([[[name], cut] for name, cut in cuts.items()]),
        tuple(Run(f"{rev}0", run, run, 1, f"[{run}]") for run in range(RUNS)),
        base=None if base is None else Base(base, f"{base}-revision"),
    )


@pytest.fixture
async def handle(store: RedisStore) -> AsyncIterator[Checkpointer]:
    async with store.open() as handle:
        for number, base in enumerate((None, "c0")):
            outcome = await handle.store.commit(_commit(number, base))
            assert outcome.is_written
        yield handle


def _engine(handle: Checkpointer) -> RedisEngine:
    engine = handle.store.engine
    assert isinstance(engine, RedisEngine)
    return engine


async def _lists(handle: Checkpointer, thread_id: str, checkpoint_id: str) -> dict[str, Any]:
    state = await handle.store.read(thread_id, checkpoint_id, DEFAULT_NAMESPACE)
    branches = present(state).runs
    return {branch: [item for run in runs for item in json.loads(run.items)] for branch, runs in branches.items()}


WHOLE = list(range(RUNS))


async def test_no_script_goes_through_all_runs(handle: Checkpointer) -> None:
    engine = _engine(handle)
    assert 2 * RUNS > MOST_RUNS
    for script, place in ((scripts.CONTENTS, 5), (scripts.OUTLINE, 4), (scripts.MEASURE, 4)):
        answer = await engine._run(script, "t")
        assert answer[place] == []
    _, names, _, sizes = await engine._clients.run(scripts.RUN_HEADERS, engine._keys("t"), 0, 100)
    assert 100 <= len(names) == len(sizes) < 300


async def test_all_of_it_is_measured_and_exported(handle: Checkpointer) -> None:
    engine = _engine(handle)
    measured = present(await engine.measure("t"))
    assert measured.runs == {
        RunInfo(f"c{number}-revision0", run, run, 1): len(f"[{run}]") for number in range(2) for run in range(RUNS)
    }
    exported = await engine.export("t", 0, 10, {"c0-revision0": 99})
    assert [stored.entry.checkpoint_id for stored in exported.checkpoints] == ["c0", "c1"]
    assert len(exported.runs) == 2 * RUNS - 100


async def test_what_comes_meanwhile_is_not_measured(handle: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are read after the checkpoints that they belong to."""
    engine = _engine(handle)
    run, late = engine._clients.run, [_commit(2, "c1")]

    async def committing(script: scripts.Script, *arguments: Any) -> Any:
        if script is scripts.RUN_HEADERS and late:
            await engine.commit(late.pop())
        return await run(script, *arguments)

    monkeypatch.setattr(engine._clients, "run", committing)
    measured = present(await engine.measure("t"))
    assert len(measured.checkpoints) == 2
    assert len(measured.runs) == 2 * RUNS


async def test_what_goes_meanwhile_is_noticed(handle: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    await handle.store.commit(_commit(2, "c1"))
    engine = _engine(handle)
    run, doomed = engine._run, [{3: "c2-revision"}]

    async def deleting(script: scripts.Script, *arguments: Any) -> Any:
        answer = await run(script, *arguments)
        if script is scripts.MEASURE and doomed:
            await engine.delete("t", None, doomed.pop())
        return answer

    monkeypatch.setattr(engine, "_run", deleting)
    measured = present(await engine.measure("t"))
    assert len(measured.checkpoints) == 2
    assert len(measured.runs) == 2 * RUNS


async def test_a_copy_has_all_of_it(handle: Checkpointer) -> None:
    assert await _engine(handle).copy("t", "copy", Line(DEFAULT_NAMESPACE, "c1", None)) == 2
    assert await _lists(handle, "copy", "c1") == {"c0-revision0": WHOLE, "c1-revision0": WHOLE}


async def test_the_runs_of_a_removed_checkpoint_go_in_portions(handle: Checkpointer, store: RedisStore) -> None:
    """The first step removes the checkpoint. Whoever is killed after it leaves the thread whole."""
    engine = _engine(handle)

    class Killed(BaseException):
        pass

    async def killed(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_remove_leftovers", killed)
        with pytest.raises(Killed):
            await engine.delete("t", None, {2: "c1-revision"})
    assert len(present(await engine.measure("t")).runs) == 2 * RUNS - REMOVED_AT_ONCE
    assert await handle.list_checkpoints("t") == ["c0"]
    assert await _lists(handle, "t", "c0") == {"c0-revision0": WHOLE}
    # The next removal takes the rest along, in as many steps as it needs.
    await handle.store.commit(_commit(2, "c0"))
    assert await engine.delete("t", None, {3: "c2-revision"}) == 1
    assert len(present(await engine.measure("t")).runs) == RUNS
    assert await _lists(handle, "t", "c0") == {"c0-revision0": WHOLE}
    assert await handle.delete("t")
    assert store.stored_keys() == set()


async def test_others_may_save_between_two_portions(handle: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine(handle)
    remove, saved = engine._clients.run_reporting_repeats, list[int]()

    async def saving(script: scripts.Script, *arguments: Any) -> Any:
        answer = await remove(script, *arguments)
        if not saved:
            saved.append(2)
            assert (await engine.commit(_commit(2, "c0"))).is_written
        return answer

    monkeypatch.setattr(engine._clients, "run_reporting_repeats", saving)
    assert await engine.delete("t", None, {2: "c1-revision"}) == 1
    assert await handle.list_checkpoints("t") == ["c2", "c0"]
    assert await _lists(handle, "t", "c2") == {"c0-revision0": WHOLE, "c2-revision0": WHOLE}
    assert len(present(await engine.measure("t")).runs) == 2 * RUNS
