"""The test suite for the sessions of a framework, which every integration has to pass on every store.

::

    class TestSessions(SessionLaws):
        adapter = "my_tests.sessions:MyFrameworkSessions"

        @pytest.fixture
        def store(self, tmp_path: Path) -> DurableTestStore:
            return MyTestStore(tmp_path)

An adapter (`FrameworkSessions`) implements the operations of the suite with the framework's own methods: create a
session, append a batch of messages, read them, delete, fork. It is named by its module and class, because processes
that the suite starts import it as well. `SessionLaws` combines all laws. Each law also is a class of its own, for
stores that cannot keep all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locus.extras import lazy_names

if TYPE_CHECKING:
    from locus.testing.framework_sessions.adapter import Appends, FrameworkSessions, Retried, Said
    from locus.testing.framework_sessions.laws import (
        SessionCostLaws,
        SessionForkLaws,
        SessionIdLaws,
        SessionKillLaws,
        SessionLaws,
        SessionOutageLaws,
        SessionRaceLaws,
        SessionRetryLaws,
        SessionRoundTripLaws,
    )

__all__ = [
    "Appends",
    "FrameworkSessions",
    "Retried",
    "Said",
    "SessionCostLaws",
    "SessionForkLaws",
    "SessionIdLaws",
    "SessionKillLaws",
    "SessionLaws",
    "SessionOutageLaws",
    "SessionRaceLaws",
    "SessionRetryLaws",
    "SessionRoundTripLaws",
]

__getattr__ = lazy_names(
    __name__,
    {
        "adapter": ("Appends", "FrameworkSessions", "Retried", "Said"),
        "laws": (
            "SessionCostLaws",
            "SessionForkLaws",
            "SessionIdLaws",
            "SessionKillLaws",
            "SessionLaws",
            "SessionOutageLaws",
            "SessionRaceLaws",
            "SessionRetryLaws",
            "SessionRoundTripLaws",
        ),
    },
)
