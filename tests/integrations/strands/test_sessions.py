"""What every framework's sessions keep, on every store."""

from __future__ import annotations

from tests.integrations.suites import EveryLaw, InMemory, OnOtherStores, OnOtherStoresToo


class TestSessions(EveryLaw):
    adapter = "tests.integrations.strands.sessions:RepositorySessions"


class TestSessionsElsewhere(OnOtherStores):
    adapter = TestSessions.adapter


class TestSessionsInMemory(InMemory):
    adapter = TestSessions.adapter


class TestSnapshots(EveryLaw):
    adapter = "tests.integrations.strands.sessions:StorageSnapshots"
    late_turn = 100
    """A snapshot has the whole session each time, so many turns take long."""


class TestSnapshotsElsewhere(OnOtherStoresToo):
    adapter = TestSnapshots.adapter


class TestSnapshotsInMemory(InMemory):
    adapter = TestSnapshots.adapter
