"""The steps of a client on its threads, chosen by a seed.

Threads are named by what happens in them, so that the checks can be as strict as possible for each:

    own-…       one client at a time: appends, edits, trims, forks, windows, ids of its own, replacements, deletions
    shared-…    all clients: plain saves, conditional ones, forks, pending writes
    next-…      all clients, conditional saves only: of several with one condition, only one may be acknowledged
    group-…     many saves at the same time
    copy-…      copies of other threads, which then continue on their own
    agent-…     agents (see `agents`)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, LocusError
from locus.testing.campaign.recorded import TAIL, RecordedCheckpointer, digest_with_omitted, whole_digest
from locus.testing.processes.jobs import digest

LONGEST: Final = 40
"""The most messages in a state. Beyond that the oldest are dropped, so that each step stays short."""
OWN, SHARED, NEXT, GROUP = 3, 3, 2, 12
"""How many threads of each kind there are; of own and grouped ones, for each place of a client."""
LARGE: Final = 150_000
"""The characters of a large message. One in a hundred of these is seven times as long, too large for a shared
commit."""
KEPT: Final = 8
"""How many checkpoints of each line a vacuum by number keeps."""
PAUSE: Final = 0.05
"""The most seconds until a client tries again after an outage."""

Step = Callable[[], Awaitable[object]]


class Worker:
    """One of several activities of a client at the same time. All share one handle."""

    def __init__(
        self, checkpointer: RecordedCheckpointer, rng: random.Random, prefix: str, place: str, *, vacuums: bool
    ) -> None:
        self.checkpointer = checkpointer
        self.rng = rng
        self._prefix = prefix
        self._place = place
        self._vacuums = vacuums
        self._copies: list[str] = []
        self._words = 0

    def thread(self, kind: str, number: int | str) -> str:
        return f"{self._prefix}{kind}-{number}"

    def _own(self) -> str:
        return self.thread("own", f"{self._place}-{self.rng.randrange(OWN)}")

    def _shared(self) -> str:
        return self.thread("shared", self.rng.randrange(SHARED))

    def _any_thread(self) -> str:
        kinds = [self._own(), self._shared(), self.thread("next", self.rng.randrange(NEXT)), *self._copies[-3:]]
        return self.rng.choice(kinds)

    def _message(self) -> Message:
        self._words += 1
        word = f"w{self._place}x{self._words}x{self.rng.randrange(10**9)}"
        size = self.rng.choice([0, 0, 10, 10, 100, 2_000])
        if self.rng.random() < 0.02:
            size = LARGE // 10 * (7 if self.rng.random() < 0.01 else 1)
        make = self.rng.choice([Message.user, Message.assistant])
        return make(f"{word} ü {'and so on ' * size}")

    def _grown(self, state: AgentState) -> AgentState:
        """The state with new content, and cut to a limited length."""
        state = state.with_messages([self._message() for _ in range(self.rng.choice([1, 1, 1, 2, 5]))])
        if self.rng.random() < 0.2:
            state = state.with_metadata("plan", f"plan {self._words} " * self.rng.choice([1, 300]))
        if self.rng.random() < 0.1:
            state = state.with_error(f"error {self._words}").with_confidence(self.rng.random())
        return self._cut(state)

    @staticmethod
    def _cut(state: AgentState) -> AgentState:
        if len(state.messages) <= LONGEST:
            return state
        return state.with_messages_replaced(state.messages[-LONGEST // 2 :])

    async def _latest(self, thread_id: str) -> AgentState:
        return await self.checkpointer.load(thread_id) or AgentState()

    async def _newest(self, thread_id: str) -> str | None:
        return next(iter(await self.checkpointer.list_checkpoints(thread_id, limit=1)), None)

    async def _some_id(self, thread_id: str) -> str | None:
        ids = await self.checkpointer.list_checkpoints(thread_id, limit=12)
        return self.rng.choice(ids) if ids else None

    async def append(self) -> None:
        thread_id = self.rng.choice([self._own(), self._shared()])
        await self.checkpointer.save(self._grown(await self._latest(thread_id)), thread_id)

    async def append_some(self) -> None:
        """Save several times, each from the state saved before, as most users of a store do."""
        thread_id = self._own()
        state = await self._latest(thread_id)
        for _ in range(self.rng.randrange(2, 6)):
            state = self._grown(state)
            await self.checkpointer.save(state, thread_id)

    async def edit(self) -> None:
        thread_id = self._own()
        state = await self._latest(thread_id)
        messages = state.messages
        at = self.rng.choice([len(messages) - 1, self.rng.randrange(len(messages))]) if messages else 0
        changed = (*messages[:at], self._message(), *messages[at + 1 :])
        await self.checkpointer.save(state.with_messages_replaced(changed), thread_id)

    async def trim(self) -> None:
        thread_id = self._own()
        state = await self._latest(thread_id)
        remaining = (*state.messages[len(state.messages) // 2 :], self._message())
        await self.checkpointer.save(state.with_messages_replaced(remaining), thread_id)

    async def from_a_stranger(self) -> None:
        """Save a state that does not know where it was loaded from, so that the store has to compare it."""
        thread_id = self._own()
        state = AgentState.from_checkpoint((await self._latest(thread_id)).to_checkpoint())
        await self.checkpointer.save(self._grown(state), thread_id)

    async def through_a_window(self) -> None:
        thread_id = self._own()
        newest = await self._newest(thread_id)
        if newest is None:
            await self.append()
            return
        whole = await self.checkpointer.load(thread_id, newest)
        window = await self.checkpointer.load(thread_id, newest, last=TAIL)
        if whole is None or window is None or whole.updated_at != window.updated_at:
            return  # the checkpoint was deleted or replaced between the two loads
        number = self.checkpointer.log.begin("window", thread_id, id=newest, digest=digest(whole))
        self.checkpointer.log.end(number, "acknowledged", digest_with_omitted(whole, window))
        window = window.with_message(self._message())
        token = whole_digest.set(digest_with_omitted(whole, window))
        try:
            await self.checkpointer.save(window, thread_id)
        finally:
            whole_digest.reset(token)

    async def fork(self) -> None:
        """Save from an older checkpoint: with a state loaded from it, or by naming it as the parent."""
        thread_id = self.rng.choice([self._own(), self._shared()])
        older = await self._some_id(thread_id)
        if older is None:
            await self.append()
            return
        if self.rng.random() < 0.5:
            state = await self.checkpointer.load(thread_id, older)
            await self.checkpointer.save(self._grown(state or AgentState()), thread_id)
        else:
            await self.checkpointer.save(self._grown(AgentState()), thread_id, parent=older)

    async def be_next(self) -> None:
        """Save on the condition that nobody else was faster, sometimes on one that cannot hold."""
        thread_id = self.thread("next", self.rng.randrange(NEXT))
        if self.rng.random() < 0.3:
            thread_id = self._shared()
        newest = await self._newest(thread_id)
        state = await self.checkpointer.load(thread_id, newest) if newest else AgentState()
        if self.rng.random() < 0.1:
            newest = await self._some_id(thread_id)
        await self.checkpointer.save(self._grown(state or AgentState()), thread_id, if_latest=newest)

    async def under_an_id(self) -> None:
        """Save under a new id of the client's choice, and repeat it until there is an answer."""
        thread_id = self._own()
        state = self._grown(await self._latest(thread_id))
        checkpoint_id = f"named {self.checkpointer.log.client} {self._words}"
        await self._until_answered(state, thread_id, checkpoint_id)

    async def replace(self) -> None:
        thread_id = self._own()
        checkpoint_id = await self._some_id(thread_id)
        state = self._grown(await self._latest(thread_id))
        await self._until_answered(state, thread_id, checkpoint_id or f"named {self._words}")

    async def _until_answered(self, state: AgentState, thread_id: str, checkpoint_id: str) -> None:
        name = {"op": self.checkpointer.new_name()}
        for _ in range(3):
            try:
                await self.checkpointer.save(state, thread_id, checkpoint_id, name)
            except BackendUnavailableError:
                await asyncio.sleep(self.rng.uniform(0, PAUSE))
            else:
                return

    async def delete(self) -> None:
        thread_id = self.rng.choice([self._own(), *self._copies[-3:]])
        if (checkpoint_id := await self._some_id(thread_id)) is not None:
            await self.checkpointer.delete(thread_id, checkpoint_id)

    async def delete_thread(self) -> None:
        await self.checkpointer.delete(self.rng.choice([self._own(), *self._copies[-3:]]))

    async def copy(self) -> None:
        if not self.checkpointer.capabilities.branching:
            await self.append()
            return
        source, copy = self._any_thread(), self.thread("copy", self.checkpointer.new_name())
        only = await self._some_id(source) if self.rng.random() < 0.3 else None
        self._copies.append(copy)
        if await self.checkpointer.copy_thread(source, copy, only):
            await self.checkpointer.save(self._grown(await self._latest(copy)), copy)

    async def write(self) -> None:
        thread_id = self.rng.choice([self._own(), self._shared()])
        checkpoint_id = await self._newest(thread_id)
        if checkpoint_id is None or not self.checkpointer.store.keeps_writes:
            await self.append()
            return
        writes = [(f"channel {number}", self._message().text) for number in range(self.rng.randrange(1, 4))]
        await self.checkpointer.put_writes(thread_id, checkpoint_id, f"task {self.rng.randrange(3)}", writes)

    async def look(self) -> None:
        """Read a thread in all ways."""
        thread_id = self._any_thread()
        entries = await self.checkpointer.history(thread_id, self.rng.choice([1, 5, None]))
        if not entries:
            await self.checkpointer.exists(thread_id)
            return
        chosen = self.rng.choice([entries[0], self.rng.choice(entries)]).checkpoint_id
        await self.checkpointer.load(thread_id, self.rng.choice([None, chosen]), last=TAIL)
        await self.checkpointer.exists(thread_id, self.rng.choice([None, chosen]))
        await self.checkpointer.load(thread_id, chosen)
        if self.checkpointer.store.keeps_writes:
            await self.checkpointer.get_writes(thread_id, chosen)

    async def save_together(self) -> None:
        """Save to many threads at the same time. Some stores commit such saves together."""
        threads = [self.thread("group", f"{self._place}-{number}") for number in range(GROUP)]
        chosen = self.rng.sample(threads, self.rng.randrange(2, GROUP))
        saves = [self.checkpointer.save(self._grown(AgentState()), thread_id) for thread_id in chosen]
        if self.rng.random() < 0.5:
            saves += [self.checkpointer.save(self._grown(AgentState()), chosen[0]) for _ in range(2)]
        for answer in await asyncio.gather(*saves, return_exceptions=True):
            if isinstance(answer, BaseException) and not isinstance(answer, LocusError):
                raise answer

    async def vacuum(self) -> None:
        if self.rng.random() < 0.5 and not self.checkpointer.clock_jumps:
            await self.checkpointer.vacuum(30)
        else:
            await self.checkpointer.vacuum(keep_last=KEPT)

    def _steps(self) -> list[tuple[Step, float]]:
        """The steps, each with its weight."""
        return [
            (self.append, 10),
            (self.append_some, 8),
            (self.be_next, 12),
            (self.save_together, 4),
            (self.fork, 5),
            (self.edit, 4),
            (self.trim, 3),
            (self.from_a_stranger, 3),
            (self.through_a_window, 3),
            (self.under_an_id, 5),
            (self.replace, 3),
            (self.write, 6),
            (self.look, 6),
            (self.delete, 2),
            (self.delete_thread, 0.3),
            (self.copy, 2),
        ]

    async def step(self, doing: Step | None = None) -> None:
        """Do one step, a random one by default. After an outage, pause a little."""
        try:
            await (doing or self._chosen())()
        except BackendUnavailableError:
            await asyncio.sleep(self.rng.uniform(0, PAUSE))
        except LocusError as error:
            self.checkpointer.note_failure(error)

    def _chosen(self) -> Step:
        if self._vacuums and self.rng.random() < 0.005:
            return self.vacuum
        steps = self._steps()
        (chosen,) = self.rng.choices([step for step, _ in steps], [weight for _, weight in steps])
        return chosen


class Crowd:
    """Many savers at once, five on each thread. Each step counts as one fault."""

    def __init__(
        self, checkpointer: RecordedCheckpointer, rng: random.Random, prefix: str, size: int, fault: str
    ) -> None:
        self.checkpointer = checkpointer
        self._rng = rng
        self._prefix = prefix
        self._size = size
        self._fault = fault
        self._rounds = 0

    async def step(self) -> None:
        self._rounds += 1
        self.checkpointer.log.note(fault=self._fault)

        async def save(number: int) -> str:
            text = f"{self._rounds} {number} {self._rng.randrange(10**9)}"
            state = AgentState().with_message(Message.user(text))
            return await self.checkpointer.save(state, f"{self._prefix}-{number % max(1, self._size // 5)}")

        for answer in await asyncio.gather(*map(save, range(self._size)), return_exceptions=True):
            if isinstance(answer, BaseException) and not isinstance(answer, LocusError):
                raise answer
