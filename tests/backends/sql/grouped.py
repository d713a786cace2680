"""What holds for saves of many threads that go to a database server in one commit."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from locus.memory.backends.sql.engine import Connection, SQLServerEngine
from locus.memory.backends.sql.flavour import run_steps_async
from locus.memory.engine import CommitsTogether
from locus.memory.model.codec import decode, encode
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import ANY, Base, Commit, Outcome, Run, TaskWrites, Verdict, Write

AnyEngine = SQLServerEngine[Any]

ODD = 'it\'s "odd" \\ {a,b} \x00 \x01 NULL é 🙂 '
"""An id that no way of writing it down should mistake for anything else."""


def first(thread_id: str, name: str = "a", **changes: Any) -> Commit:
    """A checkpoint with a branch of its own, of one run."""
    made = Commit(
        thread_id=thread_id,
        namespace="default",
        checkpoint_id=name,
        rev=f"rev-{name}",
        created_at=datetime.now(UTC),
        metadata="{}",
        head='{"messages":[]}',
        manifest=f'[[["messages"],[["of-{name}",0,0,1]]]]',
        runs=(Run(f"of-{name}", 0, 0, 1, encode([f"{name} of {thread_id}"])),),
        fresh_id=True,
    )
    return replace(made, **changes)


def after(base: str, thread_id: str, name: str, **changes: Any) -> Commit:
    """A checkpoint that goes on with the branch of another, the first of its thread."""
    made = first(
        thread_id,
        name,
        base=Base(base, f"rev-{base}"),
        parent_id=base,
        runs=(Run(f"of-{base}", 1, 1, 1, f'["{name}"]'),),
        manifest=f'[[["messages"],[["of-{base}",1,0,2]]]]',
    )
    return replace(made, **changes)


def wrote(*values: str, start: int = 0) -> tuple[Write, ...]:
    return tuple(Write("task", "path", start + at, "channel", value) for at, value in enumerate(values))


class SQLGroupLaws(ABC):
    """Inherit, and provide `engine`, whose tables are set up, and `sent`."""

    statements_of_commits: int
    """What a group of ordinary commits is sent as."""
    statements_with_writes: int
    """The same if there are pending writes in it."""

    @abstractmethod
    @asynccontextmanager
    def sent(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Any]]:
        """Collects what goes to the server, one item for each round trip."""

    @asynccontextmanager
    async def transaction(self, engine: AnyEngine) -> AsyncIterator[Connection]:
        """Somebody else's."""
        connection = await engine._connect()
        try:
            await connection.begin(writing=True)
            yield connection
            await connection.rollback()
        finally:
            connection.close()

    @asynccontextmanager
    async def holding(self, engine: AnyEngine, thread_id: str) -> AsyncIterator[None]:
        async with self.transaction(engine) as connection:
            found = await run_steps_async(engine._threads.open(thread_id), connection.execute)
            assert found is not None
            yield

    async def together(self, engine: AnyEngine, *group: Commit | TaskWrites) -> list[Outcome | None]:
        assert isinstance(engine, CommitsTogether)
        return await engine.commit_together(group)

    async def ids(self, engine: AnyEngine, thread_id: str) -> list[str]:
        return [entry.checkpoint_id for entry in await engine.history(thread_id, None, None, None)]

    async def test_each_is_answered_and_stored_as_if_it_were_alone(self, engine: AnyEngine) -> None:
        day = datetime.now(UTC) + timedelta(days=1)
        large = (Run("#large", 0, 0, 1, '["large"]'),)
        for begun in ("one", "two", "four", ODD):
            await engine.commit(first(begun))
        answers = await self.together(
            engine,
            after("a", "two", "b", if_latest="a", metadata='{"k":"v"}'),
            first("new", if_latest=None, values=large),
            after("a", ODD, "b", checkpoint_id=ODD, values=large),
            after("a", "one", "b", parent_id=ANY, expires_at=day, fresh_id=False),
            first("", namespace=ODD, parent_id="nobody"),
            first("four", "whole", parent_id=None),
            first("ended", expires_at=datetime.now(UTC) - timedelta(days=1)),
        )
        assert answers == [
            Outcome(Verdict.COMMITTED, 2, "a"),
            Outcome(Verdict.COMMITTED, 1),
            Outcome(Verdict.COMMITTED, 2, "a"),
            Outcome(Verdict.COMMITTED, 2, "a"),
            Outcome(Verdict.COMMITTED, 1),
            Outcome(Verdict.COMMITTED, 2),
            Outcome(Verdict.COMMITTED, 1),
        ]
        for thread_id in ("one", "two", ODD):
            stored = await engine.read(thread_id, "default", None)
            assert stored is not None
            assert dict_from(stored)["messages"] == [f"a of {thread_id}", "b"]
        assert [decode(entry.metadata) for entry in await engine.history("two", None, None, None)] == [{"k": "v"}, {}]
        stored = await engine.read("four", "default", "whole")
        assert stored is not None
        assert dict_from(stored)["messages"] == ["whole of four"]
        assert await self.ids(engine, "") == ["a"]
        assert await self.ids(engine, "ended") == []
        assert await engine.expire(day + timedelta(days=1)) == 3

    async def test_many_at_once_are_as_many_one_by_one(self, engine: AnyEngine) -> None:
        """Ordinary and odd ones, drawn; those that were not taken are sent alone."""
        dice = random.Random(20)
        shown: dict[str, list[Any]] = {"alone": [], "grouped": []}
        for step in range(12):
            alone: list[Commit] = []
            for number in range(dice.randrange(2, 7)):
                name = f"n{step}"
                usual = f"n{dice.randrange(step)}" if step and dice.randrange(3) else None
                odd: dict[str, Any] = dice.choice(
                    [
                        {},
                        {},
                        {"if_latest": dice.choice([None, usual, "nobody"])},
                        {"parent_id": dice.choice([None, ANY, "nobody", name]), "parent_as_named": dice.random() < 0.3},
                        {"parent_id": "nobody", "parent_required": True},
                        {"checkpoint_id": "same", "fresh_id": False},
                        {"checkpoint_id": "same", "fresh_id": False, "replaces": f"rev-n{max(0, step - 1)}"},
                        {"namespace": dice.choice(["", "default"])},
                    ]
                )
                thread = f"t{number}"
                alone.append(after(usual, thread, name, **odd) if usual else first(thread, name, **odd))
            grouped = [replace(commit, thread_id=f"grouped {commit.thread_id}") for commit in alone]
            dice.shuffle(grouped)
            expected = {f"grouped {commit.thread_id}": await engine.commit(commit) for commit in alone}
            answers = await self.together(engine, *grouped)
            for commit, answer in zip(grouped, answers, strict=True):
                if answer is None:
                    answer = await engine.commit(commit)
                assert answer == expected[commit.thread_id], commit
        for number in range(7):
            for kind, thread_id in (("alone", f"t{number}"), ("grouped", f"grouped t{number}")):
                found = await engine.export(thread_id, 0, 1_000, {})
                shown[kind] += [
                    (replace(one.entry, thread_id=""), one.head, one.manifest, found.runs) for one in found.checkpoints
                ]
        assert shown["grouped"] == shown["alone"]
        assert len(shown["alone"]) > 20

    async def test_a_thread_that_another_holds_is_passed_over(self, engine: AnyEngine) -> None:
        for begun in ("held", "free", "held writes"):
            await engine.commit(first(begun))
        async with self.holding(engine, "held"), self.holding(engine, "held writes"):
            answers = await self.together(
                engine,
                after("a", "held", "b"),
                TaskWrites("held writes", "default", "a", "task", wrote("1")),
                after("a", "free", "b"),
                first("new"),
                TaskWrites("free too", "default", "a", "task", wrote("1")),
            )
            # Seen by others already, while that transaction goes on.
            assert await self.ids(engine, "free") == ["b", "a"]
            assert await self.ids(engine, "new") == ["a"]
        assert answers[:4] == [None, None, Outcome(Verdict.COMMITTED, 2, "a"), Outcome(Verdict.COMMITTED, 1)]
        assert await self.ids(engine, "held") == ["a"]
        assert await engine.get_writes("held writes", "default", "a", None) == []
        assert await self.together(engine, after("a", "held", "b")) == [Outcome(Verdict.COMMITTED, 2, "a")]

    async def test_a_thread_that_another_creates_is_not_awaited_for_long(self, engine: AnyEngine) -> None:
        await engine.commit(first("there"))
        async with self.transaction(engine) as connection:
            columns = f"INSERT INTO {engine.sql.threads} (thread_id, last_seq) VALUES (?, 0)"
            await connection.execute(columns, ("slowly",))
            group = (first("slowly"), after("a", "there", "b"))
            assert await self.together(engine, *group) == [None, Outcome(Verdict.COMMITTED, 2, "a")]
            assert await self.ids(engine, "there") == ["b", "a"]

    async def test_one_that_is_refused_leaves_the_others_alone(self, engine: AnyEngine) -> None:
        for begun in ("conflict", "exists", "stale", "taken", "parent", "good"):
            await engine.commit(first(begun))
        await engine.commit(after("a", "taken", "b"))
        refused = {
            Verdict.CONFLICT: after("a", "conflict", "c", if_latest=None),
            Verdict.EXISTS: replace(after("a", "exists", "a", fresh_id=False), rev="another"),
            Verdict.STALE_BASE: after("nobody", "stale", "c"),
            Verdict.BRANCH_TAKEN: after("a", "taken", "c"),
            Verdict.NO_PARENT: after("a", "parent", "c", parent_id="nobody", parent_required=True),
        }
        group = [*refused.values(), after("a", "good", "c"), after("nobody", "nowhere", "c")]
        answers = await self.together(engine, *group)
        assert answers[-2] == Outcome(Verdict.COMMITTED, 2, "a")
        for commit, answer, verdict in zip(group, answers, refused, strict=False):
            # Who is not taken goes alone, and is refused then.
            assert (answer or await engine.commit(commit)).verdict is verdict
            assert await self.ids(engine, commit.thread_id) == (
                ["b", "a"] if verdict is Verdict.BRANCH_TAKEN else ["a"]
            )
        assert await self.ids(engine, "nowhere") == []

    async def test_pending_writes_join(self, engine: AnyEngine) -> None:
        large = '"' + "large " * 200 + '"'
        threads = ("one", "two", "three", ODD)
        for thread_id in threads:
            await engine.commit(first(thread_id))
            for task in ("task", "other"):
                await engine.put_writes(TaskWrites(thread_id, "default", "a", task, wrote("1", "2", "3", start=-1)))
        members = [
            TaskWrites("one", "default", "a", "task", wrote(large, '"it\'s \\\\ \\"so\\""')),
            TaskWrites("two", "default", "a", "task", wrote("9", large), keep_numbered=True),
            TaskWrites("three", "default", "a", "task", (*wrote("7", start=-1), *wrote("8", start=-1))),
            TaskWrites(ODD, "default", "a", "task", ()),
        ]
        answers = await self.together(engine, *members, first("beside"))
        assert answers == [*[Outcome(Verdict.COMMITTED)] * 4, Outcome(Verdict.COMMITTED, 1)]
        for member in members:
            alone = f"alone {member.thread_id}"
            for task in ("task", "other"):
                await engine.put_writes(TaskWrites(alone, "default", "a", task, wrote("1", "2", "3", start=-1)))
            await engine.put_writes(replace(member, thread_id=alone))
            found = await engine.get_writes(member.thread_id, "default", "a", None)
            assert found == await engine.get_writes(alone, "default", "a", None)

    async def test_a_group_is_sent_at_once(self, engine: AnyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        threads = [f"t{number}" for number in range(8)]
        begun = [first(thread_id) for thread_id in threads]
        following = [after("a", thread_id, "b") for thread_id in threads]
        await engine.commit(first("warm"))
        async with self.sent(monkeypatch) as sent:
            assert None not in await self.together(engine, *begun)
            assert len(sent) == self.statements_of_commits
            sent.clear()
            assert None not in await self.together(engine, *following)
            assert len(sent) == self.statements_of_commits
            sent.clear()
            writes = [TaskWrites(thread_id, "default", "b", "task", wrote("1", "2")) for thread_id in threads[:4]]
            others = [after("b", thread_id, "c", runs=(), manifest="[]") for thread_id in threads[4:]]
            assert None not in await self.together(engine, *writes, *others)
            assert len(sent) == self.statements_with_writes

    async def test_groups_deletions_and_copies_at_once_all_come_to_an_end(self, engine: AnyEngine) -> None:
        """And whatever was acknowledged and not deleted since is there."""
        threads = [f"t{number}" for number in range(6)]
        acknowledged: dict[str, set[str]] = {thread_id: set() for thread_id in threads}

        async def groups(seed: int) -> None:
            dice = random.Random(seed)
            for step in range(15):
                chosen = dice.sample(threads, dice.randrange(2, 6))
                group: list[Commit | TaskWrites] = [first(thread_id, f"s{seed}-{step}") for thread_id in chosen]
                group[0] = TaskWrites(chosen[0], "default", "a", "task", wrote("1"))
                for member, answer in zip(group, await self.together(engine, *group), strict=True):
                    if answer is not None and isinstance(member, Commit):
                        assert answer.verdict is Verdict.COMMITTED
                        acknowledged[member.thread_id].add(member.checkpoint_id)

        async def meddling(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(10):
                source, dest = dice.sample(threads, 2)
                await engine.copy(source, dest, None)
                await engine.commit(first(source, f"alone {dice.random()}"))
                found = await engine.history(dest, None, 2, None)
                await engine.delete(dest, None, {entry.seq: entry.rev for entry in found[1:]})
                for entry in found[1:]:
                    acknowledged[dest].discard(entry.checkpoint_id)

        async with asyncio.timeout(60):
            await asyncio.gather(*map(groups, range(4)), *map(meddling, range(4, 6)))
        for thread_id in threads:
            assert acknowledged[thread_id] <= set(await self.ids(engine, thread_id))
            for entry in await engine.history(thread_id, None, None, None):
                assert await engine.read(thread_id, entry.namespace, entry.checkpoint_id) is not None
