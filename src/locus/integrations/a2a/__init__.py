"""Tasks of A2A agents on every backend: `DefaultRequestHandler(executor, LocusTaskStore("sqlite:agents.db"), card)`."""

from locus.extras import require

require("a2a.server.tasks", "a2a")

from locus.integrations.a2a.store import NAMESPACE, LocusTaskStore  # noqa: E402

__all__ = ["NAMESPACE", "LocusTaskStore"]
