"""The history of agents: one log of messages for each session.

A session is the namespace `agent-framework` of the thread with its id. What a run adds is one checkpoint, and only new
messages are stored: the framework hands over some messages again (a transcript that is replayed, a run that is
repeated), and its own rule says which ones are new. The rule looks at no more messages of the end than were handed
over, so only these are ever read, and a provider that has just loaded or saved them reads none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from agent_framework import (
    AgentSession,
    CompactionProvider,
    HistoryProvider,
    Message,
    SessionContext,
    SupportsAgentRun,
)
from agent_framework._sessions import filter_new_messages
from agent_framework._sessions import get_message_identity as _identity
from agent_framework.exceptions import AgentFrameworkException

from locus.errors import CheckpointNotFoundError, ConfigurationError, CorruptCheckpointError
from locus.integrations.agent_framework.owned import OwnedStore
from locus.threads import ItemLog, SessionPoint, session_ids, session_points
from locus.threads.ids import shown_thread
from locus.threads.json import canonical
from locus.threads.limits import checked_limit

NAMESPACE = "agent-framework"
"""The namespace of histories. For a store without namespaces, pass `namespace="default"`."""

NO_SESSION = "default"
"""The session of calls that name none, as in the framework's file history."""

_OWN_OPTIONS = (
    "source_id",
    "load_messages",
    "store_inputs",
    "store_context_messages",
    "store_context_from",
    "store_outputs",
    "skip_excluded",
    "limit",
    "namespace",
)
_HELD = 16
"""How many messages a load holds, so that the save after it need not read them. A run seldom adds more."""
_REPEATED = 32
"""Among how many of the newest messages a batch is looked for that may be sent again late."""


class LocusHistoryProvider(OwnedStore, HistoryProvider):
    """A history provider of the framework in a Locus store.

    `store` is a checkpointer, a storage backend, or a name or URL with its `options` (`"sqlite:agents.db"`,
    `"https://…", token="…"`). `limit` lets an agent see the newest messages only; all are kept. The other parameters
    are those of the framework's providers.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "locus_history"

    def __init__(
        self,
        store: Any,
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        skip_excluded: bool = False,
        limit: int | None = None,
        namespace: str = NAMESPACE,
        **options: Any,
    ) -> None:
        HistoryProvider.__init__(
            self,
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.skip_excluded = skip_excluded
        self.limit = checked_limit(limit, None)
        self.namespace = namespace
        self._open(store, options, _OWN_OPTIONS)

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Load the history into the context of a run.

        `ConfigurationError` if the agent has a `CompactionProvider` that is to compact this history after the run: the
        framework's looks for messages in the session, finds none, and does nothing.
        """
        for provider in getattr(agent, "context_providers", ()):
            if (
                isinstance(provider, CompactionProvider)
                and provider.after_strategy is not None
                and provider.history_source_id == self.source_id
            ):
                raise ConfigurationError(
                    f"CompactionProvider(after_strategy=…) has no effect on {type(self).__name__}, whose messages are "
                    "not in the session: use before_strategy, which compacts what the model sees, or limit"
                )
        await super().before_run(agent=agent, session=session, context=context, state=state)

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,
        limit: int | None = None,
        checkpoint_id: str | None = None,
        **kwargs: Any,
    ) -> list[Message]:
        """The messages of a session in their order: all, or the newest `limit`, now or as of a checkpoint.

        Results of tools whose calls the limit of the provider has cut off are left out as well: models refuse them.
        """
        most = self.limit if limit is None else checked_limit(limit, None)
        log = self._log(session_id)
        items = await log.read(most, checkpoint_id, hold=_HELD)
        messages = [_message(log.thread_id, item) for item in items]
        if limit is None and most is not None and len(messages) == most:
            messages = _without_orphans(messages)
        if self.skip_excluded:
            messages = [message for message in messages if not message.additional_properties.get("_excluded", False)]
        return messages

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the messages that are new, in one step, even if others add some at the same time.

        The framework's rule says which are new. Beside that, a batch whose messages all have ids is not added if it
        stands among the newest messages already: it is sent again, and others were faster.
        """
        if not messages:
            return
        log = self._log(session_id)
        payloads = [message.to_dict() for message in messages]
        have_ids = all(message.message_id for message in messages)

        def new(newest: list[Any]) -> list[Any]:
            if have_ids and _stands_in(newest, payloads):
                return []
            # Whatever the rule leaves out ends with the newest message that is there.
            if not newest or _identity(_message(log.thread_id, newest[-1])) not in map(_identity, messages):
                return payloads
            known = [_message(log.thread_id, item) for item in newest[-len(messages) :]]
            return payloads[len(payloads) - len(filter_new_messages(known, messages)) :]

        await log.append_new(max(len(messages), _REPEATED if have_ids else 0), new)

    async def history(self, session_id: str, limit: int | None = 10, before: str | None = None) -> list[SessionPoint]:
        """The points in a session's history that it can be read at or forked from, newest first, without messages."""
        return await session_points(self._store, session_id, self.namespace, limit, before)

    async def fork(self, session_id: str, new_session_id: str, checkpoint_id: str | None = None) -> None:
        """Let a new session begin with the messages of this one, as of a checkpoint, or of the latest.

        Raises `ConflictError` if the new id is in use, and `CheckpointNotFoundError` if there is nothing to begin with.
        """
        if not await self._store.fork(session_id, new_session_id, self.namespace, checkpoint_id):
            what = "no messages" if checkpoint_id is None else f"no checkpoint {checkpoint_id!r}"
            raise CheckpointNotFoundError(f"session {session_id!r} has {what} to fork from")

    async def rewind(self, session_id: str, checkpoint_id: str) -> None:
        """Go on from an earlier point of a session. What came after it stays in the history."""
        await self._log(session_id).rewind(checkpoint_id)

    async def delete(self, session_id: str) -> None:
        """Delete the messages of a session, and their history."""
        await self._log(session_id).delete()

    async def list_sessions(self, limit: int | None = 100, pattern: str = "*") -> list[str]:
        """The ids of the sessions in this store that match a pattern (`*` any text, `?` one character), in order."""
        return await session_ids(self._store, self.namespace, limit, pattern)

    def _log(self, session_id: str | None) -> ItemLog:
        return self._store.log(NO_SESSION if session_id is None else session_id, self.namespace)


def _message(thread_id: str, item: Any) -> Message:
    """A message as the framework reads it. The framework's own errors would show its content."""
    try:
        return Message.from_dict(item)
    except (ValueError, TypeError, KeyError, AttributeError, AgentFrameworkException) as error:
        raise CorruptCheckpointError(
            f"{shown_thread(thread_id)} holds something that is no message of the Agent Framework "
            f"({type(error).__name__})"
        ) from None


def _stands_in(items: Sequence[Any], batch: Sequence[dict[str, Any]]) -> bool:
    """Whether a batch of messages is already among these items, unchanged and in one piece."""
    ids = [item.get("message_id") if isinstance(item, dict) else None for item in items]
    wanted = [payload["message_id"] for payload in batch]
    size = len(wanted)
    return any(
        ids[start : start + size] == wanted and all(map(_is_same, items[start : start + size], batch))
        for start in range(len(ids) - size + 1)
    )


def _is_same(item: Any, payload: Any) -> bool:
    return canonical(item) == canonical(payload)


def _without_orphans(messages: list[Message]) -> list[Message]:
    """The messages, without results at the beginning whose calls are missing."""
    start = 0
    while start < len(messages) and messages[start].role == "tool":
        start += 1
    return messages[start:]
