"""LangGraph on every backend: `graph.compile(checkpointer=LocusSaver("sqlite:///agents.db"))`."""

from locus.extras import require

require("langgraph.checkpoint.base", "langgraph")

from locus.integrations.langgraph.node_cache import LocusCache  # noqa: E402
from locus.integrations.langgraph.saver import LocusSaver, Version  # noqa: E402

__all__ = ["LocusCache", "LocusSaver", "Version"]
