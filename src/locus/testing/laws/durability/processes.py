"""Several processes at once: each sees what the others have saved, and nothing gets lost between them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.saver import CheckpointSaver
from locus.testing.data import SOAK
from locus.testing.laws.base import WorkerLaws
from locus.testing.processes import crash_jobs, fork_jobs, jobs
from locus.testing.processes.jobs import Acknowledged, known_digest
from locus.testing.processes.ledger import Ledger, content_of
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore

MOST_TRIES = 10
"""The number of attempts to make processes meet, if they miss each other."""


class ProcessLaws(WorkerLaws):
    """Conflicts, outages and forks of the process, seen from several processes."""

    turns_of_processes: ClassVar[int] = 40
    """The number of turns that processes take one after the other."""

    times_at_once: ClassVar[int] = 15
    """The number of times that each of several processes repeats what all do at once."""

    processes_at_first: ClassVar[int] = 8
    """The number of processes that open a new store at once."""

    readers_while_removing: ClassVar[int] = 2
    """The number of processes that read while two others save and one removes."""

    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 60, "vacuum": 60, "thread": 300}
    """The number of saves of each of two processes, by the kind of removal meanwhile."""

    async def test_another_process_sees_a_save_as_soon_as_it_returned(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        players = [crew.start(jobs.answer_in_turn, url=store.url, thread_id="ping-pong") for _ in range(2)]
        last: dict[str, str] = {}
        for turn in range(2 * self.times_at_once):
            player = players[turn % 2]
            player.tell(word=f"word {turn}")
            answer = player.hear()
            assert answer["listed"] == [last["saved"]] if last else answer["listed"] == []
            assert answer["loaded"] == last.get("digest")
            last = answer

    @pytest.mark.parametrize("from_latest", [False, True], ids=["lines of their own", "on top of the latest"])
    async def test_processes_that_save_to_one_thread_at_once_lose_nothing(
        self, store: DurableTestStore, crew: Crew, from_latest: bool
    ) -> None:
        acknowledged = self._saved_at_once(crew, ["shared"], from_latest)
        await self._check_saved(store, acknowledged)

    async def test_processes_that_save_to_several_threads_at_once_lose_nothing(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        thread_ids = [f"thread {number}" for number in range(4)]
        acknowledged = self._saved_at_once(crew, thread_ids, from_latest=True)
        await self._check_saved(store, acknowledged)
        async with store.open() as checkpointer:
            assert await checkpointer.list_threads() == thread_ids

    @pytest.mark.parametrize("attempt", range(4))
    async def test_a_new_store_can_be_opened_by_many_processes_at_once(
        self, store: DurableTestStore, crew: Crew, attempt: int
    ) -> None:
        acknowledged = self._saved_at_once(
            crew, [f"first {attempt}"], from_latest=False, processes=self.processes_at_first, count=1
        )
        await self._check_saved(store, acknowledged)

    def _saved_at_once(
        self, crew: Crew, thread_ids: Sequence[str], from_latest: bool, *, processes: int = 4, count: int | None = None
    ) -> list[Acknowledged]:
        workers = [
            crew.start(
                jobs.save_many,
                url=crew.url,
                thread_ids=thread_ids,
                count=count or self.times_at_once,
                name=f"process {number}",
                from_latest=from_latest,
            )
            for number in range(processes)
        ]
        crew.together(workers)
        return [(thread, saved, state) for worker in workers for thread, saved, state in worker.finish()]

    async def _check_saved(self, store: DurableTestStore, acknowledged: Iterable[Acknowledged]) -> None:
        """Assert that exactly the acknowledged checkpoints are there, with the right numbers and parents."""
        expected: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for thread_id, checkpoint_id, state in acknowledged:
            expected[thread_id][checkpoint_id] = state
        async with store.open() as checkpointer:
            for thread_id, checkpoints in expected.items():
                content = await content_of(checkpointer, thread_id)
                assert dict(content.checkpoints) == checkpoints
                seqs = [entry.seq for entry in await checkpointer.history(thread_id, limit=None)]
                assert seqs == list(range(len(checkpoints), 0, -1))

    async def test_processes_that_take_turns_with_steps_of_all_kinds_damage_nothing(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        """The steps are appends, edits, forks, replacements and deletions. Every few steps a new process takes over."""
        ledger = Ledger("turns")
        turns = 400 if SOAK else self.turns_of_processes
        for turn in range(turns):
            worker = crew.start(
                crash_jobs.some_steps, url=store.url, thread_id=ledger.thread_id, seed=turn, count=1 + turn % 9
            )
            for message in worker.hear_out():
                ledger.note(message)
            worker.finish()
            if turn % 8 == 7 or turn == turns - 1:
                async with store.open() as checkpointer:
                    assert not await ledger.settle(checkpointer)

    async def test_of_several_processes_that_expect_the_same_latest_one_wins(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        workers = [
            crew.start(jobs.try_to_be_next, url=store.url, thread_id="race", name=f"process {number}")
            for number in range(4)
        ]
        history: list[str] = []
        for _ in range(self.times_at_once * 2 // 3):
            instant = time.time() + 0.01
            for worker in workers:
                worker.tell(latest=history[-1] if history else None, at=instant)
            answers = [worker.hear() for worker in workers]
            winners = [answer["saved"] for answer in answers if answer["saved"]]
            assert len(winners) == 1, answers
            assert [answer["latest"] for answer in answers if not answer["saved"]] == winners * 3
            history += winners
        async with store.open() as checkpointer:
            content = await content_of(checkpointer, "race")
        assert [checkpoint_id for checkpoint_id, _ in content.checkpoints] == history

    async def test_a_counter_that_processes_count_up_misses_nothing(self, store: DurableTestStore, crew: Crew) -> None:
        times = self.times_at_once * 2 // 3
        workers = [crew.start(jobs.count_up, url=store.url, thread_id="counter", times=times) for _ in range(4)]
        crew.together(workers)
        for worker in workers:
            worker.finish()
        async with store.open() as checkpointer:
            entries = await checkpointer.history("counter", limit=None)
            states = [await checkpointer.load("counter", entry.checkpoint_id) for entry in entries]
        assert [state.iteration for state in states if state] == list(range(4 * times, 0, -1))

    async def test_deleting_while_others_append_damages_nothing(self, store: DurableTestStore, crew: Crew) -> None:
        saved, deleted = await self._removed_while_saving(store, crew, "checkpoints")
        async with store.open() as checkpointer:
            found = dict((await content_of(checkpointer, "busy")).checkpoints)
        expected = {checkpoint_id: state for _, checkpoint_id, state in saved if checkpoint_id not in deleted}
        assert deleted, "nothing was deleted, so nothing was tried"
        assert found == expected

    @pytest.mark.parametrize("how", ["vacuum", "thread"])
    async def test_removing_in_bulk_while_others_append_damages_nothing(
        self, store: DurableTestStore, crew: Crew, how: str
    ) -> None:
        saved, _ = await self._removed_while_saving(store, crew, how)
        async with store.open() as checkpointer:
            left = (await content_of(checkpointer, "busy")).checkpoints
            states = {checkpoint_id: state for _, checkpoint_id, state in saved}
            assert [(known, states.get(known)) for known, _ in left] == list(left)
            assert len(left) < len(saved), "nothing was removed, so nothing was tried"
            state = (await checkpointer.load("busy") or AgentState()).with_message(Message.user("and on"))
            await checkpointer.save(state, "busy")
            assert known_digest(state) == (await content_of(checkpointer, "busy")).checkpoints[-1][1]

    async def _removed_while_saving(
        self, store: DurableTestStore, crew: Crew, how: str
    ) -> tuple[list[Acknowledged], list[str]]:
        saved, deleted = list[Acknowledged](), list[str]()
        for _ in range(MOST_TRIES):  # on a busy machine, readers may come when all is over
            more_saved, more_deleted, reads = self._removed_once_while_saving(store, crew, how)
            saved += more_saved
            deleted += more_deleted
            if reads:
                return saved, deleted
        raise AssertionError("there was never anything to read")

    def _removed_once_while_saving(
        self, store: DurableTestStore, crew: Crew, how: str
    ) -> tuple[list[Acknowledged], list[str], int]:
        savers = [
            crew.start(
                jobs.save_many,
                url=store.url,
                thread_ids=["busy"],
                count=self.saves_while_removing[how],
                name=f"process {number}",
                from_latest=number == 1,
            )
            for number in range(2)
        ]
        remover = crew.start(jobs.remove_while_others_save, url=store.url, thread_id="busy", how=how)
        readers = [
            crew.start(jobs.read_while_others_change, url=store.url, thread_id="busy")
            for _ in range(self.readers_while_removing)
        ]
        crew.together([*savers, remover, *readers])
        saved = [(thread, known, state) for saver in savers for thread, known, state in saver.finish()]
        for worker in (remover, *readers):
            worker.tell(stop=True)
        reads = sum(reader.finish() for reader in readers)
        return saved, remover.finish(), reads

    async def test_a_handle_works_on_both_sides_of_a_fork(self, store: DurableTestStore, crew: Crew) -> None:
        worker = crew.start(fork_jobs.use_across_a_fork, url=store.url, thread_id="forked")
        await self._check_saved(store, worker.finish())

    async def test_a_fork_while_another_thread_writes_stops_neither_side(
        self, store: DurableTestStore, crew: Crew
    ) -> None:
        forks = self.times_at_once
        written = crew.start(fork_jobs.fork_while_writing, url=store.url, forks=forks).finish()
        assert len(written) == forks + 1
        async with store.open() as checkpointer:
            for thread_id, number in written.items():
                (found,) = await checkpointer.get_writes(thread_id, "checkpoint")
                assert found.value == number

    async def test_another_process_sees_what_a_saver_put(self, store: DurableTestStore, crew: Crew) -> None:
        async with CheckpointSaver(store.open()) as saver:
            for namespace in ("", "default"):
                place: dict[str, Any] = {"thread_id": "t", "checkpoint_ns": namespace}
                await saver.put(checkpoint_id="a", checkpoint_data={"in": namespace}, **place)
                await saver.put(checkpoint_id="b", checkpoint_data={"n": [1]}, parent_checkpoint_id="a", **place)
                for writes in ([("x", namespace)], [("__error__", 7)]):
                    await saver.put_writes(checkpoint_id="b", task_id="task", writes=writes, **place)
            answer = crew.start(jobs.read_versions, url=store.url, thread_id="t").finish()
        assert answer == {
            namespace: [["b", "a", {"n": [1]}, [[-1, 7], [0, namespace]]], ["a", None, {"in": namespace}, []]]
            for namespace in ("", "default")
        }

    async def test_an_outage_is_an_error_in_every_process(self, store: DurableTestStore, crew: Crew) -> None:
        state = AgentState().with_message(Message.user("hi"))
        async with store.open() as checkpointer:
            saved = await checkpointer.save(state, "thread")
        async with store.outage():
            answer = self._read_elsewhere(crew, "thread")
            assert "BackendUnavailableError" in (answer["raised"] or ()), answer
        answer = self._read_elsewhere(crew, "thread")
        assert answer == {"raised": None, "ids": [saved], "loaded": known_digest(state)}

    async def test_damage_is_an_error_in_every_process(self, store: DurableTestStore, crew: Crew) -> None:
        state = AgentState().with_message(Message.user("hi"))
        async with store.open() as checkpointer:
            await checkpointer.save(state, "damaged")
            saved = await checkpointer.save(state, "whole")
        await store.corrupt("damaged")
        answer = self._read_elsewhere(crew, "damaged")
        assert "CorruptCheckpointError" in (answer["raised"] or ()), answer
        answer = self._read_elsewhere(crew, "whole")
        assert answer == {"raised": None, "ids": [saved], "loaded": known_digest(state)}

    @staticmethod
    def _read_elsewhere(crew: Crew, thread_id: str) -> dict[str, Any]:
        answer: dict[str, Any] = crew.start(jobs.try_to_read, url=crew.url, thread_id=thread_id).finish()
        return answer
