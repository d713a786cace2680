"""LangGraph's long-term memory on every store: `graph.compile(store=LocusStore("sqlite:///agents.db"))`."""

from locus.extras import require

require("langgraph.store.base", "langgraph")

from locus.integrations.langgraph_store.store import LocusStore  # noqa: E402

__all__ = ["LocusStore"]
