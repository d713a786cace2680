"""A plugin of pytest: ADK's tests of session and artifact services with ours in the place of those in memory."""

from __future__ import annotations

import os
import tempfile
from uuid import uuid4

import google.adk.artifacts
import google.adk.sessions

from locus.integrations.google_adk import LocusArtifactService, LocusSessionService

_FOLDER = tempfile.TemporaryDirectory(prefix="locus-suites-")


def _url() -> str:
    """A new store for each test."""
    store, name = os.environ.get("LOCUS_SUITE_STORE", "sqlite"), f"t{uuid4().hex[:12]}"
    return f"sqlite:{_FOLDER.name}/{name}.db" if store == "sqlite" else store.format(name=name)


class SessionService(LocusSessionService):
    def __init__(self) -> None:
        super().__init__(_url())


class ArtifactService(LocusArtifactService):
    def __init__(self) -> None:
        super().__init__(_url())


google.adk.sessions.InMemorySessionService = SessionService  # type: ignore[misc, assignment]
google.adk.artifacts.InMemoryArtifactService = ArtifactService  # type: ignore[misc, assignment]
