"""URLs of Locus stores for the commands of ADK: `adk web`, `adk run` and `adk api_server`.

    adk web --session_service_uri=locus+sqlite:agents.db --artifact_service_uri=locus+sqlite:agents.db agents

ADK loads `services.py` from the folder of the agents, and looks a service up by the scheme of its URL. So each backend
has a scheme of its own, `locus+postgresql` for `postgresql`. ADK masks the password of such a URL when it logs it.
"""

from __future__ import annotations

from typing import Any

from google.adk.cli.service_registry import get_service_registry

from locus.integrations.google_adk.artifacts import LocusArtifactService
from locus.integrations.google_adk.sessions import LocusSessionService
from locus.memory.registry import list_checkpointers

PREFIX = "locus+"
_OF_ADK = ("agents_dir", "per_agent")
"""What ADK passes to every service, whether it has a use for it or not."""


def register_services() -> None:
    """Make `locus+` and the URL of any Locus store a service URI of ADK, for sessions and for artifacts."""
    registry = get_service_registry()
    for scheme in list_checkpointers():
        registry.register_session_service(f"{PREFIX}{scheme}", _session_service)
        registry.register_artifact_service(f"{PREFIX}{scheme}", _artifact_service)


def _session_service(uri: str, **options: Any) -> LocusSessionService:
    return LocusSessionService(uri.removeprefix(PREFIX), **_for_the_store(options))


def _artifact_service(uri: str, **options: Any) -> LocusArtifactService:
    return LocusArtifactService(uri.removeprefix(PREFIX), **_for_the_store(options))


def _for_the_store(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OF_ADK}
