"""Microsoft Agent Framework on every backend: the history of agents, their sessions, and checkpoints of workflows.

    from locus.integrations.agent_framework import LocusHistoryProvider

    history = LocusHistoryProvider(checkpointer)         # or a storage backend, or "sqlite:agents.db"
    agent = Agent(client=client, context_providers=[history])
    await agent.run("Hello", session=agent.create_session(session_id="alice"))

Each of the three has a namespace of its own, so they may share a store and the ids in it.
"""

from locus.extras import require

require("agent_framework", "agent-framework")

from locus.integrations.agent_framework.checkpoints import LocusCheckpointStorage, WorkflowPoint  # noqa: E402
from locus.integrations.agent_framework.history import LocusHistoryProvider  # noqa: E402
from locus.integrations.agent_framework.memory import LocusMemoryProvider  # noqa: E402
from locus.integrations.agent_framework.owned import ClosedError  # noqa: E402
from locus.integrations.agent_framework.sessions import LocusAgentSessionStore  # noqa: E402
from locus.threads import SessionPoint  # noqa: E402

__all__ = [
    "ClosedError",
    "LocusAgentSessionStore",
    "LocusCheckpointStorage",
    "LocusHistoryProvider",
    "LocusMemoryProvider",
    "SessionPoint",
    "WorkflowPoint",
]
