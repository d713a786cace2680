"""jsonb changes some values; none of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locus.memory.backends import PostgreSQLBackend
from locus.testing.laws.base import exact
from tests.backends.postgresql.store import PostgreSQLStore

pytestmark = pytest.mark.postgresql

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["\0", "\x01", "\x01\0", "$locus:str", "$locus:dict", "\\u0000", "\ufffe", "\U0010ffff"]
)
numbers = (
    st.integers()
    | st.integers(min_value=-(10**80), max_value=10**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 0.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 1e16, 1.0, 123456789012345678, 2**70])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
quietly = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@quietly
@given(value=values)
def test_every_json_value_comes_back_as_it_was(store: PostgreSQLStore, value: Any) -> None:
    backend = shared(store)
    data = {"plain": value, "list": [value, {"inner": [value]}], "large": ["x" * 1100, value]}
    saved = backend.sync.save("t", data, metadata={"value": value})
    assert exact(backend.sync.load("t", saved)) == exact(data)
    assert exact(backend.sync.get_metadata("t", saved)) == exact({"value": value})
    backend.sync.put_writes("t", saved, "task", [("channel", value), ("large", data["large"])])
    assert exact([write.value for write in backend.sync.get_writes("t", saved)]) == exact([value, data["large"]])
    assert saved in [hit["checkpoint_id"] for hit in backend.sync.query_by_metadata("value", value)]


@quietly
@given(ids=st.lists(texts.filter(bool), min_size=2, max_size=6, unique=True))
def test_ids_come_back_as_they_were_and_in_their_order(store: PostgreSQLStore, ids: list[str]) -> None:
    backend = shared(store)
    for thread_id in ids:
        backend.sync.save(thread_id, {"n": 1}, "c" + thread_id, namespace=thread_id)
    assert backend.sync.list_threads(None) == sorted(ids)
    for thread_id in ids:
        assert backend.sync.list_checkpoints(thread_id, namespace=thread_id) == ["c" + thread_id]
        assert backend.sync.delete(thread_id)


def shared(store: PostgreSQLStore) -> PostgreSQLBackend:
    """One handle for all examples of a test; dropped with it."""
    if not hasattr(store, "backend"):
        store.backend = PostgreSQLBackend(dsn=store.server_url, schema_name=store.schema)  # type: ignore[attr-defined]
    found: PostgreSQLBackend = store.backend  # type: ignore[attr-defined]
    return found
