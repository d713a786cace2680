"""The suites: which tests of a framework are about its store, and which of them cannot pass with another, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Suite:
    """Which tests of a framework are about its store, and which of them are about its inside."""

    package: str
    measured: str
    """The version of the package with which the figures in docs/testing.md were measured."""
    folder: str
    """Where the package is in the repository."""
    plugin: str
    tests: Sequence[str]
    tools: Sequence[str] = ()
    """What the tests need beside our own environment, installed into a cache."""
    only: str = ""
    """An expression of `pytest -k`: the tests that use the store that ours takes the place of."""
    has_source: bool = True
    """Whether the source distribution has the tests. If not, only a clone does."""
    needs_server: bool = False
    """Whether the tests make databases in a server of PostgreSQL, which has to be named."""
    variables: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tests that cannot pass with another store, by the reason."""


_SESSION: Final = "tests/memory/test_session.py::test_sqlite_session_"
_SUFFIX: Final = "tests/memory/test_compaction_suffix.py::test_"
_COMPACTION: Final = (
    "tests/memory/test_openai_responses_compaction_session.py::TestOpenAIResponsesCompactionSession::test_"
)
_ENCRYPTED: Final = "tests/extensions/memory/test_encrypt_session.py::test_encrypted_"
_OPENAI: Final = {
    "it looks into SQLiteSession: its connections, locks and tables, and what sqlite3 raises": (
        f"{_SESSION}close_closes_worker_thread_connections",
        f"{_SESSION}reaps_connections_from_exited_worker_threads",
        f"{_SESSION}closes_retired_connections_before_the_next_allocation",
        f"{_SESSION}keeps_connections_of_live_worker_threads",
        f"{_SESSION}file_lock_is_shared_across_instances",
        f"{_SESSION}failed_add_items_releases_write_lock",
        f"{_SESSION}failed_clear_session_rolls_back",
        f"{_SESSION}failed_pop_item_releases_write_lock",
        f"{_SESSION}rollback_failure_evicts_connection",
        f"{_SESSION}close_retries_quarantined_connection",
        f"{_SESSION}post_commit_cancellation_propagates_after_known_outcome",
        f"{_SUFFIX}suffix_transaction_rolls_back_failed_insert[sqlite]",
        f"{_SUFFIX}cancelled_suffix_transaction_settles_before_newer_append[sqlite]",
        f"{_SUFFIX}failed_encrypted_suffix_transaction_preserves_original_tokens[sqlite",
        f"{_COMPACTION}settled_pop_failure_invalidates_response_chain",
        f"{_COMPACTION}settled_clear_failure_invalidates_response_chain",
        "tests/test_run_impl_resume_paths.py::test_handoff_resume_after_cancelled_compaction_commits",
    ),
    "it writes what is no JSON into the tables of SQLiteSession, and damage is an error here": (
        f"{_SESSION}pop_item_skips_corrupt_most_recent",
        f"{_SESSION}pop_item_returns_none_after_dropping_only_corrupt_rows",
        f"{_SESSION}get_items_limit_skips_corrupt_newest_rows",
        f"{_SESSION}get_items_session_settings_limit_skips_corrupt_rows",
    ),
    "it closes a session inside of the event loop that uses it, and `close` of ours is awaited": (
        f"{_SESSION}closed_rejects_empty_add_items",
    ),
    "EncryptedSession tries its key before it pops in SQLiteSession alone; here `rewind` brings back what is popped": (
        f"{_ENCRYPTED}pop_wrong_key_preserves_recoverable_history",
        f"{_ENCRYPTED}pop_wrong_key_preserves_row_identity",
        f"{_ENCRYPTED}pop_rechecks_authentication_after_expired_tail",
        f"{_ENCRYPTED}pop_authentication_is_atomic_with_concurrent_mutations",
        f"{_ENCRYPTED}pop_cancellation_waits_for_authentication_rollback",
    ),
    "a negative limit gives all items in SQLiteSession, and none in other sessions of the SDK, or here": (
        f"{_ENCRYPTED}session_scan_budget_rejects_negative_limit_before_read",
    ),
}

_VECTORS: Final = "LocusStore has no vectors"
_LABELS: Final = "labels with dots are kept, so that data which has them can be read and deleted"
_DOTTED: Final = ("get", "delete", "search", "list_prefix", "list_suffix")
_IN_MEMORY: Final = {
    _VECTORS: [
        f"tests/test_store.py::test_{name}"
        for name in (
            "vector_",
            "async_vector_",
            "async_batched_vector_search_concurrent",
            "embed_with_path",
            "non_ascii",
        )
    ]
}
_IN_SQLITE: Final = {
    _VECTORS: (
        *(
            f"tests/test_store.py::{name}"
            for name in ("test_vector_", "test_embed_with_path", "test_scores", "test_non_ascii")
        ),
        *(
            f"tests/test_store.py::test_{name}"
            for name in ("basic_store_operations", "list_namespaces_operations", "search_items")
        ),
        *(
            f"tests/test_async_store.py::test_{name}"
            for name in ("vector_", "embed_with_path", "basic_store_ops", "list_namespaces", "search_items")
        ),
    ),
    "keys of a filter are data, whatever signs they have; SqliteStore puts them into SQL and refuses some": (
        "tests/test_store.py::test_sql_injection_vulnerability",
    ),
    "a filter with NaN, which JSON does not have, is refused": ("tests/test_store.py::test_numeric_filter_safety",),
    "blocking calls inside of an event loop work here": ("tests/test_async_store.py::test_no_running_loop",),
    "refresh_on_read is true by default, as its documentation says; in SqliteStore it is not": (
        "tests/test_ttl.py::test_ttl_override_default",
    ),
    _LABELS: (
        *(
            f"tests/test_store.py::test_batch_rejects_invalid_namespace_labels[{place}-{operation}-namespace0]"
            for place in ("memory", "file")
            for operation in _DOTTED
        ),
        *(
            f"tests/test_async_store.py::test_abatch_rejects_invalid_namespace_labels[{place}-namespace0]"
            for place in ("memory", "file")
        ),
        "tests/test_async_store.py::test_sync_methods_reject_invalid_namespace_labels",
    ),
}
_IN_POSTGRESQL: Final = {
    _VECTORS: (
        *(f"tests/test_store.py::test_{name}" for name in ("vector_", "embed_with_path", "scores", "non_ascii")),
        *(f"tests/test_async_store.py::test_{name}" for name in ("vector_", "embed_with_path", "search_sorting")),
    ),
    "it looks into the tables and the pool of PostgresStore": (
        *(
            f"tests/test_store.py::test_omit_expired_{name}"
            for name in ("filters", "disabled", "refresh_ttl_only", "search_pagination")
        ),
        *(
            f"tests/test_async_store.py::test_omit_expired_{name}"
            for name in ("filters", "disabled", "refresh_ttl_only", "search_pagination")
        ),
        "tests/test_async_store.py::test_abatch_uses_single_pool_checkout",
    ),
    "blocking calls inside of an event loop work here": ("tests/test_async_store.py::test_no_running_loop",),
    _LABELS: (
        *(
            f"tests/test_store.py::test_batch_rejects_invalid_namespace_labels[{way}-{operation}-namespace0]"
            for way in ("default", "pipe", "pool")
            for operation in _DOTTED
        ),
        *(
            f"tests/test_async_store.py::test_abatch_rejects_invalid_namespace_labels[{way}-namespace0]"
            for way in ("default", "pipe", "pool")
        ),
        "tests/test_async_store.py::test_sync_methods_reject_invalid_namespace_labels",
    ),
}
_TEMPORARY: Final = {
    "ADK keeps temporary state in a session since 2.0, and the clone that was measured is older": tuple(
        f"tests/unittests/sessions/test_session_service.py::{name}"
        for name in ("test_session_state", "test_create_new_session_will_merge_states")
    )
}

SUITES: Final = {
    "langgraph": Suite(
        package="langgraph",
        measured="1.2.22",
        folder="libs/langgraph",
        plugin="locus_langgraph",
        tests=("tests",),
        tools=("pytest-mock==3.17.0", "syrupy==7.0.1"),
        only="sqlite and not aes",  # encrypted by a serializer of LangGraph's, which is no part of a saver here
        variables={"NO_DOCKER": "true"},
    ),
    "langgraph-store": Suite(
        package="langgraph-checkpoint",
        measured="4.3.2",
        folder="libs/checkpoint",
        plugin="locus_langgraph_store",
        tests=("tests/test_store.py",),
        tools=("pytest-mock==3.17.0",),
        left_out=_IN_MEMORY,
    ),
    "langgraph-store-sqlite": Suite(
        package="langgraph-checkpoint-sqlite",
        measured="3.1.2",
        folder="libs/checkpoint-sqlite",
        plugin="locus_langgraph_store",
        tests=("tests/test_store.py", "tests/test_async_store.py", "tests/test_ttl.py"),
        tools=("pytest-retry==1.7.0",),
        left_out=_IN_SQLITE,
    ),
    "langgraph-store-postgres": Suite(
        package="langgraph-checkpoint-postgres",
        measured="3.2.0",
        folder="libs/checkpoint-postgres",
        plugin="locus_langgraph_store",
        tests=("tests/test_store.py", "tests/test_async_store.py"),
        needs_server=True,
        left_out=_IN_POSTGRESQL,
    ),
    "google-adk": Suite(
        package="google-adk",
        measured="2.13.0",
        folder=".",
        plugin="locus_google_adk",
        tests=(
            "tests/unittests/sessions/test_session_service.py",
            "tests/unittests/artifacts/test_artifact_service.py",
        ),
        tools=("sqlalchemy==2.1.9",),
        only="MEMORY",
        has_source=False,
        left_out=_TEMPORARY,
    ),
    "openai-agents": Suite(
        package="openai-agents",
        measured="0.24.0",
        folder=".",
        plugin="locus_openai_agents",
        tests=(
            "tests/memory",
            "tests/extensions/memory/test_encrypt_session.py",
            "tests/test_agent_runner.py",
            "tests/test_agent_runner_streamed.py",
            "tests/test_hitl_session_scenario.py",
            "tests/test_max_turns.py",
            "tests/test_soft_cancel.py",
            "tests/test_tool_batch_failure_history.py",
            "tests/test_native_tool_failure_history.py",
            "tests/test_run_impl_resume_paths.py",
            "tests/test_tool_failure_boundaries.py",
            "tests/test_programmatic_tool_calling.py",
        ),
        only="session or compaction or history",
        left_out=_OPENAI,
    ),
}
