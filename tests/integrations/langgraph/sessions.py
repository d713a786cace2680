"""Threads of LangGraph as sessions, for the suite: each checkpoint is handed over with the whole state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint

from locus.integrations.langgraph import LocusSaver
from locus.memory.checkpointer import Checkpointer
from locus.testing.framework_sessions import Appends, FrameworkSessions, Said
from tests.integrations.langgraph.graphs import thread


class Latest(NamedTuple):
    """The config of a thread's newest checkpoint, and the messages of its state."""

    config: RunnableConfig
    messages: list[HumanMessage]


class LangGraphSessions(FrameworkSessions):
    """LangGraph's savers have no verb for a part of a state."""

    appends = Appends.SNAPSHOTS
    reads_to_append = True
    reads_newest = False

    def __init__(self, store: Checkpointer) -> None:
        super().__init__(store)
        self._saver = LocusSaver(store)
        self._saved: dict[str, Latest] = {}

    async def create(self, session_id: str) -> None:
        """A thread begins with its first checkpoint."""

    async def revision(self, session_id: str) -> Latest:
        """A running graph has its state; it is loaded only if somebody else has saved since."""
        newest = await self._saver.store.history(session_id, 1, None, None)
        saved = self._saved.get(session_id)
        if saved is not None and newest and newest[0].checkpoint_id == _checkpoint_id(saved.config):
            return saved
        loaded = await self._saver.aget_tuple(_thread(session_id))
        return Latest(_thread(session_id), []) if loaded is None else Latest(loaded.config, _messages(loaded))

    async def append(self, session_id: str, batch: Sequence[Said], revision: Latest) -> None:
        messages = [*revision.messages, *(HumanMessage(said.text, id=said.id) for said in batch)]
        versions: dict[str, str | int | float] = {"messages": len(messages)}
        checkpoint = empty_checkpoint()
        checkpoint["id"] = batch[-1].id
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = versions
        saved = await self._saver.aput(revision.config, checkpoint, {"step": len(messages)}, versions)
        self._saved[session_id] = Latest(saved, messages)

    async def read(self, session_id: str, newest: int | None = None) -> list[str]:
        loaded = await self._saver.aget_tuple(_thread(session_id))
        texts = [] if loaded is None else [str(message.content) for message in _messages(loaded)]
        return texts if newest is None else texts[-newest:]

    async def reachable(self, session_id: str) -> list[str]:
        found = [each async for each in self._saver.alist(_thread(session_id))]
        return [str(message.content) for each in found for message in _messages(each)]

    async def known(self, session_id: str) -> bool:
        return await self._saver.aget_tuple(_thread(session_id)) is not None

    async def delete(self, session_id: str) -> None:
        await self._saver.adelete_thread(session_id)

    async def fork(self, session_id: str, new_session_id: str) -> None:
        await self._saver.acopy_thread(session_id, new_session_id)


def _thread(session_id: str) -> RunnableConfig:
    return thread(session_id, checkpoint_ns="")


def _checkpoint_id(config: RunnableConfig) -> Any:
    return config["configurable"].get("checkpoint_id")


def _messages(found: CheckpointTuple) -> list[HumanMessage]:
    messages: list[HumanMessage] = found.checkpoint["channel_values"]["messages"]
    return messages
