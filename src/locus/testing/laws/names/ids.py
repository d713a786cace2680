"""Ids are data, never syntax: every character counts, and none means anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError, ConflictError, InvalidIdError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.ids import new_id
from locus.memory.model.records import ANY, DEFAULT_NAMESPACE, Base, Commit, Verdict
from locus.testing.data import BAD_IDS, HOSTILE_IDS
from locus.testing.laws.base import (
    Laws,
    OpenHandle,
    assert_same,
    assert_same_state,
    dicts,
    ids,
    present,
    raised,
    snapshot,
)


def _state(name: str) -> AgentState:
    return AgentState(agent_id=f"the state of {name}")


async def _verdict(engine: Engine, commit: Commit) -> Verdict:
    """The answer of an engine to a commit. An engine that asks a server raises what the server reports."""
    try:
        return (await engine.commit(commit)).verdict
    except ConflictError:
        return Verdict.CONFLICT
    except CheckpointNotFoundError:
        return Verdict.NO_PARENT


class IdLaws(Laws):
    """Any text up to 255 characters is an id, is kept apart from all others, and means nothing else."""

    async def test_thread_ids_are_kept_apart_exactly(self, checkpointer: Checkpointer, open_handle: OpenHandle) -> None:
        states = {name: _state(name) for name in HOSTILE_IDS}
        for name, state in states.items():
            assert await checkpointer.load(name) is None, name
            await checkpointer.save(state, name, metadata={"name": name})
        for handle in (checkpointer, open_handle()):
            assert await handle.list_threads(None) == sorted(HOSTILE_IDS)
            for name, state in states.items():
                assert_same_state(await handle.load(name), state)
                (entry,) = await handle.history(name)
                assert (entry.thread_id, entry.metadata) == (name, {"name": name})

    async def test_the_names_in_a_commit_are_data(self, checkpointer: Checkpointer) -> None:
        """Names that a commit only refers to are data, too: they are looked for, and are not there."""
        await checkpointer.save(_state("c"), "t", "c")
        async with checkpointer.store.using() as engine:
            entry = present(await engine.entry("t", DEFAULT_NAMESPACE, "c"))
            now = datetime.now(UTC)
            plain = Commit("t", DEFAULT_NAMESPACE, "d", new_id(), now, "{}", "{}", "[]")
            for name in self.other_ids:
                expected = {
                    replace(plain, checkpoint_id="c", replaces=name): Verdict.EXISTS,
                    replace(plain, parent_id=name, parent_required=True): Verdict.NO_PARENT,
                    replace(plain, if_latest=name): Verdict.CONFLICT,
                }
                if engine.keeps_runs:
                    expected[replace(plain, base=Base("c", name))] = Verdict.STALE_BASE
                    expected[replace(plain, base=Base(name, entry.rev))] = Verdict.STALE_BASE
                for commit, verdict in expected.items():
                    assert await _verdict(engine, commit) is verdict, commit
        assert await ids(checkpointer, "t") == ["c"]

    async def test_deleting_a_thread_touches_no_other_whatever_its_id(self, checkpointer: Checkpointer) -> None:
        left = list(self.other_ids)
        for name in left:
            await checkpointer.save(_state(name), name)
        for name in self.other_ids[::2]:
            assert await checkpointer.delete(name)
            assert not await checkpointer.delete(name)
            left.remove(name)
            assert await checkpointer.list_threads(None) == sorted(left)
        for name in left:
            assert present(await checkpointer.load(name)).agent_id == f"the state of {name}"

    async def test_checkpoint_ids_are_kept_apart_exactly(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        for name in self.other_ids:
            assert await checkpointer.save(_state(name), "t", name) == name
        for handle in (checkpointer, open_handle()):
            history = await handle.history("t", None)
            assert [entry.checkpoint_id for entry in history] == list(reversed(self.other_ids))
            for place, name in enumerate(reversed(self.other_ids), 1):
                assert present(await handle.load("t", name)).agent_id == f"the state of {name}"
                assert await handle.history("t", 1, before=name) == history[place : place + 1]
        for name in self.other_ids[::2]:
            assert await checkpointer.delete("t", name)
        assert await ids(checkpointer, "t") == list(reversed(self.other_ids[1::2]))

    async def test_namespaces_are_kept_apart_exactly(self, checkpointer: Checkpointer) -> None:
        for name in ("", *self.other_ids):
            await checkpointer.save(_state(name), "t", "same id", namespace=name)
        for name in ("", *self.other_ids):
            assert present(await checkpointer.load("t", namespace=name)).agent_id == f"the state of {name}"
            assert await checkpointer.list_checkpoints("t", namespace=name) == ["same id"]
        for name in self.other_ids[::2]:
            assert await checkpointer.delete("t", "same id", namespace=name)
        for index, name in enumerate(self.other_ids):
            assert await checkpointer.exists("t", namespace=name) == (index % 2 == 1)

    async def test_task_ids_paths_and_channels_are_kept_apart_exactly(self, checkpointer: Checkpointer) -> None:
        saved_as = await checkpointer.save(AgentState(), "t")
        for name in self.other_ids:
            await checkpointer.put_writes("t", saved_as, name, [(name, name)], task_path=name)
        for name in self.other_ids:
            (write,) = await checkpointer.get_writes("t", saved_as, name)
            assert (write.task_id, write.channel, write.task_path, write.value) == (name, name, name, name)
        found = [write.task_id for write in await checkpointer.get_writes("t", saved_as)]
        assert found == sorted(self.other_ids)

    async def test_plain_dicts_keep_the_same_ids_apart(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        for name in self.other_ids:
            await backend.save(name, {"name": name}, name)
        for name in self.other_ids:
            assert_same(await backend.load(name, name), {"name": name})
            assert await backend.list_checkpoints(name) == [name]

    async def test_forks_and_conflicts_work_under_any_id(self, checkpointer: Checkpointer) -> None:
        for name in self.other_ids:
            first = await checkpointer.save(_state(name), name, f"{name[:200]}-1")
            second = await checkpointer.save(_state("other"), name, f"{name[:200]}-2", parent=first)
            assert await ids(checkpointer, name) == [second, first]
            loaded = present(await checkpointer.load(name, first))
            await checkpointer.save(loaded, name, if_latest=second)
            (entry, *_) = await checkpointer.history(name)
            assert entry.parent_id == first

    async def test_a_bad_thread_id_is_refused_by_every_verb(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t", "c")
        before = await snapshot(checkpointer)
        for bad in (*BAD_IDS, None):
            await _all_refused(_with_thread_id(checkpointer, bad), bad)
        assert await snapshot(checkpointer) == before

    async def test_bad_checkpoint_ids_parents_and_task_ids_are_refused(self, checkpointer: Checkpointer) -> None:
        await checkpointer.save(AgentState(), "t", "c")
        before = await snapshot(checkpointer)
        for bad in BAD_IDS:
            await _all_refused(_with_checkpoint_id(checkpointer, bad), bad)
        assert await snapshot(checkpointer) == before
        assert await checkpointer.get_writes("t", "c") == []

    async def test_bad_namespaces_task_paths_and_channels_are_refused(self, checkpointer: Checkpointer) -> None:
        """Namespaces, task paths and channels may be empty, but have to be texts."""
        for bad in BAD_IDS:
            if bad != "":
                await _all_refused(_with_namespace(checkpointer, bad), bad)
        assert await checkpointer.list_threads() == []
        assert await checkpointer.get_writes("t", "c") == []

    async def test_none_is_no_namespace_and_pending_writes_belong_to_a_checkpoint(
        self, checkpointer: Checkpointer
    ) -> None:
        """Code without types may pass None on from a setting that is missing."""
        await checkpointer.save(AgentState(), "t", "c")
        before = await snapshot(checkpointer)
        in_namespace, of_checkpoint = _with_namespace(checkpointer, None), _with_checkpoint_id(checkpointer, None)
        # All namespaces of a thread, or a thread as a whole, may be looked for and deleted.
        verbs = {verb: in_namespace[verb] for verb in in_namespace if verb not in ("history", "exists", "delete")}
        await _all_refused(verbs, None)
        await _all_refused({verb: of_checkpoint[verb] for verb in ("put_writes", "get_writes")}, None)
        assert await snapshot(checkpointer) == before
        assert await checkpointer.get_writes("t", "c") == []

    async def test_an_empty_parent_or_expectation_is_not_taken_for_none(self, checkpointer: Checkpointer) -> None:
        for options in ({"parent": ""}, {"if_latest": ""}):
            with pytest.raises(InvalidIdError):
                await checkpointer.save(AgentState(), "t", **options)  # type: ignore[arg-type]
        assert await checkpointer.save(AgentState(), "t", parent=ANY, if_latest=ANY)


Verbs = dict[str, Callable[[], Awaitable[object]]]


async def _all_refused(verbs: Verbs, bad: object) -> None:
    for verb, call in verbs.items():
        await raised(InvalidIdError, call(), f"{verb} of {bad!r}")


def _with_thread_id(handle: Checkpointer, bad: Any) -> Verbs:
    return {
        "save": lambda: handle.save(AgentState(), bad),
        "dict save": lambda: dicts(handle).save(bad, {}),
        "load": lambda: handle.load(bad),
        "list_checkpoints": lambda: handle.list_checkpoints(bad),
        "history": lambda: handle.history(bad),
        "exists": lambda: handle.exists(bad),
        "delete": lambda: handle.delete(bad),
        "get_metadata": lambda: handle.get_metadata(bad),
        "put_writes": lambda: handle.put_writes(bad, "c", "task", [("x", 1)]),
        "get_writes": lambda: handle.get_writes(bad, "c"),
        "diff": lambda: handle.diff(bad, "c", "c"),
        "list_namespaces": lambda: handle.list_namespaces(bad),
    }


def _with_checkpoint_id(handle: Checkpointer, bad: Any) -> Verbs:
    return {
        "save": lambda: handle.save(AgentState(), "t", bad),
        "parent": lambda: handle.save(AgentState(), "t", parent=bad),
        "if_latest": lambda: handle.save(AgentState(), "t", if_latest=bad),
        "load": lambda: handle.load("t", bad),
        "exists": lambda: handle.exists("t", bad),
        "delete": lambda: handle.delete("t", bad),
        "before": lambda: handle.history("t", before=bad),
        "get_metadata": lambda: handle.get_metadata("t", bad),
        "put_writes": lambda: handle.put_writes("t", bad, "task", [("x", 1)]),
        "task": lambda: handle.put_writes("t", "c", bad, [("x", 1)]),
        "get_writes": lambda: handle.get_writes("t", bad),
        "get_writes of a task": lambda: handle.get_writes("t", "c", bad),
        "diff": lambda: handle.diff("t", "c", bad),
    }


def _with_namespace(handle: Checkpointer, bad: Any) -> Verbs:
    return {
        "save": lambda: handle.save(AgentState(), "t", namespace=bad),
        "dict save": lambda: dicts(handle).save("t", {}, namespace=bad),
        "load": lambda: handle.load("t", namespace=bad),
        "history": lambda: handle.history("t", namespace=bad),
        "exists": lambda: handle.exists("t", namespace=bad),
        "delete": lambda: handle.delete("t", namespace=bad),
        "put_writes": lambda: handle.put_writes("t", "c", "task", [("x", 1)], namespace=bad),
        "get_writes": lambda: handle.get_writes("t", "c", namespace=bad),
        "task_path": lambda: handle.put_writes("t", "c", "task", [("x", 1)], task_path=bad),
        "channel": lambda: handle.put_writes("t", "c", "task", [(bad, 1)]),
    }
