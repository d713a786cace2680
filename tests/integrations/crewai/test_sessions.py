"""What every framework's sessions keep, on every store."""

from __future__ import annotations

from tests.integrations.suites import EveryLaw, InMemory, OnOtherStores


class TestSessions(EveryLaw):
    adapter = "tests.integrations.crewai.sessions:FlowSessions"


class TestSessionsElsewhere(OnOtherStores):
    adapter = TestSessions.adapter


class TestSessionsInMemory(InMemory):
    adapter = TestSessions.adapter
