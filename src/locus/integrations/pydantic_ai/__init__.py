"""Conversations of Pydantic AI on every backend: `LocusConversationStore("sqlite:agents.db")`."""

from locus.extras import require

require("pydantic_ai.conversation_store", "pydantic-ai")

from locus.integrations.pydantic_ai.store import (  # noqa: E402
    NAMESPACE,
    ConversationPoint,
    ConversationStoreClosedError,
    LocusConversationStore,
)

__all__ = ["NAMESPACE", "ConversationPoint", "ConversationStoreClosedError", "LocusConversationStore"]
