"""CrewAI's flows on every backend: `@persist(LocusFlowPersistence("sqlite:flows.db"))`."""

from locus.extras import require

require("crewai.flow.persistence", "crewai")

from locus.integrations.crewai.persistence import NAMESPACE, LocusFlowPersistence  # noqa: E402

__all__ = ["NAMESPACE", "LocusFlowPersistence"]
