"""Stores that have everything in them, and how two of them are compared."""

from __future__ import annotations

from typing import Any

from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.payloads import dict_from
from locus.memory.storage import StorageBackend
from locus.testing.data import EXACT_VALUES, HOSTILE_IDS, HOSTILE_KEYS, conversation, message, rich_state
from locus.testing.laws.base import dicts, exact


async def fill(handle: Checkpointer, *, small: bool = False) -> int:
    """Threads of every kind; return how many there are."""
    await _forks(handle)
    await _namespaces(dicts(handle))
    await _values(dicts(handle), EXACT_VALUES[::6] if small else EXACT_VALUES)
    await _long(handle, 6 if small else 40)
    ids = HOSTILE_IDS[::12] if small else HOSTILE_IDS
    for number, name in enumerate(ids):
        await dicts(handle).save(f"{name[:250]}~", {"id": name}, ids[-1 - number], {"id": name})
    return 4 + len(ids)


async def _forks(handle: Checkpointer) -> None:
    """Appended to, forked, edited, trimmed; some deleted, one replaced, whose child stays."""
    state = rich_state()
    for number in range(6):
        state = state.with_messages(conversation(3, number * 3)).with_iteration(number)
        await handle.save(state, "forks", f"c{number}", {"n": number})
    for number in (1, 3):
        old = await handle.load("forks", f"c{number}")
        assert old is not None
        await handle.save(old.with_message(message(100 + number)), "forks", f"fork{number}")
    await handle.save(state.with_messages_replaced(state.messages[5:]), "forks", "trimmed")
    edited = (*state.messages[:4], message(77), *state.messages[5:])
    await handle.save(state.with_messages_replaced(edited), "forks", "edited", parent="c2")
    for name in ("c0", "c3"):
        assert await handle.delete("forks", name)
    await handle.save(state.with_error("again"), "forks", "c4")


async def _namespaces(backend: StorageBackend) -> None:
    for number, namespace in enumerate(["", "default", "a|b:c", "", "default"]):
        data = {"items": [{"n": one} for one in range(number + 2)], "text": "t" * 2_000}
        await backend.save("spaces", data, f"c{number}", {"in": namespace}, namespace=namespace)
        writes = [("x", number), ("__interrupt__", ["?"]), ("y", {"deep": [None, 1.0]})]
        await backend.put_writes("spaces", f"c{number}", f"task{number}", writes, task_path="p", namespace=namespace)
        await backend.put_writes("spaces", f"c{number}", "a", [("z", "")], namespace=namespace)


async def _values(backend: StorageBackend, values: tuple[Any, ...]) -> None:
    for number, value in enumerate(values):
        key = HOSTILE_KEYS[number % len(HOSTILE_KEYS)]
        data = {"v": value, "all": list(values[:number]), "in": {"deep": {"v": value, "all": list(values[:number])}}}
        await backend.save("values", data, f"c{number}", {key: value})


async def _long(handle: Checkpointer, turns: int) -> None:
    state = AgentState(agent_id="long")
    for turn in range(turns):
        state = state.with_messages(conversation(4, turn * 4)).with_metadata("note", f"{turn % 3}" * 1_500)
        await handle.save(state, "long")


async def contents(handle: Checkpointer) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a store holds, in order, and so that equal things are equal."""
    store = handle.store
    found: dict[str, list[tuple[Any, ...]]] = {}
    for thread_id in await store.list_threads(None, "*"):
        rows = found[thread_id] = []
        for entry in reversed(await store.history(thread_id, None, None, None)):
            place = {"namespace": entry.namespace}
            stored = await store.read(thread_id, entry.checkpoint_id, entry.namespace)
            assert stored is not None
            writes = await dicts(handle).get_writes(thread_id, entry.checkpoint_id, **place)
            metadata = await handle.get_metadata(thread_id, entry.checkpoint_id, **place)
            names = (entry.namespace, entry.checkpoint_id, entry.parent_id, entry.created_at)
            rows.append((*names, exact(metadata), exact(dict_from(stored)), exact([vars(one) for one in writes])))
    return found
