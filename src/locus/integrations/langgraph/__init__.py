"""LangGraph on every backend: `graph.compile(checkpointer=LocusSaver("sqlite:///agents.db"))`."""

from locus.extras import require

require("langgraph.checkpoint.base", "langgraph")

from locus.integrations.langgraph.saver import LocusSaver, Version  # noqa: E402

__all__ = ["LocusSaver", "Version"]
