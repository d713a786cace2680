"""Saves of many threads in one bulk request: each is answered as if it had come alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from locus.memory.backends.opensearch.client import Failure
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.records import Base, Commit, Outcome, Run, TaskWrites, Verdict, Write
from tests.backends.groups import compare_groups
from tests.backends.opensearch.model import Json, ModelClient, ModelEngine, ModelIndex
from tests.backends.opensearch.store import OpenSearchStore
from tests.servers.opensearch import OpenSearchServer
from tests.servers.proxy import Proxy

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THREADS = [f"t{number:02}" for number in range(16)]


class Line:
    """Saves of one thread, one after another on one branch."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self._numbers = count()

    def next_save(self, **terms: Any) -> Commit:
        number, branch = next(self._numbers), f"b-{self.thread_id}"
        run = Run(branch, number, number, 1, f'["item {number}"]')
        manifest = f'[[["m"],[["{branch}",{number},0,{number + 1}]]]]'
        rev, last = f"rev-{self.thread_id}-{number}", f"rev-{self.thread_id}-{number - 1}"
        usual = {"base": Base(last, last), "parent_id": last} if number else {"parent_id": None}
        commit = Commit(self.thread_id, "", rev, rev, NOW, "{}", '{"m":[]}', manifest, (run,), fresh_id=True)
        return replace(commit, **(usual | terms))


def pending(thread_id: str) -> TaskWrites:
    return TaskWrites(thread_id, "", "c", "task", (Write("task", "", 0, "channel", "1"),))


def committed(seq: int) -> Outcome:
    return Outcome(Verdict.COMMITTED, seq)


@pytest.fixture
async def model() -> AsyncIterator[tuple[ModelIndex, OpenSearchEngine, list[Line]]]:
    """An index with 16 threads that the handle has saved to."""
    index = ModelIndex()
    engine = ModelEngine(index)
    lines = [Line(thread_id) for thread_id in THREADS]
    for line in lines:
        assert (await engine.commit(line.next_save())).verdict is Verdict.COMMITTED
    yield index, engine, lines
    await engine.close()


async def seqs(engine: OpenSearchEngine, thread_id: str) -> list[int]:
    return [entry.seq for entry in await engine.history(thread_id, None, None, None)]


def verdicts(outcomes: Sequence[Outcome | None]) -> list[Verdict | None]:
    return [None if outcome is None else outcome.verdict for outcome in outcomes]


async def test_groups_are_answered_as_saves_one_by_one() -> None:
    answers = Counter[str]()
    for seed in range(2):
        engine = ModelEngine(ModelIndex())
        answers += await compare_groups(engine, 24, seed)
        await engine.close()
    assert len(answers) >= 6, answers
    assert answers["COMMITTED"] > answers["alone"], answers


@pytest.mark.opensearch
async def test_groups_of_a_real_server_are_answered_as_saves_one_by_one(store: OpenSearchStore) -> None:
    async with engine_of(store.open()) as engine:
        answers = await compare_groups(engine, 5, 5, threads=3)
    assert answers["COMMITTED"] > answers["alone"], answers


async def test_a_group_is_one_request(model: tuple[ModelIndex, OpenSearchEngine, list[Line]]) -> None:
    index, engine, lines = model
    for number in range(2, 12):
        before = index.requests
        outcomes = await engine.commit_together([line.next_save() for line in lines])
        assert verdicts(outcomes) == [Verdict.COMMITTED] * 16
        assert [outcome and outcome.seq for outcome in outcomes] == [number] * 16
        assert index.requests == before + 1
    before = index.requests
    mixed = [pending(line.thread_id) if at % 2 else line.next_save() for at, line in enumerate(lines)]
    assert verdicts(await engine.commit_together(mixed)) == [Verdict.COMMITTED] * 16
    assert index.requests == before + 2, "one more to read what is pending"
    assert await engine.get_writes("t01", "", "c", None) == list(pending("t01").writes)


async def test_saves_with_ids_of_their_own_are_two_requests(
    model: tuple[ModelIndex, OpenSearchEngine, list[Line]],
) -> None:
    """One to see that there are no such checkpoints, and one to save them."""
    index, engine, lines = model
    before = index.requests
    outcomes = await engine.commit_together([line.next_save(fresh_id=False) for line in lines])
    assert verdicts(outcomes) == [Verdict.COMMITTED] * 16
    assert index.requests == before + 2


async def test_first_saves_and_what_is_published_are_two_requests() -> None:
    """With the second, the list of threads gets to know them."""
    index = ModelIndex()
    engine = ModelEngine(index)
    lines = [Line(thread_id) for thread_id in THREADS]
    for thread_id in THREADS:
        assert await engine.read(thread_id, "", None) is None
    before = index.requests
    assert await engine.commit_together([line.next_save() for line in lines]) == [committed(1)] * 16
    assert index.requests == before + 2
    other = ModelEngine(index)
    assert await other.recent(20) != []
    assert {entry.thread_id for entry in await other.recent(20)} == set(THREADS)
    for _ in range(40):
        await engine.commit_together([line.next_save() for line in lines])
    for thread_id in THREADS:
        assert await seqs(other, thread_id) == list(range(41, 0, -1))
    await engine.close()
    await other.close()


async def test_whoever_is_refused_or_late_leaves_the_others_alone(
    model: tuple[ModelIndex, OpenSearchEngine, list[Line]],
) -> None:
    """Another handle has saved to the second thread; the third expects something else; nobody knows the fourth."""
    index, engine, lines = model
    faster = ModelEngine(index)
    await faster.commit(Line("t01").next_save(checkpoint_id="c", rev="faster", fresh_id=False))
    group = [lines[0].next_save(), lines[1].next_save(), lines[2].next_save(if_latest="nobody")]
    outcomes = await engine.commit_together([*group, Line("new").next_save(), lines[4].next_save()])
    assert verdicts(outcomes) == [Verdict.COMMITTED, None, None, None, Verdict.COMMITTED]
    stored = {name: await seqs(faster, name) for name in ("t00", "t01", "t02", "new", "t04")}
    assert stored == {"t00": [2, 1], "t01": [2, 1], "t02": [1], "new": [], "t04": [2, 1]}
    alone = [await engine.commit(member) for member in group[1:]]
    assert verdicts(alone) == [Verdict.BRANCH_TAKEN, Verdict.CONFLICT]
    assert await engine.commit_together([]) == []
    await faster.close()


async def test_writes_to_a_thread_that_has_ended_go_alone(
    model: tuple[ModelIndex, OpenSearchEngine, list[Line]],
) -> None:
    """What is left of it has to be removed first. Saves begin it anew."""
    _, engine, lines = model
    for line in lines[:2]:
        await engine.commit(line.next_save(expires_at=NOW))
    assert await engine.commit_together([pending("t00"), pending("t02")]) == [None, Outcome(Verdict.COMMITTED)]
    assert await engine.commit_together([Line("t01").next_save()]) == [committed(1)]
    assert await seqs(engine, "t01") == [1]


@pytest.mark.parametrize("status", [429, 400, 503])
async def test_an_item_that_fails_belongs_to_its_member(
    model: tuple[ModelIndex, OpenSearchEngine, list[Line]], status: int
) -> None:
    index, engine, lines = model
    write = index.write

    def refusing(action: str, about: Json, source: Json | None) -> int:
        return status if about["routing"] == doomed.routing else write(action, about, source)

    doomed = next(doc for doc in index.docs.values() if doc.source.get("thread_id") == "t03")
    group = [line.next_save() for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "write", refusing)
        outcomes = await engine.commit_together(group)
    assert verdicts(outcomes) == [None if line.thread_id == "t03" else Verdict.COMMITTED for line in lines]
    assert (await engine.commit(group[3])).seq == 2


@pytest.mark.parametrize("lost", ["once", "for good"])
async def test_a_group_whose_answer_is_lost_counts_once(
    model: tuple[ModelIndex, OpenSearchEngine, list[Line]], lost: str
) -> None:
    """The driver sends it again: the second time all records exist. Or it gives up, and each is sent alone."""
    _, engine, lines = model
    group = [line.next_save() for line in lines]
    send, first = ModelClient._send, iter((True,))

    def sent_again(client: ModelClient, method: str, path: str, *args: Any) -> Any:
        answer = send(client, method, path, *args)
        if path.endswith("_bulk") and next(first, False):
            if lost == "for good":
                raise Failure("N/A", "no connection")
            return send(client, method, path, *args)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelClient, "_send", sent_again)
        if lost == "for good":
            with pytest.raises(Failure):
                await engine.commit_together(group)
        else:
            outcomes = await engine.commit_together(group)
            assert [outcome and outcome.seq for outcome in outcomes] == [2] * 16
    if lost == "for good":
        alone = [await engine.commit(replace(member, fresh_id=False)) for member in group]
        assert [outcome.seq for outcome in alone] == [2] * 16
    assert [await seqs(engine, name) for name in THREADS] == [[2, 1]] * 16


@asynccontextmanager
async def engine_of(handle: Checkpointer) -> AsyncIterator[OpenSearchEngine]:
    async with handle:
        engine = handle.store.engine
        assert isinstance(engine, OpenSearchEngine)
        await engine.setup()
        yield engine


@pytest.mark.opensearch
async def test_a_cut_connection_leaves_each_save_once(opensearch_server: OpenSearchServer) -> None:
    with Proxy(opensearch_server.port) as proxy:
        store = OpenSearchStore(opensearch_server.url, proxy=proxy)
        lines = [Line(thread_id) for thread_id in THREADS[:4]]
        async with engine_of(store.open()) as engine:
            for line in lines:
                await engine.commit(line.next_save())
            for turn, cut in enumerate((1, 200, 900), 2):
                group = [line.next_save() for line in lines]
                proxy.cut_after(from_server=cut)
                try:
                    outcomes = await engine.commit_together(group)
                except Failure:
                    outcomes = [None] * 4
                    group = [replace(member, fresh_id=False) for member in group]
                proxy.accept()
                for member, outcome in zip(group, outcomes, strict=True):
                    assert (outcome or await engine.commit(member)).seq == turn
                    assert await seqs(engine, member.thread_id) == list(range(turn, 0, -1))
        store.remove()
