"""Flows of CrewAI that are forked, paused and resumed: `python -m tests.versions.smoke.crewai FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "OTEL_SDK_DISABLED"):
    os.environ[name] = "true"

from crewai.flow.async_feedback.types import HumanFeedbackPending  # noqa: E402

from locus.integrations.crewai import LocusFlowPersistence  # noqa: E402
from tests.integrations.crewai.flows import Review, support  # noqa: E402


def check(folder: Path) -> None:
    with LocusFlowPersistence(f"sqlite:{folder / 'flows.db'}") as kept:
        for _ in range(2):
            support(kept).kickoff(inputs={"id": "alice"})
        assert [state["turns"] for state in kept.versions("alice").values()] == [2, 2, 1, 1]
        fork = support(kept)
        fork.kickoff(restore_from_state_id="alice")
        assert fork.state.turns == 3
        assert isinstance(Review(persistence=kept).kickoff(inputs={"id": "r"}), HumanFeedbackPending)
        assert Review.from_pending("r", kept).resume("fine") == "published: fine"
        assert kept.load_pending_feedback("r") is None


if __name__ == "__main__":
    check(Path(sys.argv[1]))
