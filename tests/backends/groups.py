"""Random saves of many threads: in groups that are committed together, and one by one on a second set of threads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from random import Random

from locus.memory.engine import CommitsTogether, Engine, KeepsWrites
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import Commit, Outcome, TaskWrites, Verdict, Write
from tests.backends.commit_courses import BEGUN, IDS, NAMESPACES, Dice, Model, Save, Saves, Traits

Member = Commit | TaskWrites


async def compare_groups(engine: Engine, rounds: int, seed: int, threads: int = 6) -> Counter[str]:
    """Commit random groups, and each member of them again by itself, on threads that hold the same.

    Returns how often which answer was given; `None` counts as "alone".
    """
    assert isinstance(engine, CommitsTogether)
    assert isinstance(engine, KeepsWrites)
    dice, model, answers = Dice(), Model(Traits()), Counter[str]()
    saves, random = Saves(dice, model, expires=False), Random(seed)
    grouped = [f"grouped {seed} {number}" for number in range(threads)]
    sent: list[Save] = []
    for _ in range(rounds):
        dice.take_up(random.randrange(2**32))
        members: list[tuple[Member, Save | None]] = []
        for thread_id in random.sample(grouped, random.randint(1, threads)):
            save = _next(random, saves, sent, thread_id)
            members.append((_writes(random, thread_id), None) if random.random() < 0.2 else (save.commit, save))
        together = await engine.commit_together([member for member, _ in members])
        assert len(together) == len(members)
        for (member, made), answer in zip(members, together, strict=True):
            found = answer
            if found is None:
                answers["alone"] += 1
                found = await _alone(engine, member)
            assert _said(found) == _said(await _alone(engine, _twin(member))), member
            answers[f"{found.verdict.name}{' again' if found.repeated else ''}"] += 1
            if made is not None:
                sent.append(made)
                if found.is_written:
                    replaced = model.thread(member.thread_id).find(made.commit.namespace, made.commit.checkpoint_id)
                    outcome = replace(found, replaced=replaced)
                    model.write(made, outcome)
                    saves.made.append(made.kept(outcome))
    for thread_id in grouped:
        await _compare(engine, thread_id)
    return answers


def _next(random: Random, saves: Saves, sent: list[Save], thread_id: str) -> Save:
    """Another save of a thread, or one that was sent before."""
    before = [save for save in sent if save.commit.thread_id == thread_id]
    return random.choice(before).again() if before and random.random() < 0.1 else saves.drawn(thread_id)


def _writes(random: Random, thread_id: str) -> TaskWrites:
    task, numbers = f"task {random.randrange(2)}", random.sample((-3, -1, 0, 1, 2), random.randint(0, 3))
    rows = tuple(Write(task, "", number, "channel", str(random.randrange(100))) for number in numbers)
    return TaskWrites(thread_id, random.choice(NAMESPACES), random.choice(IDS), task, rows, random.random() < 0.5)


def _twin(member: Member) -> Member:
    return replace(member, thread_id=f"twin of {member.thread_id}")


async def _alone(engine: Engine, member: Member) -> Outcome:
    if isinstance(member, Commit):
        return await engine.commit(member)
    assert isinstance(engine, KeepsWrites)
    await engine.put_writes(member)
    return Outcome(Verdict.COMMITTED)


def _said(outcome: Outcome) -> Outcome:
    """Not every engine says what it has replaced, and not always."""
    return replace(outcome, replaced=None)


async def _compare(engine: Engine, thread_id: str) -> None:
    """All that is stored of a thread and of its twin."""
    assert isinstance(engine, KeepsWrites)
    twin = f"twin of {thread_id}"
    entries = await engine.history(thread_id, None, None, None)
    assert [replace(entry, thread_id=twin) for entry in entries] == await engine.history(twin, None, None, None)
    for entry in entries:
        found = [await engine.read(name, entry.namespace, entry.checkpoint_id) for name in (thread_id, twin)]
        assert found[0] is not None
        assert found[1] is not None
        assert dict_from(found[0]) == dict_from(found[1])
        assert found[0].runs == found[1].runs
    for namespace in NAMESPACES:
        for checkpoint_id in {*IDS, *(entry.checkpoint_id for entry in entries if entry.namespace == namespace)}:
            writes = await engine.get_writes(thread_id, namespace, checkpoint_id, None)
            assert writes == await engine.get_writes(twin, namespace, checkpoint_id, None)


_numbers = count()


def committing_together(engine: Engine) -> Engine:
    """The engine, with each commit in a group, together with one of a thread that nobody else knows. So with writes."""
    assert isinstance(engine, CommitsTogether)
    assert isinstance(engine, KeepsWrites)
    commit, put_writes, bystander = engine.commit, engine.put_writes, f"bystander {next(_numbers)}"
    saved = count()

    async def in_group(member: Commit) -> Outcome:
        number = next(saved)
        rev = f"{bystander} {number}"
        other = Commit(bystander, "", rev, rev, BEGUN, "{}", "{}", "[]", parent_id=None, fresh_id=True)
        beside, found = await engine.commit_together([other, member])
        assert beside in (None, Outcome(Verdict.COMMITTED, number + 1))
        if beside is None:
            await commit(other)
        return await commit(member) if found is None else found

    async def put_in_group(task: TaskWrites) -> None:
        (found,) = await engine.commit_together([task])
        if found is None:
            await put_writes(task)

    vars(engine).update(commit=in_group, put_writes=put_in_group)
    return engine
