"""The checkpointer face: `AgentState` by thread, over any engine."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from locus.core.lineage import Place
from locus.core.state import AgentState
from locus.errors import CheckpointNotFoundError
from locus.memory.checkpointer import ANY, DEFAULT_NAMESPACE, BaseCheckpointer, Unset
from locus.memory.diffs import StateDiff, diff
from locus.memory.faces import ThreadsFace
from locus.memory.model.arguments import check_ids
from locus.memory.model.payloads import anchor, state_from, state_payload, state_trace
from locus.memory.model.traces import Trace
from locus.memory.store import Threads
from locus.memory.sync import SyncCheckpointer


class ThreadCheckpointer(ThreadsFace, BaseCheckpointer):
    """A checkpointer over a store of threads. All checkpointers of ours are one."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads

    async def save(  # the contract's call, with what only our stores can do added by keyword
        self,
        state: AgentState,
        thread_id: str,
        checkpoint_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        parent: str | None | Unset = ANY,
        if_latest: str | None | Unset = ANY,
    ) -> str:
        """Keep a state as the newest checkpoint of a thread, and return its id.

        `if_latest` names the checkpoint that must still be the latest (`None`: the thread must be new), else
        `ConflictError` is raised and nothing is written. The parent is the checkpoint that this state was
        loaded from or saved as, else the latest; `parent` says otherwise.
        """
        payload = state_payload(state)
        place = self._place(thread_id, namespace)
        saved = await self.threads.save(
            thread_id,
            payload,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            metadata=metadata,
            parent=parent,
            if_latest=if_latest,
            known=state._kept_at(place),
        )
        state._keep_at(place, saved.trace)
        for value in payload.fields.values():
            anchor(value)
        return saved.checkpoint_id

    async def load(
        self, thread_id: str, checkpoint_id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> AgentState | None:
        stored = await self.threads.read(thread_id, checkpoint_id, namespace)
        if stored is None:
            return None
        state = state_from(stored)
        place = self._place(thread_id, namespace)
        state._keep_at(place, state_trace(stored, state))
        return state

    def origin(self, state: AgentState, thread_id: str, *, namespace: str = DEFAULT_NAMESPACE) -> str | None:
        """The id of the checkpoint of this thread that a state was last loaded from or saved as.

        It is what `if_latest` wants to know: `save(changed, thread_id, if_latest=cp.origin(state, thread_id))`.
        """
        trace: Trace | None = state._kept_at(self._place(thread_id, namespace))
        return None if trace is None else trace.base.checkpoint_id

    def _place(self, thread_id: str, namespace: str) -> Place:
        check_ids(thread_id, None, namespace)
        return self.threads.engine.identity, thread_id, namespace

    async def diff(self, thread_id: str, a: str, b: str, *, namespace: str = DEFAULT_NAMESPACE) -> StateDiff:
        """What changed from checkpoint `a` to checkpoint `b`."""
        states = [await self.load(thread_id, checkpoint_id, namespace=namespace) for checkpoint_id in (a, b)]
        for checkpoint_id, state in zip((a, b), states, strict=True):
            if state is None:
                raise CheckpointNotFoundError(f"thread {thread_id!r} has no checkpoint {checkpoint_id!r}")
        before, after = states
        assert before is not None
        assert after is not None
        return diff(before, after)

    @cached_property
    def sync(self) -> SyncCheckpointer:
        """The same checkpointer for code that is not async, from any thread."""
        return SyncCheckpointer(self)
