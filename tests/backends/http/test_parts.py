"""Parts of a checkpoint over the wire: only what is needed is sent, by servers that know how."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.memory.backends import HTTPCheckpointer, MemoryCheckpointer
from locus.memory.backends.http.engine import HTTPEngine
from locus.memory.backends.http.locus_server import LocusServer
from locus.memory.model.parts import Range, Window
from locus.memory.model.payloads import dict_from
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Stored
from locus.memory.store import CheckpointStore
from locus.server import create_app
from locus.testing.data import conversation
from tests.backends.http.foreign import foreign_server
from tests.backends.http.sparing import SparingEngine, sparing
from tests.server.running import threaded

MESSAGES = ("messages",)
WINDOW = Window(4, frozenset({MESSAGES, ("tool_executions",)}))
TURNS = 10


@asynccontextmanager
async def _served(behind: MemoryCheckpointer, hops: int = 1) -> AsyncIterator[HTTPCheckpointer]:
    """A handle on a server for this store, which may itself be one behind another server."""
    with threaded(create_app(behind)) as port:
        async with HTTPCheckpointer(f"http://127.0.0.1:{port}") as handle:
            if hops == 1:
                yield handle
                return
            with threaded(create_app(handle)) as outer:
                async with HTTPCheckpointer(f"http://127.0.0.1:{outer}") as far:
                    yield far


async def _talk(handle: HTTPCheckpointer) -> Base:
    """Two messages a save; the checkpoint before the last two."""
    state = AgentState()
    for turn in range(TURNS):
        state = state.with_messages(conversation(2, 2 * turn))
        await handle.save(state, "t", f"c{turn}")
    entry = await handle.store.entry("t", f"c{TURNS - 3}", DEFAULT_NAMESPACE)
    assert entry is not None
    return Base(entry.checkpoint_id, entry.rev)


async def _part(store: CheckpointStore, part: Range | Window = WINDOW) -> Stored:
    stored = await store.read_part("t", None, DEFAULT_NAMESPACE, part)
    assert stored is not None
    return stored


async def _since(store: CheckpointStore, held: Base) -> Stored:
    stored = await store.read_since("t", None, DEFAULT_NAMESPACE, held)
    assert stored is not None
    return stored


def _numbers(stored: Stored) -> list[int]:
    return [run.number for runs in stored.runs.values() for run in runs]


def _server(handle: HTTPCheckpointer) -> LocusServer:
    engine = handle.store.engine
    assert isinstance(engine, HTTPEngine)
    assert isinstance(engine.server, LocusServer)
    return engine.server


@pytest.mark.parametrize("hops", [1, 2])
async def test_only_what_is_needed_is_sent(hops: int) -> None:
    async with _served(sparing(), hops) as handle:
        held = await _talk(handle)
        assert _numbers(await _part(handle.store)) == [8, 9]
        assert _numbers(await _part(handle.store, Range(MESSAGES, -1, 1))) == [9]
        found = await _since(handle.store, held)
        assert (found.since, _numbers(found)) == (held, [8, 9])
        gone = await _since(handle.store, replace(held, rev="another"))
        assert (gone.since, len(_numbers(gone))) == (None, TURNS)
        for name in ("nobody", "t"):
            assert await handle.store.read_part(name, "none", DEFAULT_NAMESPACE, WINDOW) is None
            assert await handle.store.read_since(name, "none", DEFAULT_NAMESPACE, held) is None


@pytest.mark.parametrize("hops", [1, 2])
async def test_what_a_window_left_out_is_kept_without_being_sent(hops: int) -> None:
    """The server knows that the base has it; an edit, a fork and a window of a window are no different."""
    async with _served(sparing(), hops) as handle:
        await _talk(handle)
        whole = await handle.load("t")
        window = await handle.load("t", last=4)
        assert whole is not None
        assert window is not None
        assert (len(window.messages), window.omitted["messages"]) == (4, 16)
        fresh = tuple(conversation(2, 500))
        await handle.save(window.with_messages(fresh), "t", "appended")
        await handle.save(window.with_messages_replaced(window.messages[:-1] + fresh), "t", "edited")
        await handle.save(window.with_messages_replaced(window.messages[:2]), "t", "shortened")
        again = await handle.load("t", "appended", last=2)
        assert again is not None
        await handle.save(again.with_messages(fresh), "t", "further")
        expected = {
            "appended": whole.messages + fresh,
            "edited": whole.messages[:-1] + fresh,
            "shortened": whole.messages[:-2],
            "further": whole.messages + fresh + fresh,
        }
        for name, messages in expected.items():
            loaded = await handle.load("t", name)
            assert loaded is not None
            assert loaded.messages == messages, name


async def test_an_older_server_is_asked_for_all() -> None:
    async with _served(sparing()) as handle:
        held = await _talk(handle)
        server = _server(handle)
        server.features -= {"parts", "window", "held"}
        for found in (
            await _part(handle.store),
            await _part(handle.store, Range(MESSAGES, -1, 1)),
            await _since(handle.store, held),
        ):
            assert (found.since, len(_numbers(found))) == (None, TURNS)


@pytest.mark.parametrize(
    "others", [[(f"list {number}",) for number in range(64)], [("long" * 500,)]], ids=["many", "long"]
)
async def test_lists_that_no_request_can_name_are_read_whole(others: list[tuple[str]]) -> None:
    async with _served(sparing()) as handle:
        await _talk(handle)
        found = await _part(handle.store, Window(4, WINDOW.paths.union(others)))
        assert len(_numbers(found)) == TURNS


async def test_a_server_of_another_kind_has_no_parts() -> None:
    with foreign_server() as foreign:
        async with HTTPCheckpointer(foreign.url) as handle:
            state = AgentState().with_messages(conversation(6))
            await handle.save(state, "t", "c")
            for found in (await _part(handle.store), await _since(handle.store, Base("c", "c"))):
                assert found.since is None
                assert len(dict_from(found)["messages"]) == 6


class _Confused(SparingEngine):
    async def read_since(self, thread_id: str, namespace: str, checkpoint_id: str | None, held: Base) -> Stored | None:
        stored = await super().read_since(thread_id, namespace, checkpoint_id, held)
        return None if stored is None else replace(stored, since=Base("c0", "another"))


async def test_a_server_that_leaves_out_something_else_is_not_believed() -> None:
    behind = sparing()
    behind.store.engine = _Confused()
    async with _served(behind) as handle:
        held = await _talk(handle)
        with pytest.raises(BackendUnavailableError, match="another checkpoint"):
            await _since(handle.store, held)
