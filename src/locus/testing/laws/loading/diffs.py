"""Differences between two checkpoints name exactly what changed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError, ConfigurationError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import Engine
from locus.memory.model.changes import ItemChange, PayloadDiff, ValueChange
from locus.memory.model.parts import Part
from locus.memory.model.records import ANY, Stored
from locus.memory.saver import CheckpointSaver
from locus.testing.data import HOSTILE_KEYS, conversation, message
from locus.testing.laws.base import Laws, OpenHandle, assert_same, dicts, exact

JSONPayload = dict[str, Any]


def _at(payload: Any, path: tuple[str, ...]) -> tuple[Any, bool]:
    """The value at a path of a payload, and whether there is one."""
    for step in path:
        if not isinstance(payload, dict) or step not in payload:
            return None, False
        payload = payload[step]
    return payload, True


def _put(payload: JSONPayload, path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        payload = payload[step]
    payload[path[-1]] = value


def _drop(payload: JSONPayload, path: tuple[str, ...]) -> None:
    for step in path[:-1]:
        payload = payload[step]
    del payload[path[-1]]


def check_diff(diff: PayloadDiff, old: JSONPayload, new: JSONPayload, *, compared: bool = True) -> None:
    """Assert that a whole diff names values of both payloads exactly, and leads from one to the other.

    If not `compared`, two lists were too large to compare each item, and the diff may name more than what differs.
    """
    made: JSONPayload = deepcopy(old)
    assert diff.next is None
    assert bool(diff) == (exact(old) != exact(new)) or not compared
    assert diff.total == len(diff.values) + sum(max(1, len(changed.changes)) for changed in diff.lists)
    for change in diff.values:
        _check_value(change, old, new)
        if change.kind == "removed":
            _drop(made, change.path)
        else:
            _put(made, change.path, change.after)
    for changed in diff.lists:
        (before, had), (after, has) = _at(old, changed.path), _at(new, changed.path)
        assert (changed.old_length, changed.new_length) == (len(before) if had else None, len(after) if has else None)
        counts = [sum(change.kind == kind for change in changed.changes) for kind in ("added", "removed", "changed")]
        assert [changed.added, changed.removed, changed.changed] == counts
        if has:
            _put(made, changed.path, list(_changed(before or [], after, changed.changes)))
        else:
            assert changed.removed == len(before)
            _drop(made, changed.path)
    assert_same(made, new)


def _check_value(change: ValueChange, old: JSONPayload, new: JSONPayload) -> None:
    (before, had), (after, has) = _at(old, change.path), _at(new, change.path)
    assert change.kind == {(False, True): "added", (True, False): "removed", (True, True): "changed"}[had, has]
    assert_same((change.before, change.after), (before, after))
    assert exact(before) != exact(after) or had != has
    both = isinstance(before, dict) and isinstance(after, dict)
    assert not both
    assert not (isinstance(before, list) and isinstance(after, list))


def _changed(before: list[Any], after: list[Any], changes: tuple[ItemChange, ...]) -> Iterator[Any]:
    """The new list, made of the old one and the changes. Asserts that each change is where it says."""
    at = position = 0
    for change in changes:
        while (change.old_index is not None and at < change.old_index) or (
            change.new_index is not None and position < change.new_index
        ):
            yield before[at]
            at, position = at + 1, position + 1
        if change.old_index is not None:
            assert at == change.old_index
            assert_same(change.before, before[at])
            at += 1
        if change.new_index is not None:
            assert position == change.new_index
            assert_same(change.after, after[position])
            yield change.after
            position += 1
    yield from before[at:]


async def check_pair(handle: Checkpointer, thread_id: str, a: str, b: str, **options: Any) -> PayloadDiff:
    """Assert that the diff of two checkpoints is the diff of what they load, in one page and in several."""
    backend = dicts(handle)
    diff = await backend.diff(thread_id, a, b, **options)
    namespace = options.get("namespace", "default")
    old = await backend.load(thread_id, a, namespace=namespace)
    new = await backend.load(
        options.get("other_thread", thread_id), b, namespace=options.get("other_namespace", namespace)
    )
    assert old is not None
    assert new is not None
    check_diff(diff, old, new)
    return diff


class Reads:
    """Counts the runs that an engine returns for parts of checkpoints."""

    def __init__(self, kind: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = self.characters = 0
        inner: Callable[..., Awaitable[Stored | None]] = kind.read_part

        async def counted(
            engine: Engine, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part
        ) -> Stored | None:
            stored = await inner(engine, thread_id, namespace, checkpoint_id, part)
            for run in (run for runs in ({} if stored is None else stored.runs).values() for run in runs):
                self.runs, self.characters = self.runs + 1, self.characters + len(run.items)
            return stored

        async def refused(*_: object) -> Stored | None:
            raise AssertionError("a whole checkpoint was read")

        monkeypatch.setattr(kind, "read_part", counted)
        monkeypatch.setattr(kind, "read", refused)

    def take(self) -> tuple[int, int]:
        """The number of runs since the last call, and their characters."""
        counted, self.runs, self.characters = (self.runs, self.characters), 0, 0
        return counted


def _item(rng: random.Random) -> Any:
    """A random item out of few, so that equal items stand at different places."""
    return rng.choice(
        [{"n": rng.randrange(40), "t": "x" * rng.randrange(30)}, rng.randrange(9), "same", [1, [2]], None]
    )


def _mutated(payload: JSONPayload, rng: random.Random) -> JSONPayload:
    """A random change of a payload, as a turn might make it."""
    payload = deepcopy(payload)
    for path in (("messages",), ("inner", "items")):
        items, _ = _at(payload, path)
        if not isinstance(items, list):
            continue
        match rng.randrange(7):
            case 0:
                items[-1:] = [_item(rng)]
            case 1 if items:
                items[rng.randrange(len(items))] = _item(rng)
            case 2:
                del items[: rng.randrange(4)]
            case 3:
                items.insert(rng.randrange(len(items) + 1), _item(rng))
            case 4:
                del items[-1:]
        items += [_item(rng) for _ in range(rng.randrange(4))]
    match rng.randrange(6):
        case 0:
            payload["inner"]["text"] = "y" * rng.choice([3, 2_000, 2_001])
        case 1:
            payload["n"] = rng.choice([1, 1.0, True, None, "1"])
        case 2:
            payload["odd"] = rng.choice([None, [], [{"a": 1}] * 9, {"a": [{"b": 1}] * 9}, {}, "z" * 3_000])
        case 3:
            payload.pop("odd", None)
        case 4:
            payload["inner"]["large"] = {"text": "w" * 3_000, "list": [_item(rng) for _ in range(rng.randrange(9))]}
    return payload


_STARTED: JSONPayload = {"messages": [], "inner": {"items": [{"n": 0}] * 5, "text": ""}, "n": 0}


class DiffLaws(Laws):
    """`diff` tells what was added, removed and changed, and reads only that."""

    async def test_what_was_added_removed_and_changed(self, checkpointer: Checkpointer) -> None:
        base = AgentState().with_messages(conversation(6))
        a = await checkpointer.save(base, "t")
        b = await checkpointer.save(base.with_messages(conversation(2, 10)), "t")
        c = await checkpointer.save(base.with_messages_replaced(base.messages[2:]), "t")
        edited = base.with_messages_replaced(base.messages[:-1] + (Message.assistant("edited"),))
        d = await checkpointer.save(edited, "t")
        added = await checkpointer.diff("t", a, b)
        assert (added.added, added.removed, added.changed) == (tuple(conversation(2, 10)), (), ())
        removed = await checkpointer.diff("t", a, c)
        assert (removed.added, removed.removed, removed.changed) == ((), tuple(conversation(2)), ())
        changed = await checkpointer.diff("t", a, d)
        assert changed.changed == ((message(5), Message.assistant("edited")),)
        assert (changed.added, changed.removed) == ((), ())
        back = await checkpointer.diff("t", b, a)
        assert (back.added, back.removed) == ((), tuple(conversation(2, 10)))

    async def test_fields_are_compared_by_what_is_stored(self, checkpointer: Checkpointer) -> None:
        base = AgentState().with_metadata({"n": 1, "same": [1]})
        a = await checkpointer.save(base, "t")
        b = await checkpointer.save(base.with_metadata("n", True).with_iteration(3), "t")
        found = (await checkpointer.diff("t", a, b)).fields
        assert set(found) == {"metadata", "iteration", "updated_at"}
        assert found["iteration"] == (0, 3)
        before, after = found["metadata"]
        assert (before["n"], after["n"] is True) == (1, True)

    async def test_a_checkpoint_does_not_differ_from_itself(self, checkpointer: Checkpointer) -> None:
        state = AgentState().with_messages(conversation(3))
        a = await checkpointer.save(state, "t")
        b = await checkpointer.save(state, "t")
        for pair in ((a, a), (a, b), (b, a)):
            found = await checkpointer.diff("t", *pair)
            assert not found
            assert (found.added, found.removed, found.changed, found.fields) == ((), (), (), {})

    async def test_a_side_that_is_not_there_is_an_error(self, checkpointer: Checkpointer) -> None:
        a = await checkpointer.save(AgentState(), "t")
        elsewhere = await checkpointer.save(AgentState(), "u")
        for pair in ((a, "nothing"), ("nothing", a), (a, elsewhere)):
            with pytest.raises(CheckpointNotFoundError):
                await checkpointer.diff("t", *pair)
        with pytest.raises(CheckpointNotFoundError):
            await checkpointer.diff("no thread", a, a)

    async def test_a_diff_of_payloads_is_what_comparing_them_whole_gives(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        """The checkpoints come from appends, edits, trims, forks, replacements, deletions and a vacuum."""
        rng = random.Random(20)
        backend, other = dicts(checkpointer), dicts(open_handle())
        payloads: dict[str, JSONPayload] = {}
        for number in range(20):
            base = rng.choice([*payloads][-3:]) if payloads else None
            payload = _mutated(_STARTED if base is None else payloads[base], rng)
            name = rng.choice([*payloads]) if number % 9 == 8 else f"c{number}"
            handle = backend if number % 5 else other
            await handle.save("t", payload, name, parent=ANY if name in payloads or base is None else base)
            payloads.pop(name, None)
            payloads[name] = payload
            if number % 7 == 6:
                gone = rng.choice([*payloads])
                assert await backend.delete("t", gone)
                del payloads[gone]
            if number == 14:
                await checkpointer.vacuum(keep_last=4)
                left = {entry.checkpoint_id for entry in await checkpointer.history("t", None)}
                payloads = {name: payload for name, payload in payloads.items() if name in left}
            if len(payloads) > 1:
                a, b = rng.sample([*payloads], 2)
                check_diff(await backend.diff("t", a, b), payloads[a], payloads[b])

    async def test_a_diff_reads_what_differs(self, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = type(checkpointer.store.engine)
        if not checkpointer.capabilities.windows or kind.read_part is Engine.read_part:
            return  # a store that keeps or reads every checkpoint whole has to read it
        pairs: dict[int, tuple[str, str]] = {}
        for count in (40, 800):
            state = AgentState()
            for start in range(0, count, count // 8):
                state = state.with_messages(conversation(count // 8, start))
                await checkpointer.save(state, f"t{count}")
            # The last run of either thread is as long as that of the other.
            state = state.with_messages(conversation(4, count))
            first = await checkpointer.save(state, f"t{count}")
            state = state.with_messages(conversation(4, count + 4))
            pairs[count] = first, await checkpointer.save(state, f"t{count}")
        reads = Reads(kind, monkeypatch)
        for verb in (checkpointer.diff, dicts(checkpointer).diff):
            runs_read: dict[int, tuple[int, int]] = {}
            for count, pair in pairs.items():
                change = await verb(f"t{count}", *pair)
                assert change
                runs_read[count] = reads.take()
            assert runs_read[800][0] == runs_read[40][0] <= 3
            assert runs_read[800][1] <= 1.2 * runs_read[40][1] + 100

    async def test_a_payload_of_another_framework_shows_nothing_that_is_not_stored(
        self, checkpointer: Checkpointer
    ) -> None:
        """LangGraph's payloads have channels and versions, and no field of a state."""
        backend = dicts(checkpointer)
        first: JSONPayload = {
            "v": 4,
            "id": "1f",
            "channel_values": {"messages": [{"type": "human", "id": "m1", "content": "hi"}]},
            "channel_versions": {"messages": "0001"},
        }
        second = deepcopy(first) | {"id": "20", "channel_versions": {"messages": "0002", "branch:to:model": "0002"}}
        second["channel_values"]["messages"].append({"type": "ai", "id": "m2", "content": "hello"})
        a, b = await backend.save("t", first), await backend.save("t", second)
        diff = await check_pair(checkpointer, "t", a, b)
        assert {(change.path, change.kind) for change in diff.values} == {
            (("id",), "changed"),
            (("channel_versions", "messages"), "changed"),
            (("channel_versions", "branch:to:model"), "added"),
        }
        (messages,) = diff.lists
        assert (messages.path, messages.old_length, messages.new_length) == (("channel_values", "messages"), 1, 2)
        added = ItemChange("added", None, 1, None, {"type": "ai", "id": "m2", "content": "hello"})
        assert messages.changes == (added,)
        assert set((await checkpointer.diff("t", a, b)).fields) == {"id", "channel_values", "channel_versions"}

    async def test_a_diff_of_every_shape(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        large = {"text": "x" * 3_000, "of": {"lists": [{"n": n} for n in range(4)]}, "deep": {"text": "y" * 3_000}}
        payloads: list[JSONPayload] = [
            {},
            {"l": [], "d": {}, "n": None},
            {"l": [1, 2, 3], "d": {"e": [{"f": 1}] * 8}, "n": []},
            {"l": {"a": 1}, "d": 1, "n": [{"a": 1}] * 8},
            {"large": large},
            {"large": large | {"of": {"lists": [{"n": n} for n in range(6)]}}},
            {"large": large | {"deep": {"text": "z" * 3_000}}},
            {"large": "x" * 3_000, "of": [{"n": 1}] * 9},
            {"l": [{"a": 1, "b": 2}] * 3, "n": 1},
            {"l": [{"b": 2, "a": 1}] * 3, "n": 1.0},
            {key: {"inner": [{key: number} for number in range(3)]} for key in HOSTILE_KEYS},
            {key: {"inner": [{key: number} for number in range(1, 4)]} for key in HOSTILE_KEYS},
        ]
        for number, payload in enumerate(payloads):
            await backend.save("t", payload, str(number))
        last = len(payloads) - 1
        for a, b in [*pairwise(range(last + 1)), (last, 0), (3, 2), (8, 5), (2, 1)]:
            check_diff(await backend.diff("t", str(a), str(b)), payloads[a], payloads[b])

    async def test_a_diff_comes_in_pages(self, checkpointer: Checkpointer) -> None:
        backend = dicts(checkpointer)
        a = await backend.save("t", {"messages": [{"n": n} for n in range(5)], "kept": [1], "gone": 1, "none": []})
        items = [{"n": n} for n in range(1, 5)] + [{"n": n} for n in range(20, 36)]
        b = await backend.save("t", {"messages": items, "kept": [1], "come": {"x": 1}, "empty": []})
        whole = await check_pair(checkpointer, "t", a, b)
        assert whole.total == 1 + 16 + 4
        for limit in (3, 17):
            start: int | None = 0
            values: list[ValueChange] = []
            changes: list[ItemChange] = []
            while start is not None:
                page = await backend.diff("t", a, b, start=start, limit=limit)
                assert (page.total, page.start, bool(page)) == (whole.total, start, True)
                assert [each.path for each in page.lists] == [each.path for each in whole.lists]
                shown = len(page.values) + sum(len(each.changes) for each in page.lists)
                assert shown <= limit
                values += page.values
                changes += [change for each in page.lists for change in each.changes]
                start = page.next
            assert tuple(values) == whole.values
            assert changes == [change for each in whole.lists for change in each.changes]
        counted = await backend.diff("t", a, b, limit=0)
        assert (counted.total, counted.values, counted.next) == (whole.total, (), 0)
        assert [(each.added, each.removed) for each in counted.lists] == [(e.added, e.removed) for e in whole.lists]
        beyond = await backend.diff("t", a, b, start=1_000)
        assert (beyond.values, beyond.next, beyond.total) == ((), None, whole.total)
        bad: Any
        for bad in ({"start": -1}, {"limit": None}, {"limit": "5"}, {"start": True}):
            with pytest.raises(ConfigurationError):
                await backend.diff("t", a, b, **bad)

    async def test_checkpoints_of_different_threads_and_namespaces_can_be_compared(
        self, checkpointer: Checkpointer
    ) -> None:
        backend, saver = dicts(checkpointer), CheckpointSaver(checkpointer)
        items = [{"n": n} for n in range(9)]
        await backend.save("t", {"messages": items}, "c")
        await backend.save("u", {"messages": items[:-1] + [{"n": 90}]}, "c")
        await backend.save("t", {"messages": items[2:]}, "d", namespace="other")
        await check_pair(checkpointer, "t", "c", "c", other_thread="u")
        await check_pair(checkpointer, "t", "c", "d", other_namespace="other")
        await check_pair(checkpointer, "t", "d", "c", namespace="other", other_thread="u", other_namespace="default")
        diff = await saver.diff(thread_id="t", checkpoint_id="c", other_checkpoint_id="c", other_thread_id="u")
        assert diff == await checkpointer.payload_diff("t", "c", "c", other_thread="u")
        elsewhere: list[dict[str, Any]] = [{"other_thread": "v"}, {"other_namespace": "other"}]
        for options in elsewhere:
            with pytest.raises(CheckpointNotFoundError):
                await checkpointer.payload_diff("t", "c", "c", **options)
