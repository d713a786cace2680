"""Sessions, state and artifacts of Google's Agent Development Kit (ADK) on every backend.

    from google.adk.runners import Runner
    from locus.integrations.google_adk import LocusArtifactService, LocusSessionService

    runner = Runner(
        app_name="shop",
        agent=agent,
        session_service=LocusSessionService("sqlite:agents.db"),
        artifact_service=LocusArtifactService("sqlite:agents.db"),
    )

For `adk web`, `adk run` and `adk api_server`, a `services.py` in the folder of the agents makes the URLs known:

    from locus.integrations.google_adk import register_services

    register_services()  # adk web --session_service_uri=locus+sqlite:agents.db agents

The modules are imported when they are first used, because importing ADK takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locus.extras import lazy_names

if TYPE_CHECKING:
    from locus.integrations.google_adk.artifacts import LocusArtifactService
    from locus.integrations.google_adk.memory import LocusMemoryService
    from locus.integrations.google_adk.services import register_services
    from locus.integrations.google_adk.sessions import LocusSessionService, SessionPoint

__all__ = [
    "NAMESPACE",
    "LocusArtifactService",
    "LocusMemoryService",
    "LocusSessionService",
    "SessionPoint",
    "register_services",
]

NAMESPACE = "google-adk"
"""The namespace of sessions and of state. For a store without namespaces, pass `namespace="default"`."""

__getattr__ = lazy_names(
    __name__,
    {
        "artifacts": ("LocusArtifactService",),
        "memory": ("LocusMemoryService",),
        "services": ("register_services",),
        "sessions": ("LocusSessionService", "SessionPoint"),
    },
)
