"""A flow that waits for a person: what a killed process, a race or an outage leaves of the question and the state."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.testing.framework_sessions import SessionKillLaws, SessionRaceLaws, SessionRetryLaws
from locus.testing.stores import TestStore
from tests.backends.embedded import SQLiteStore


class TestPauses(SessionKillLaws, SessionRaceLaws, SessionRetryLaws):
    adapter = "tests.integrations.crewai.sessions:PausedFlows"
    rounds = 10

    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return SQLiteStore(tmp_path)
