"""Effects: the laws that `locus.effects.effects` names, over any store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from locus.effects import NOT_MADE, CleanFailure, Effect, Effects, Made
from locus.effects import effect as effect_module
from locus.effects.effect import namespace_of
from locus.effects.effects import Claim
from locus.errors import (
    BackendUnavailableError,
    ConfigurationError,
    CorruptCheckpointError,
    EffectBusyError,
    EffectError,
    EffectFailedError,
    EffectMismatchError,
    EffectResultError,
    InvalidIdError,
    SerializationError,
    UnknownEffectError,
)
from locus.memory.checkpointer import Checkpointer
from locus.memory.long_term.names import item_id
from locus.memory.model.payloads import dict_payload
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.runtime import leases
from locus.testing.data import EXACT_VALUES, LOOK_ALIKE_IDS
from locus.testing.laws.base import Laws, OpenHandle, WorkerLaws, assert_same, present, raised
from locus.testing.processes import effect_jobs
from locus.testing.processes.effect_jobs import received
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore, OutageTestStore


class Receiver:
    """Counts the calls that it gets, and answers each with its number."""

    def __init__(self, *errors: BaseException) -> None:
        self.keys: list[str] = []
        self._errors = list(errors)

    async def __call__(self, idempotency_key: str) -> int:
        self.keys.append(idempotency_key)
        if self._errors:
            raise self._errors.pop(0)
        return len(self.keys)


async def _abandoned(effects: Effects, key: str, **claimed: Any) -> None:
    """Begin an effect as a process does that dies before it is made, or before it can say so."""
    terms = {**effects.terms, "lease_seconds": 0.001}
    claim = await effects._claimed(key, claimed.get("thread_id"), None, terms)  # type: ignore[arg-type]
    assert isinstance(claim, Claim)
    while time.time() <= present(claim.effect.lease).until:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class EffectStoreLaws(Laws):
    """The laws of effects that the store has a part in."""

    effect_ids: ClassVar[Sequence[str]] = LOOK_ALIKE_IDS
    """Hostile keys and threads."""

    @pytest_asyncio.fixture
    async def effects(self, open_handle: OpenHandle) -> Effects:
        return Effects(open_handle())

    @pytest.fixture
    def others(self, open_handle: OpenHandle) -> Effects:
        """A ledger on the same store, by another handle."""
        return Effects(open_handle())

    @pytest.fixture
    def same_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let a lease end by its time, because there is one clock only."""
        for module in (leases, effect_module):
            monkeypatch.setattr(module, "SKEW", 0.0)

    async def test_a_call_is_made_once_and_every_caller_gets_its_result(
        self, effects: Effects, others: Effects, checkpointer: Checkpointer
    ) -> None:
        receiver = Receiver()
        calls = [(effects if number % 2 else others).once("k", receiver, args={"n": 1}) for number in range(6)]
        assert await asyncio.gather(*calls) == [1] * 6
        assert await others.once("k", receiver, args={"n": 1}) == 1
        assert await asyncio.to_thread(others.sync.once, "k", lambda: 7) == 1
        effect = present(await others.get("k"))
        assert (effect.state, effect.result, effect.attempt, effect.key) == ("done", 1, 1, "k")
        assert receiver.keys == [effect.idempotency_key]
        with pytest.raises(EffectMismatchError, match="other arguments"):
            await others.once("k", receiver, args={"n": 2})
        assert await asyncio.to_thread(effects.sync.once, "other", lambda: "made") == "made"
        assert await others.once("other", receiver) == "made"
        assert len(receiver.keys) == 1
        assert await checkpointer.list_threads(None) == []

    async def test_a_result_comes_back_as_it_was_or_is_an_error(self, effects: Effects, others: Effects) -> None:
        values = {f"k{number}": value for number, value in enumerate(EXACT_VALUES)}
        first = await effects.once("all", lambda: values)
        assert_same(first, values)
        assert_same(await others.once("all", Receiver()), values)
        for number, value in enumerate((object(), float("nan"), "x" * 1_000_000, {1: 2}, b"x")):
            for ledger in (effects, others):
                with pytest.raises(EffectResultError, match="was made"):
                    await ledger.once(f"unkept{number}", lambda value=value: value)
        shown = repr(await others.find())
        assert "unkept" in shown
        assert all(repr(value)[:40] not in shown for value in values.values() if len(repr(value)) > 20)
        assert await others.once("own", lambda: 1 + 2j, dump=str, load=complex) == 1 + 2j

    async def test_keys_and_threads_are_data_and_never_cross(self, effects: Effects, others: Effects) -> None:
        made: dict[tuple[str | None, str], str] = {}
        for number, name in enumerate(self.effect_ids):
            for thread_id, key in ((None, name), (name, "k"), ("t", name)):
                value = f"{number} {len(made)}"
                assert await effects.once(key, lambda value=value: value, thread_id=thread_id) == value
                made[thread_id, key] = value
        found = await others.find(limit=None)
        assert {(effect.thread_id, effect.key): effect.result for effect in found} == made
        assert len({effect.idempotency_key for effect in found}) == len(made)
        assert {effect.key for effect in await others.find(thread_id="t", limit=None)} == set(self.effect_ids)
        pages = await others.find(limit=7)
        while page := await others.find(limit=7, after=pages[-1]):
            pages += page
        assert pages == found
        below = await effects.once("k", lambda: "below", thread_id="t/below")
        assert [effect.result for effect in await others.find(thread_id="t/below")] == [below]
        assert {effect.key for effect in await others.find(thread_id="t", limit=None)} == set(self.effect_ids)
        made["t/below", "k"] = below
        assert await others.erase("t") == len(self.effect_ids)
        assert {key for key in made if key[0] != "t"} == {
            (each.thread_id, each.key) for each in await effects.find(limit=None)
        }
        for wrong in ("\ud800", 7, "x" * 1025):
            with pytest.raises(InvalidIdError):
                await effects.once(wrong, Receiver())  # type: ignore[arg-type]
        with pytest.raises(SerializationError):
            await effects.once("k", Receiver(), args={"x": object()})

    async def test_what_is_unknown_is_repeated_only_on_the_terms_of_its_caller(
        self, effects: Effects, others: Effects
    ) -> None:
        receiver, asked = Receiver(), list[Effect]()
        for key in ("raise", "retry", "made", "not made", "no answer", "wrong answer"):
            await _abandoned(effects, key, thread_id="t")
        with pytest.raises(UnknownEffectError, match="cut off"):
            await others.once("raise", receiver, thread_id="t")
        assert receiver.keys == []
        assert await others.once("retry", receiver, thread_id="t", on_unknown="retry") == 1

        def reconcile(effect: Effect) -> Any:
            asked.append(effect)
            answers = {"made": Made({"id": 7}), "not made": NOT_MADE, "no answer": None, "wrong answer": True}
            return answers[effect.key]

        assert await others.once("made", receiver, thread_id="t", on_unknown=reconcile) == {"id": 7}
        assert await others.once("made", receiver, thread_id="t") == {"id": 7}
        assert await others.once("not made", receiver, thread_id="t", on_unknown=reconcile) == 2
        with pytest.raises(UnknownEffectError):
            await others.once("no answer", receiver, thread_id="t", on_unknown=reconcile)
        with pytest.raises(ConfigurationError, match="NOT_MADE"):
            await others.once("wrong answer", receiver, thread_id="t", on_unknown=reconcile)
        assert [effect.state for effect in asked] == ["unknown"] * 4
        assert receiver.keys == [
            present(await others.get(key, thread_id="t")).idempotency_key for key in ("retry", "not made")
        ]


class EffectLaws(EffectStoreLaws):
    """All laws of effects that one process makes."""

    async def test_an_error_is_recorded_and_repeated_only_on_these_terms(
        self, effects: Effects, others: Effects
    ) -> None:
        receiver = Receiver(ConnectionError("secret"), KeyError("clean"), CleanFailure(), RecursionError("later"))
        with pytest.raises(ConnectionError):
            await effects.once("k", receiver)
        effect = present(await others.get("k"))
        assert (effect.state, effect.error, effect.repeatable) == ("failed", "ConnectionError: secret", False)
        assert "secret" not in repr(effect)
        for ledger in (effects, others):
            failed = await raised(EffectFailedError, ledger.once("k", receiver), "an effect that has failed")
            assert "ConnectionError" in str(failed)
            assert "secret" not in str(failed)
        assert len(receiver.keys) == 1
        with pytest.raises(KeyError):
            await others.once("k", receiver, on_unknown="retry", clean_errors=(LookupError,))
        with pytest.raises(CleanFailure):
            await effects.once("k", receiver)
        with pytest.raises(RecursionError):
            await effects.once("k", receiver, pauses=(RecursionError,))
        assert present(await others.get("k")).state == "paused"
        assert await effects.once("k", receiver) == 5
        assert len(set(receiver.keys)) == 1
        assert present(await others.get("k")).attempt == 5

    @pytest.mark.usefixtures("same_clock")
    async def test_a_person_settles_what_is_unknown(self, effects: Effects, others: Effects) -> None:
        receiver = Receiver(ConnectionError())
        for key in ("a", "b"):
            await _abandoned(effects, key)
        with pytest.raises(UnknownEffectError):
            await effects.once("a", receiver, on_unknown="ask", wait_seconds=0)
        waiting = [asyncio.create_task(effects.once(key, receiver, on_unknown="ask")) for key in ("a", "b")]
        await asyncio.sleep(0)
        assert (await others.settle("a", "done", note="it is on the statement", result=[1])).state == "done"
        await others.settle("b", "failed", note="it never arrived")
        assert await waiting[0] == [1]
        with pytest.raises(ConnectionError):
            await waiting[1]
        assert (await effects.settle("b", "done", note="it did arrive")).result is None
        assert await effects.once("b", receiver) is None
        assert present(await others.get("b")).note == "it did arrive"
        assert len(receiver.keys) == 1
        with pytest.raises(EffectError, match="done already"):
            await others.settle("a", "failed", note="x")
        with pytest.raises(EffectError, match="no effect"):
            await others.settle("c", "failed", note="x")
        for wrong in (("begun", "x"), ("done", " ")):
            with pytest.raises(ConfigurationError, match="note"):
                await others.settle("a", wrong[0], note=wrong[1])

    async def test_while_a_call_is_under_way_nobody_makes_it_again(self, effects: Effects, others: Effects) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            begun.set()
            await go_on.wait()
            return "made"

        first = asyncio.create_task(effects.once("k", slow, lease_seconds=600))
        await begun.wait()
        busy = await raised(
            EffectBusyError, others.once("k", Receiver(), on_unknown="retry", wait_seconds=0), "a second caller"
        )
        assert 0 < (busy.retry_after or 0) <= 600
        with pytest.raises(EffectBusyError):
            await others.settle("k", "failed", note="x")
        assert [effect.key for effect in await others.find("begun")] == ["k"]
        second = asyncio.create_task(others.once("k", Receiver(), on_unknown="retry"))
        await asyncio.sleep(0)
        go_on.set()
        assert (await first, await second) == ("made", "made")

    async def test_a_lease_is_renewed_while_its_call_lasts(self, effects: Effects, others: Effects) -> None:
        async def until_renewed() -> int:
            began = present(present(await others.get("k")).lease)
            while present(present(await others.get("k")).lease).until == began.until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return 1

        assert await effects.once("k", until_renewed, lease_seconds=0.3) == 1
        terms = {**effects.terms, "lease_seconds": 0.001}
        claim = await effects._claimed("other", None, None, terms)  # type: ignore[arg-type]
        for _ in range(3):
            assert await effects.renewed(claim)
        versions = await others._items.versions(namespace_of(None), "other", None, None)
        assert len(versions) == 1, "a long call leaves no trail of renewals"
        assert await others.once("other", Receiver(), on_unknown="retry") == 1
        assert not await effects.renewed(claim), "it was taken over"

    async def test_a_call_that_is_cut_off_is_unknown_and_one_that_was_not_begun_is_not(
        self, effects: Effects, others: Effects
    ) -> None:
        begun = asyncio.Event()

        async def cut_off() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(effects.once("k", cut_off))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [effect.key for effect in await others.find("unknown")] == ["k"]
        with pytest.raises(TimeoutError):
            await effects.once("late", Receiver(TimeoutError()))
        for key in ("k", "late"):
            with pytest.raises(UnknownEffectError):
                await others.once(key, Receiver())

    async def test_an_effect_is_forgotten_after_its_time(self, effects: Effects, others: Effects) -> None:
        receiver = Receiver()
        assert await effects.once("k", receiver, ttl_seconds=0.01) == 1
        await _abandoned(effects, "unknown")
        while await others.get("k") is not None:  # noqa: ASYNC110 - what ends says nothing
            await asyncio.sleep(0.01)
        await others.sweep()
        assert await others._items.store.list_threads(None, "*") == [item_id((), "unknown")]
        assert await others.once("k", receiver) == 2
        assert await others.delete("k")
        assert not await others.delete("k")
        assert await effects.once("k", receiver) == 3

    async def test_a_damaged_record_is_an_error_and_no_call_is_made(self, effects: Effects) -> None:
        receiver, space = Receiver(), effects._items.store
        whole = {"format": 1, "namespace": [], "value": None, "metadata": {}, "expires_at": None, "ttl_seconds": None}
        for number, value in enumerate(({"x": 1}, {"format": 99}, [1], {"format": 1, "state": "done"})):
            payload = {**whole, "key": f"k{number}", "value": value, "index": False}
            payload["created_at"] = "2026-01-01T00:00:00+00:00"
            name = item_id((), f"k{number}")
            await space.save(name, dict_payload(payload), namespace=DEFAULT_NAMESPACE)
            with pytest.raises(CorruptCheckpointError):
                await effects.once(f"k{number}", receiver, on_unknown="retry")
        assert receiver.keys == []


class EffectOutageLaws(EffectStoreLaws):
    """During an outage no call is made; one that was made before is not made again."""

    async def test_an_outage_makes_no_call_and_repeats_none(
        self, effects: Effects, others: Effects, store: OutageTestStore
    ) -> None:
        receiver = Receiver()
        assert await effects.once("there", receiver) == 1
        async with store.outage():
            for ledger in (effects, others):
                for key in ("there", "new"):
                    with pytest.raises(BackendUnavailableError):
                        await ledger.once(key, receiver, on_unknown="retry")
                with pytest.raises(BackendUnavailableError):
                    await ledger.get("there")
                with pytest.raises(BackendUnavailableError):
                    await ledger.find()
        assert len(receiver.keys) == 1
        assert await effects.once("new", receiver) == 2
        outage = store.outage()

        async def during() -> str:
            await outage.__aenter__()
            return "made"

        try:
            lost = await raised(
                BackendUnavailableError,
                effects.once("lost", during, lease_seconds=0.01),
                "a result that cannot be kept",
            )
            assert "could not be recorded" in str(lost.__notes__)
        finally:
            await outage.__aexit__(None, None, None)
        assert await effects.once("lost", receiver) == "made"
        assert await others.once("lost", receiver) == "made"
        assert len(receiver.keys) == 2


class EffectProcessLaws(EffectOutageLaws, WorkerLaws):
    """Several processes, and processes that are killed."""

    made_at_once: ClassVar[int] = 6
    """How many effects several processes make at the same time."""

    async def test_of_several_processes_one_makes_an_effect(self, effects: Effects, crew: Crew, tmp_path: Path) -> None:
        receiver, keys = str(tmp_path / "received"), [f"k{number}" for number in range(self.made_at_once)]
        workers = [
            crew.start(effect_jobs.make_together, url=crew.url, receiver=receiver, keys=keys, blocking=number == 2)
            for number in range(3)
        ]
        crew.together(workers)
        results = [worker.finish() for worker in workers]
        assert results[0] == results[1] == results[2] == [present(await effects.get(key)).result for key in keys]
        assert sorted(line.partition(" ")[0] for line in received(receiver)) == keys

    @pytest.mark.crash
    async def test_an_effect_of_a_process_that_was_killed_is_unknown_until_somebody_knows(
        self, store: DurableTestStore, crew: Crew, tmp_path: Path
    ) -> None:
        for when in ("before", "behind"):
            receiver = str(tmp_path / when)
            worker = crew.start(
                effect_jobs.make_until_killed, url=crew.url, receiver=receiver, key="k" + when, when=when
            )
            assert worker.hear() == {"at": when}
            worker.kill()
            async with store.open_after_kill() as handle:
                effects = Effects(handle)

                async def pay(idempotency_key: str, when: str = when, receiver: str = receiver) -> str:
                    effect_jobs.receive(receiver, f"k{when} {idempotency_key}")
                    return "paid"

                def ask(effect: Effect, receiver: str = receiver) -> Any:
                    arrived = any(line.endswith(effect.idempotency_key) for line in received(receiver))
                    return Made("it arrived") if arrived else NOT_MADE

                with pytest.raises(UnknownEffectError):
                    await effects.once("k" + when, pay, args={"amount": 5})
                result = await effects.once("k" + when, pay, args={"amount": 5}, on_unknown=ask)
                assert result == ("paid" if when == "before" else "it arrived")
                assert len(received(receiver)) == 1
