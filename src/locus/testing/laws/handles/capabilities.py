"""Capabilities: one that is declared works, and one that is not declared is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import ClassVar

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import CapabilityError
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import CheckpointerCapabilities
from locus.testing.laws.base import Laws, OpenHandle, present
from locus.testing.laws.durability.stalls import StallLaws
from locus.testing.stores import StallTestStore, TestStore


async def _searches(handle: Checkpointer, _store: TestStore) -> bool:
    return [hit["thread_id"] for hit in await handle.search("kangaroo")] == ["t"]


async def _finds(handle: Checkpointer, _store: TestStore) -> bool:
    return [hit["thread_id"] for hit in await handle.query_by_metadata("k", "v")] == ["t"]


async def _vacuums(handle: Checkpointer, _store: TestStore) -> bool:
    return await handle.vacuum(older_than_days=0) == 1 and not await handle.exists("t")


async def _branches(handle: Checkpointer, _store: TestStore) -> bool:
    return await handle.copy_thread("t", "copy") and await handle.exists("copy", "c")


async def _expires(_handle: Checkpointer, store: TestStore) -> bool:
    async with store.open(ttl_seconds=3_600) as handle:
        await handle.save(AgentState(), "short-lived")
        return await handle.exists("short-lived")


async def _lists_threads(handle: Checkpointer, _store: TestStore) -> bool:
    return await handle.list_threads() == ["t"]


async def _lists_with_metadata(handle: Checkpointer, _store: TestStore) -> bool:
    return [hit["metadata"] for hit in await handle.list_with_metadata()] == [{"k": "v"}]


async def _keeps_ids(_handle: Checkpointer, store: TestStore) -> bool:
    async with store.open() as another:
        return await another.exists("t", "c") and await another.list_checkpoints("t") == ["c"]


async def _windows(handle: Checkpointer, _store: TestStore) -> bool:
    state = AgentState().with_messages([Message.user("a"), Message.assistant("b")])
    await handle.save(state, "long")
    loaded = present(await handle.load("long", last=1))
    if loaded.omitted:
        return loaded.messages == state.messages[1:] and loaded.omitted == {"messages": 1}
    assert loaded == state
    return False


PROOFS: dict[str, Callable[[Checkpointer, TestStore], Awaitable[bool]]] = {
    "search": _searches,
    "metadata_query": _finds,
    "vacuum": _vacuums,
    "branching": _branches,
    "ttl": _expires,
    "list_threads": _lists_threads,
    "list_with_metadata": _lists_with_metadata,
    "persistent_checkpoint_ids": _keeps_ids,
    "windows": _windows,
}
"""For each capability, a function that uses it on a store that has the thread "t" with the checkpoint "c"."""


class CapabilityLaws(Laws):
    """The declared capabilities are those that the test class requires, have their laws, and work."""

    laws_of: ClassVar[dict[str, type[Laws]]] = {}
    """The laws of each capability. `contract` fills them in."""

    async def test_the_capabilities_are_those_required(
        self, checkpointer: Checkpointer, open_handle: OpenHandle
    ) -> None:
        assert checkpointer.capabilities == self.required
        assert open_handle().capabilities == self.required

    async def test_every_capability_brings_its_laws(self, checkpointer: Checkpointer) -> None:
        """A capability without its laws would pass untested, and laws without the capability would test nothing."""
        for name, laws in self.laws_of.items():
            assert isinstance(self, laws) == getattr(checkpointer.capabilities, name), name

    def test_a_store_that_can_stall_brings_its_laws(self, store: TestStore) -> None:
        """A backend that nothing can stall says so by the type of its test store, and not by leaving laws out."""
        assert isinstance(self, StallLaws) == isinstance(store, StallTestStore)

    def test_every_capability_has_a_proof(self) -> None:
        assert {field.name for field in fields(CheckpointerCapabilities)} == set(PROOFS)

    @pytest.mark.parametrize("name", PROOFS)
    async def test_a_capability_works_or_says_that_it_does_not(
        self, checkpointer: Checkpointer, store: TestStore, name: str
    ) -> None:
        state = AgentState().with_message(Message.user("a kangaroo"))
        await checkpointer.save(state, "t", "c", {"k": "v"})
        if getattr(self.required, name):
            assert await PROOFS[name](checkpointer, store)
        elif name == "windows":  # all is loaded, and nothing is lost
            assert not await PROOFS[name](checkpointer, store)
        else:
            with pytest.raises(CapabilityError) as caught:
                await PROOFS[name](checkpointer, store)
            assert isinstance(caught.value, NotImplementedError)
