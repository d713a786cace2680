"""Tells by the names of tables, keys and files which other framework keeps its threads in a place.

A store of another framework is no empty store. Where nothing of Locus exists yet, each engine looks once, when it is
opened, for what `locus import` reads, and raises `ForeignStoreError`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

_COLUMNS = {
    ("langgraph", "checkpoints"): {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint"},
    ("openai-agents", "agent_messages"): {"session_id", "message_data"},
    ("google-adk", "events"): {"app_name", "user_id", "session_id", "invocation_id"},
    ("locus-sdk", "checkpoints"): {"thread_id", "data", "updated_at"},
    ("locus-sdk", "locus_checkpoints"): {"tenant", "seq", "thread_id", "data"},
}
"""The columns by which a table of a framework is known from others of its name."""
FOREIGN_TABLES = sorted({table for _, table in _COLUMNS})
IN_SQLITE = ("langgraph", "openai-agents", "google-adk")
IN_POSTGRESQL = ("langgraph", "google-adk", "locus-sdk")
IN_MYSQL = ("google-adk", "locus-sdk")

SDK_PREFIXES = ("locus:state:", "locus:checkpoint:")
"""The prefixes of a `redis_checkpointer` and a bare `RedisBackend` of locus-sdk 3. Its keys are strings, not ours."""

NAMES = {
    "langgraph": "LangGraph",
    "openai-agents": "the OpenAI Agents SDK",
    "google-adk": "Google ADK",
    "locus-sdk": "locus-sdk 3",
    "strands": "Strands",
    "agent-framework": "the Microsoft Agent Framework",
}
"""What each framework that `locus import` reads is called, by its name for that command."""


def kind_of_tables(columns: Iterable[Sequence[str]], kinds: Sequence[str]) -> str | None:
    """The framework among `kinds` that some tables belong to. `columns` are pairs of a table and one of its columns."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for table, column in columns:
        found[table.lower()].add(column.lower())
    return next((kind for (kind, table), known in _COLUMNS.items() if kind in kinds and known <= found[table]), None)
