"""What a save is asked to do: append, and everything else that happens to a conversation.

A workload prepares a save (that is not timed) and says which content is new in it; the caller times the save.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from benchmarks.content import Content, after, edited, encoded, turn_content, without_lineage
from benchmarks.subjects.base import Subject
from benchmarks.tapping import Tap
from locus.core.state import LISTS, AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend

MESSAGES = 4
"""In a turn."""


@dataclass
class Conversation:
    """A thread that is being measured, and the handle that saves it."""

    subject: Subject
    handle: Checkpointer
    thread_id: str
    number: int
    state: AgentState = field(default_factory=lambda: AgentState(agent_id="bench"))
    turns: int = 0
    ids: list[str] = field(default_factory=list)
    middle: AgentState | None = None
    """What forks go out from."""

    def next_turn(self) -> tuple[Content, ...]:
        self.turns += 1
        return turn_content(self.turns, self.number)

    async def line(self, *, latest: bool) -> Conversation:
        """Another one that goes on from here in the same thread, or from its latest checkpoint.

        Its saves leave this one as it is.
        """
        state = await self.handle.load(self.thread_id) if latest else self.state
        assert state is not None
        return replace(self, state=state, ids=[*self.ids])


class Job(NamedTuple):
    """A save that is ready to be timed."""

    save: Callable[[], Awaitable[str]]
    tap: Tap
    state: AgentState
    """What the conversation is afterwards."""
    fresh: tuple[Content, ...]
    """The content that is new in this save."""
    done: Callable[[], Awaitable[None]]


class Workload(ABC):
    """One way in which a state changes between two saves."""

    name: ClassVar[str]
    title: ClassVar[str]
    slow: ClassVar[bool] = False
    """A save goes over the whole state, so fewer are timed."""
    grows: ClassVar[bool] = False
    """The thread is brought to its length by this workload itself, and not by plain appending."""
    advances: ClassVar[bool] = True
    """Each save makes the conversation one turn longer."""
    flat_time: ClassVar[bool] = True
    """Whether the time of a save is promised not to grow, and not only its bytes."""
    follows: ClassVar[bool] = False
    """A save is recognised only if it goes on from the latest checkpoint of the thread."""
    longest: ClassVar[int] = 10_000
    """In turns: the longest thread that this is measured in."""

    @abstractmethod
    async def prepare(self, talk: Conversation) -> Job:
        """Make the next save ready."""


def _warm(talk: Conversation, state: AgentState, fresh: tuple[Content, ...]) -> Job:
    tap = Tap(talk.handle)

    async def done() -> None:
        tap.remove()

    return Job(lambda: talk.handle.save(state, talk.thread_id), tap, state, fresh, done)


class Append(Workload):
    name = "append"
    title = "a warm handle appends a turn"

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        return _warm(talk, after(talk.state, turn), turn)


class Resumed(Workload):
    name = "resumed"
    title = "the latest state is loaded, as a server does for every request, a turn appended, and saved"

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        latest = await talk.handle.load(talk.thread_id)
        if latest is None:
            raise RuntimeError("the thread is gone")
        return _warm(talk, after(latest, turn), turn)


class Trimmed(Workload):
    name = "trimmed"
    title = "a turn is cut off at the front of the messages, and one appended"

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        window = talk.state.with_messages_replaced(talk.state.messages[MESSAGES:])
        return _warm(talk, after(window, turn), turn)


class Edited(Workload):
    name = "edited"
    title = "the last message is edited, and a turn appended; all turns of the thread were made like that"
    grows = True
    longest = 1_000

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        older = talk.state.messages
        changed = tuple(edited(message, talk.turns) for message in older[-1:])
        state = talk.state.with_messages_replaced(older[:-1] + changed)
        return _warm(talk, after(state, turn), (*changed, *turn))


class Fork(Workload):
    name = "fork"
    title = "the checkpoint in the middle of the history is loaded, a turn appended, and saved"
    advances = False

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        if talk.middle is None:  # loaded once: to load it again would take long, and is not what is measured
            talk.middle = await talk.handle.load(talk.thread_id, talk.ids[len(talk.ids) // 2])
        if talk.middle is None:
            raise RuntimeError("a checkpoint of the history is gone")
        return _warm(talk, after(talk.middle, turn), turn)


class Cold(Workload):
    name = "cold"
    title = "a new handle for every save, and a state that does not know where it was kept"
    slow = True
    flat_time = False
    follows = True
    longest = 1_000

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        state = after(without_lineage(talk.state), turn)
        handle = talk.subject.open()
        tap = Tap(handle)

        async def done() -> None:
            tap.remove()
            await handle.close()

        return Job(lambda: handle.save(state, talk.thread_id), tap, state, turn, done)


class PlainDict(Workload):
    name = "dict"
    title = "plain dicts, through the storage-backend face"
    slow = True
    flat_time = False
    follows = True
    longest = 1_000

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        state = after(talk.state, turn)
        # Fields at their defaults are left out, as in what the thread was grown with: so nothing but the turn is new.
        lists = {name: json.loads(encoded(getattr(state, name))) for name in LISTS}
        data = {**state.to_checkpoint(), **lists}
        backend = StorageBackend(talk.handle.store)
        job = _warm(talk, state, turn)
        return job._replace(save=lambda: backend.save(talk.thread_id, data))


WORKLOADS: tuple[Workload, ...] = (Append(), Resumed(), Trimmed(), Edited(), Fork(), Cold(), PlainDict())
APPEND = WORKLOADS[0]
