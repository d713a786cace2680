"""What every framework's sessions keep, on every store."""

from __future__ import annotations

from tests.integrations.suites import EveryLaw, InMemory, OnOtherStores, OnOtherStoresToo


class TestHistories(EveryLaw):
    adapter = "tests.integrations.agent_framework.sessions:Histories"


class TestHistoriesElsewhere(OnOtherStores):
    adapter = TestHistories.adapter


class TestHistoriesInMemory(InMemory):
    adapter = TestHistories.adapter


class TestAgentSessions(EveryLaw):
    adapter = "tests.integrations.agent_framework.sessions:AgentSessions"
    late_turn = 100
    """The framework hands over the whole session each time, so many turns take long."""


class TestAgentSessionsElsewhere(OnOtherStoresToo):
    adapter = TestAgentSessions.adapter


class TestAgentSessionsInMemory(InMemory):
    adapter = TestAgentSessions.adapter


class TestWorkflows(EveryLaw):
    adapter = "tests.integrations.agent_framework.sessions:Workflows"
    late_turn = 100


class TestWorkflowsElsewhere(OnOtherStoresToo):
    adapter = TestWorkflows.adapter


class TestWorkflowsInMemory(InMemory):
    adapter = TestWorkflows.adapter
