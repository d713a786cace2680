"""The four classes: what one of them can do, its blocking companion can, with the same words and the same results."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConflictError
from locus.memory.backends import OracleBackend, OracleCheckpointSaver, OracleSyncBackend, OracleSyncCheckpointSaver
from tests.backends.oracle.stores import OracleStore, place_of

pytestmark = pytest.mark.oracle


def _verbs(kind: type) -> dict[str, Any]:
    """Its own async methods, or blocking ones; what a pydantic model brings along is none of them."""
    homes = [home for home in kind.__mro__ if home.__module__.startswith("locus.")]
    names = {name for home in homes for name in vars(home) if not name.startswith("_")}
    return {name: getattr(kind, name) for name in names if inspect.isfunction(getattr(kind, name))}


@pytest.mark.parametrize(
    ("awaited", "blocking"), [(OracleBackend, OracleSyncBackend), (OracleCheckpointSaver, OracleSyncCheckpointSaver)]
)
def test_every_async_method_has_a_blocking_one_of_the_same_name(awaited: type, blocking: type) -> None:
    found = _verbs(blocking)
    verbs = {name: verb for name, verb in _verbs(awaited).items() if inspect.iscoroutinefunction(verb)}
    assert len(verbs) > 8
    for name, verb in verbs.items():
        assert not inspect.iscoroutinefunction(found[name]), name
        ours, theirs = (list(inspect.signature(one).parameters.values()) for one in (verb, found[name]))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name


def test_a_blocking_backend_does_all_that_an_async_one_does(oracle_store: OracleStore) -> None:
    options = {**place_of(oracle_store.database), **oracle_store.options}
    with OracleSyncBackend(**options) as backend:
        state = AgentState(agent_id="a").with_message(Message.user("a wombat"))
        first = backend.save(state, "thread", metadata={"k": "v"})
        second = backend.save("thread", {"n": [1, 2.0]}, "second")
        assert backend.list_checkpoints("thread") == [second, first]
        assert backend.load("thread") == {"n": [1, 2.0]}
        assert (backend.load("thread", first) or {})["agent_id"] == "a"
        assert (backend.exists("thread"), backend.exists("other"), backend.load("other")) == (True, False, None)
        assert backend.get_metadata("thread", first) == {"k": "v"}
        assert [hit["checkpoint_id"] for hit in backend.query_by_metadata("k", "v")] == [first]
        assert [hit["checkpoint_id"] for hit in backend.search("wombat")] == [first]
        assert [hit["checkpoint_id"] for hit in backend.search_data("n", 2.0)] == [second]
        assert (backend.count(), backend.count("x*"), backend.list_threads()) == (2, 0, ["thread"])
        assert backend.copy_thread("thread", "copy")
        with pytest.raises(ConflictError):
            backend.save("thread", {}, if_latest=first)
        backend.put_writes("thread", second, "task", [("channel", 1)])
        assert [write.value for write in backend.get_writes("thread", second)] == [1]
        assert backend.delete("thread", second)
        assert backend.vacuum(older_than_days=1) == 0
        assert backend.delete("thread")
        assert backend.list_threads() == ["copy"]
        backend.close()
        assert backend.exists("copy"), "it can be used again"


def test_blocking_handles_serve_many_threads(oracle_store: OracleStore) -> None:
    options = {**place_of(oracle_store.database), **oracle_store.options}
    with OracleSyncCheckpointSaver(**options) as saver:

        def put(number: int) -> Any:
            saver.put(thread_id="t", checkpoint_id=str(number), checkpoint_data={"n": number}, checkpoint_ns="")
            return saver.get(thread_id="t", checkpoint_id=str(number), checkpoint_ns="")

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(put, range(12)))
        assert [one["checkpoint"] for one in found] == [{"n": number} for number in range(12)]
        assert len(saver.list_checkpoints(thread_id="t", checkpoint_ns="", limit=100)) == 12


async def test_a_saver_and_a_backend_see_the_same_threads(oracle_store: OracleStore) -> None:
    options = {**place_of(oracle_store.database), **oracle_store.options}
    saver, backend = OracleCheckpointSaver(**options), OracleBackend(**options)
    await saver.put(thread_id="t", checkpoint_id="c1", checkpoint_data={"step": 0, "values": {"x": 1}})
    assert await backend.load("t") == {"step": 0, "values": {"x": 1}}
    await backend.save("t", {"step": 1})
    latest = await saver.get(thread_id="t")
    assert latest is not None
    assert (latest["checkpoint"], latest["parent_checkpoint_id"]) == ({"step": 1}, "c1")
    await saver.close()
    await backend.close()
