"""What a save is asked to do: append, and everything else that happens to a conversation.

A workload prepares a save (that is not timed) and says which content is new in it; the caller times the save.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from benchmarks.content import edited, turn_messages, without_lineage
from benchmarks.subjects.base import Subject
from benchmarks.tapping import Tap
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend


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

    def next_turn(self) -> tuple[Message, ...]:
        self.turns += 1
        return turn_messages(self.turns, self.number)


class Job(NamedTuple):
    """A save that is ready to be timed."""

    save: Callable[[], Awaitable[str]]
    tap: Tap
    state: AgentState
    """What the conversation is afterwards."""
    fresh: tuple[Message, ...]
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

    @abstractmethod
    async def prepare(self, talk: Conversation) -> Job:
        """Make the next save ready."""


def _warm(talk: Conversation, state: AgentState, fresh: tuple[Message, ...]) -> Job:
    tap = Tap(talk.handle)

    async def done() -> None:
        tap.remove()

    return Job(lambda: talk.handle.save(state, talk.thread_id), tap, state, fresh, done)


class Append(Workload):
    name = "append"
    title = "a warm handle appends a turn"
    grows = True

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        return _warm(talk, talk.state.with_messages(turn), turn)


class Resumed(Workload):
    name = "resumed"
    title = "the latest state is loaded, as a server does for every request, a turn appended, and saved"

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        latest = await talk.handle.load(talk.thread_id)
        if latest is None:
            raise RuntimeError("the thread is gone")
        return _warm(talk, latest.with_messages(turn), turn)


class Trimmed(Workload):
    name = "trimmed"
    title = "a turn is cut off at the front of the list, and one appended"

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        window = talk.state.messages[len(turn) :] + turn
        return _warm(talk, talk.state.with_messages_replaced(window), turn)


class Edited(Workload):
    name = "edited"
    title = "the last message is edited, and a turn appended"
    grows = True

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        older = talk.state.messages
        fresh = (*(edited(message, talk.turns) for message in older[-1:]), *turn)
        return _warm(talk, talk.state.with_messages_replaced(older[:-1] + fresh), fresh)


class Fork(Workload):
    name = "fork"
    title = "the checkpoint in the middle of the history is loaded, a turn appended, and saved"
    advances = False

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        old = await talk.handle.load(talk.thread_id, talk.ids[len(talk.ids) // 2])
        if old is None:
            raise RuntimeError("a checkpoint of the history is gone")
        return _warm(talk, old.with_messages(turn), turn)


class Cold(Workload):
    name = "cold"
    title = "a new handle for every save, and a state that does not know where it was kept"
    slow = True
    flat_time = False

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        state = without_lineage(talk.state).with_messages(turn)
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

    async def prepare(self, talk: Conversation) -> Job:
        turn = talk.next_turn()
        state = talk.state.with_messages(turn)
        # Fields at their defaults are left out, as in what the thread was grown with: so nothing but the turn is new.
        data = {**state.to_checkpoint(), "messages": [m.model_dump(exclude_defaults=True) for m in state.messages]}
        backend = StorageBackend(talk.handle.store)
        job = _warm(talk, state, turn)
        return job._replace(save=lambda: backend.save(talk.thread_id, data))


WORKLOADS: tuple[Workload, ...] = (Append(), Resumed(), Trimmed(), Edited(), Fork(), Cold(), PlainDict())
APPEND = WORKLOADS[0]
