"""Checks a store after a process that was saving to it was killed.

- Every acknowledged step is stored, and loads as it was acknowledged.
- A step that was begun and not acknowledged is stored completely or not at all.
- The latest checkpoint is the newest in the list, search finds it, and the thread can continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.testing.processes.jobs import digest, known_digest

Step = dict[str, Any]


@dataclass(frozen=True)
class ThreadContent:
    """The content of a thread: checkpoints as (id, digest), oldest first, and pending writes."""

    checkpoints: tuple[tuple[str, str], ...] = ()
    writes: frozenset[tuple[str, str, str, Any]] = frozenset()
    """Checkpoint id, task, channel and value of each pending write."""

    def after(self, step: Step, checkpoint_id: str) -> ThreadContent:
        others = tuple(known for known in self.checkpoints if known[0] != checkpoint_id)
        match step["op"]:
            case "save":
                return ThreadContent((*others, (checkpoint_id, step["digest"])), self.writes)
            case "delete":
                return ThreadContent(others, frozenset(write for write in self.writes if write[0] != checkpoint_id))
            case _:
                place = (checkpoint_id, step["task"])
                other_writes = frozenset(write for write in self.writes if write[:2] != place)
                return ThreadContent(self.checkpoints, other_writes | {(*place, *write) for write in step["writes"]})


async def content_of(checkpointer: Checkpointer, thread_id: str) -> ThreadContent:
    """Read the content of a thread in every way. All ways must agree."""
    history = await checkpointer.history(thread_id, limit=None)
    ids = [entry.checkpoint_id for entry in history]
    listed = await checkpointer.list_checkpoints(thread_id, limit=len(ids) + 1)
    assert listed == ids, f"{thread_id!r}: listed {listed}, but the history is {ids}"
    seqs = [entry.seq for entry in history]
    assert seqs == sorted(set(seqs), reverse=True), f"{thread_id!r}: sequence numbers {seqs}"
    strangers = {entry.parent_id for entry in history} - {None, *ids}
    assert not strangers, f"{thread_id!r}: {strangers} are parents, and not there"
    checkpoints, writes = [], set()
    for checkpoint_id in reversed(ids):
        state = await checkpointer.load(thread_id, checkpoint_id)
        assert state is not None, f"{thread_id!r}: {checkpoint_id!r} is listed, and cannot be loaded"
        checkpoints.append((checkpoint_id, known_digest(state)))
        for write in await checkpointer.get_writes(thread_id, checkpoint_id):
            writes.add((checkpoint_id, write.task_id, write.channel, write.value))
    latest = digest(await checkpointer.load(thread_id))
    newest = checkpoints[-1][1] if checkpoints else None
    assert latest == newest, f"{thread_id!r}: load() is not the newest that is listed, {ids[:1]}"
    return ThreadContent(tuple(checkpoints), frozenset(writes))


@dataclass
class Ledger:
    """The expected content of one thread, from the messages of a process that was killed."""

    thread_id: str
    content: ThreadContent = ThreadContent()
    begun: Step | None = None

    def note(self, message: dict[str, Any]) -> None:
        if "begin" in message:
            self.begun = message["begin"]
        else:
            assert self.begun is not None
            self.content = self.content.after(self.begun, message["done_with"])
            self.begun = None

    async def settle(self, checkpointer: Checkpointer) -> bool:
        """Compare the stored content with the expected. True if the unacknowledged step is stored."""
        stored = await content_of(checkpointer, self.thread_id)
        allowed = [self.content]
        if self.begun is not None:
            newest = stored.checkpoints[-1][0] if stored.checkpoints else "none"
            allowed.append(self.content.after(self.begun, self.begun["id"] or newest))
        assert stored in allowed, self._difference(stored, allowed)
        completed = stored != self.content
        self.content, self.begun = stored, None
        return completed

    def _difference(self, stored: ThreadContent, allowed: list[ThreadContent]) -> str:
        lines = [f"thread {self.thread_id!r} after a kill in {self.begun}"]
        for name, content in zip(("acknowledged", "or then"), allowed, strict=False):
            lines += [
                f"{name}: missing {sorted(set(content.checkpoints) - set(stored.checkpoints))}",
                f"    not expected {sorted(set(stored.checkpoints) - set(content.checkpoints))}",
                f"    order {[known for known, _ in content.checkpoints]}",
                f"    writes {sorted(map(str, content.writes ^ stored.writes))} differ",
            ]
        lines.append(f"found order {[known for known, _ in stored.checkpoints]}")
        return "\n".join(lines)

    async def go_on(self, checkpointer: Checkpointer, word: str, *, search: bool = False) -> None:
        """Save another checkpoint on top of the thread, and check its parent and that search finds it."""
        state = await checkpointer.load(self.thread_id) or AgentState()
        state = state.with_message(Message.user(f"{word} goes on"))
        saved = await checkpointer.save(state, self.thread_id)
        entry = (await checkpointer.history(self.thread_id, limit=1))[0]
        parent = self.content.checkpoints[-1][0] if self.content.checkpoints else None
        assert (entry.checkpoint_id, entry.parent_id) == (saved, parent), f"{entry} is not on top of {parent!r}"
        if search and checkpointer.capabilities.search:
            hits = {(hit["thread_id"], hit["checkpoint_id"]) for hit in await checkpointer.search(word)}
            assert (self.thread_id, saved) in hits, f"search for {word!r} found {hits}"
        step = {"op": "save", "digest": known_digest(state)}
        self.content = self.content.after(step, saved)
