"""Sessions of the Claude Agent SDK on every backend, with their whole history.

    from claude_agent_sdk import ClaudeAgentOptions, query
    from locus.integrations.claude_agent_sdk import LocusSessionStore

    store = LocusSessionStore("sqlite:agents.db")        # or a checkpointer, or a storage backend
    async for message in query(prompt="Hello", options=ClaudeAgentOptions(session_store=store)): ...

`keys` says where a session is kept, `transcript` how a batch of entries is added once and no more, and `store` is the
SDK's `SessionStore` on top of both.
"""

from __future__ import annotations

from locus.integrations.claude_agent_sdk.keys import NAMESPACE
from locus.integrations.claude_agent_sdk.store import LocusSessionStore, SessionStoreClosedError, SessionView
from locus.threads import SessionPoint

__all__ = ["NAMESPACE", "LocusSessionStore", "SessionPoint", "SessionStoreClosedError", "SessionView"]
