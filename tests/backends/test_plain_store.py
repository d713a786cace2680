"""Other people's stores as checkpointers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    InvalidIdError,
    SerializationError,
)
from locus.memory import CheckpointerCapabilities
from locus.memory.backends import StorageBackendAdapter
from locus.testing.data import rich_state
from tests.backends.strangers import AsyncStore, Failing, FourMethods, SyncStore, Talented

Store = SyncStore | AsyncStore


@pytest.fixture(params=[SyncStore, AsyncStore])
def store(request: pytest.FixtureRequest) -> Store:
    made: Store = request.param()
    return made


@pytest.fixture
def cp(store: Store) -> StorageBackendAdapter:
    return StorageBackendAdapter(store)


async def test_what_was_saved_comes_back(cp: StorageBackendAdapter, store: Store) -> None:
    state = rich_state()
    first = await cp.save(state, "t", metadata={"user": "eve"})
    second = await cp.save(state.next_iteration(), "t")
    assert await cp.load("t", first) == state
    found = await StorageBackendAdapter(store).load("t")
    assert found is not None
    assert (found.iteration, found.messages) == (1, state.messages)
    assert await cp.list_checkpoints("t") == [second, first]
    assert [(entry.seq, entry.parent_id) for entry in await cp.history("t")] == [(2, first), (1, None)]
    assert await cp.get_metadata("t", first) == {"user": "eve"}
    assert [found["checkpoint_id"] for found in await cp.query_by_metadata("user", "eve")] == [first]
    assert await cp.load("none") is None
    assert not await cp.exists("none")


async def test_the_keys_are_those_that_other_readers_know(cp: StorageBackendAdapter, store: Store) -> None:
    state = AgentState(agent_id="a").with_message(Message.user("hi"))
    first = await cp.save(state, "t", metadata={"user": "eve"})
    second = await cp.save(state.next_iteration(), "t")
    assert set(store.data) == {f"t:{first}", f"t:{second}", "t:latest", "t:_checkpoints"}
    assert AgentState.from_checkpoint(store.data[f"t:{first}"]) == state
    assert store.data["t:latest"] == store.data[f"t:{second}"]
    index = store.data["t:_checkpoints"]
    assert index["last_seq"] == 2
    assert [(line["checkpoint_id"], line["parent_id"], line["seq"]) for line in index["checkpoints"]] == [
        (first, None, 1),
        (second, first, 2),
    ]
    assert index["checkpoints"][0]["metadata"] == {"user": "eve"}


async def test_what_is_listed_can_be_loaded_so_the_list_comes_last(cp: StorageBackendAdapter, store: Store) -> None:
    saved = await cp.save(AgentState(), "t")
    assert store.log == [f"save t:{saved}", "save t:latest", "save t:_checkpoints"]
    store.log.clear()
    again = await cp.save(AgentState(), "t")
    store.log.clear()
    await cp.delete("t", again)
    assert store.log.index("save t:_checkpoints") < store.log.index(f"delete t:{again}")


async def test_deleting_the_newest_makes_the_one_before_it_the_latest(cp: StorageBackendAdapter, store: Store) -> None:
    first = await cp.save(AgentState(agent_id="first"), "t")
    second = await cp.save(AgentState(agent_id="second"), "t")
    assert await cp.delete("t", second)
    state = await cp.load("t")
    assert state is not None
    assert state.agent_id == store.data["t:latest"]["agent_id"] == "first"
    third = await cp.save(AgentState(), "t")
    assert [entry.seq for entry in await cp.history("t")] == [3, 1]
    assert await cp.delete("t")
    assert store.data == {}
    assert not await cp.delete("t")
    assert first != third


async def test_threads_are_listed_by_their_ids(cp: StorageBackendAdapter) -> None:
    ids = ["a", "a:b", "a:latest", "a:_checkpoints", "user:1", "*", ":"]
    for thread_id in ids:
        await cp.save(AgentState(agent_id=thread_id), thread_id)
    assert await cp.list_threads() == sorted(ids)
    assert await cp.list_threads(pattern="a*") == ["a", "a:_checkpoints", "a:b", "a:latest"]
    assert await cp.list_threads(limit=2) == sorted(ids)[:2]
    for thread_id in ids:
        state = await cp.load(thread_id)
        assert state is not None
        assert state.agent_id == thread_id


@pytest.mark.parametrize("checkpoint_id", ["latest", "_checkpoints", "a:b", ":", "a:latest"])
async def test_ids_that_would_be_another_key_are_refused(store: Store, checkpoint_id: str) -> None:
    with pytest.raises(InvalidIdError):
        await StorageBackendAdapter(store).save(AgentState(), "t", checkpoint_id)
    assert store.data == {}


async def test_bookkeeping_is_no_checkpoint(cp: StorageBackendAdapter) -> None:
    await cp.save(AgentState(), "t")
    for checkpoint_id in ("latest", "_checkpoints"):
        assert await cp.load("t", checkpoint_id) is None
        assert not await cp.exists("t", checkpoint_id)
        assert not await cp.delete("t", checkpoint_id)


async def test_namespaces_and_pending_writes_have_no_place(cp: StorageBackendAdapter, store: Store) -> None:
    with pytest.raises(CapabilityError, match="namespaces"):
        await cp.save(AgentState(), "t", namespace="other")
    with pytest.raises(CapabilityError, match="pending writes"):
        await cp.put_writes("t", "c", "task", [("channel", 1)])
    assert store.data == {}
    saved = await cp.save(AgentState(), "t")
    assert await cp.load("t", saved, namespace="other") is None


async def test_a_replacement_and_a_repetition(cp: StorageBackendAdapter, store: Store) -> None:
    state = AgentState(agent_id="a")
    await cp.save(state, "t", "one")
    await cp.save(AgentState(), "t", "two")
    kept = dict(store.data)
    assert await cp.save(state, "t", "one") == "one"
    assert store.data == kept
    await cp.save(AgentState(agent_id="b"), "t", "one")
    assert await cp.list_checkpoints("t") == ["one", "two"]
    with pytest.raises(ConflictError):
        await cp.save(state, "t", if_latest="two")


async def test_savers_in_one_process_exclude_each_other(cp: StorageBackendAdapter) -> None:
    ids = await asyncio.gather(*(cp.save(AgentState(iteration=number), "t") for number in range(20)))
    assert sorted(await cp.list_checkpoints("t", limit=50)) == sorted(ids)


async def test_handles_in_one_process_exclude_each_other() -> None:
    class Slow(AsyncStore):
        async def save(self, key: str, data: dict[str, Any]) -> None:
            await asyncio.sleep(0)
            await super().save(key, data)

        async def load(self, key: str) -> dict[str, Any] | None:
            await asyncio.sleep(0)
            return await super().load(key)

    store = Slow()
    handles = [StorageBackendAdapter(store) for _ in range(4)]
    ids = await asyncio.gather(*(handle.save(AgentState(), "t") for handle in handles * 3))
    assert sorted(await handles[0].list_checkpoints("t", limit=50)) == sorted(ids)


async def test_threads_can_be_copied(cp: StorageBackendAdapter) -> None:
    first = await cp.save(AgentState(agent_id="first"), "t")
    await cp.save(AgentState(agent_id="second"), "t")
    assert await cp.copy_thread("t", "copy", first)
    copied = await cp.load("copy")
    assert copied is not None
    assert copied.agent_id == "first"
    with pytest.raises(ConflictError):
        await cp.copy_thread("t", "copy")
    assert not await cp.copy_thread("none", "other")


@pytest.mark.parametrize("missing", ["save", "load", "delete", "exists"])
def test_a_missing_method_is_named(missing: str) -> None:
    class Incomplete(SyncStore):
        def __getattribute__(self, name: str) -> Any:
            if name == missing:
                raise AttributeError(name)
            return super().__getattribute__(name)

    with pytest.raises(ConfigurationError, match=f"Incomplete .* no method {missing}$"):
        StorageBackendAdapter(Incomplete())


@pytest.mark.parametrize("thing", [object(), None, "sqlite", {"save": 1}, 5], ids=lambda thing: type(thing).__name__)
def test_what_is_no_store_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match="save, load, delete, exists"):
        StorageBackendAdapter(thing)


def test_capabilities_are_what_the_object_has() -> None:
    five = CheckpointerCapabilities(
        metadata_query=True,
        vacuum=True,
        branching=True,
        list_threads=True,
        list_with_metadata=True,
        persistent_checkpoint_ids=True,
    )
    assert StorageBackendAdapter(SyncStore()).capabilities == five
    assert StorageBackendAdapter(FourMethods()).capabilities == CheckpointerCapabilities(
        branching=True, persistent_checkpoint_ids=True
    )
    assert StorageBackendAdapter(Talented()).capabilities == CheckpointerCapabilities(
        search=True,
        metadata_query=True,
        vacuum=True,
        branching=True,
        list_with_metadata=True,
        persistent_checkpoint_ids=True,
    )


async def test_what_only_the_object_can_do_is_asked_of_it() -> None:
    store = Talented()
    cp = StorageBackendAdapter(store)
    assert await cp.search("hello", limit=3) == [{"thread_id": "t", "score": 1.0}]
    assert await cp.query_by_metadata("user", "eve", limit=4) == [{"thread_id": "t"}]
    assert await cp.list_with_metadata(limit=5) == [{"thread_id": "t"}]
    assert await cp.vacuum(12) == 7
    assert store.asked == [
        ("search", "hello", 3),
        ("query_by_metadata", "user", "eve", 4),
        ("list_with_metadata", 5),
        ("vacuum", 12),
    ]
    for impossible in ({"keep_last": 1}, {"dry_run": True}):
        with pytest.raises(CapabilityError):
            await cp.vacuum(12, **impossible)


async def test_the_seeds_other_name_for_a_metadata_query_is_known() -> None:
    class Older(FourMethods):
        async def get_by_metadata(self, key: str, value: Any, limit: int) -> list[dict[str, Any]]:
            return [{key: value, "limit": limit}]

    cp = StorageBackendAdapter(Older())
    assert cp.capabilities.metadata_query
    assert await cp.query_by_metadata("user", "eve", limit=2) == [{"user": "eve", "limit": 2}]


@pytest.mark.parametrize(
    "call",
    [
        lambda cp: cp.search("x"),
        lambda cp: cp.query_by_metadata("a", 1),
        lambda cp: cp.list_threads(),
        lambda cp: cp.list_with_metadata(),
        lambda cp: cp.vacuum(),
    ],
    ids=["search", "query_by_metadata", "list_threads", "list_with_metadata", "vacuum"],
)
async def test_what_nobody_can_do_is_told(call: Callable[[StorageBackendAdapter], Awaitable[Any]]) -> None:
    with pytest.raises(CapabilityError):
        await call(StorageBackendAdapter(FourMethods()))


FAILURES: list[tuple[str, Callable[[StorageBackendAdapter], Awaitable[Any]]]] = [
    ("save", lambda cp: cp.save(AgentState(), "t")),
    ("load", lambda cp: cp.save(AgentState(), "t")),
    ("load", lambda cp: cp.load("t")),
    ("load", lambda cp: cp.exists("t")),
    ("load", lambda cp: cp.history("t")),
    ("load", lambda cp: cp.get_metadata("t")),
    ("delete", lambda cp: cp.delete("t")),
    ("list_threads", lambda cp: cp.list_threads()),
    ("list_threads", lambda cp: cp.vacuum(0)),
    ("save", lambda cp: cp.copy_thread("t", "u")),
    ("search", lambda cp: cp.search("x")),
]


@pytest.mark.parametrize(("method", "call"), FAILURES)
async def test_an_outage_is_raised_with_its_cause_and_without_its_secrets(
    method: str, call: Callable[[StorageBackendAdapter], Awaitable[Any]]
) -> None:
    store = Failing(method)
    cp = StorageBackendAdapter(store)
    await cp.save(AgentState(), "t")
    store.broken = True
    with pytest.raises(BackendUnavailableError) as caught:
        await call(cp)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert "s3cret" not in str(caught.value)
    assert "Failing" in str(caught.value)


async def test_an_error_of_a_method_that_only_the_object_has_is_one_of_ours() -> None:
    class Lame(Talented):
        def query_by_metadata(self, key: str, value: Any, limit: int) -> list[dict[str, Any]]:
            raise ConnectionError("s3cret")

    with pytest.raises(BackendUnavailableError) as caught:
        await StorageBackendAdapter(Lame()).query_by_metadata("a", 1)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert "s3cret" not in str(caught.value)


async def test_a_cancelled_call_is_cancelled_and_no_outage() -> None:
    class Stuck(AsyncStore):
        async def load(self, key: str) -> dict[str, Any] | None:
            await asyncio.sleep(60)
            return None

    task = asyncio.create_task(StorageBackendAdapter(Stuck()).load("t"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "index",
    [5, [], "x", {}, {"last_seq": 1}, {"last_seq": "x", "checkpoints": []}, {"last_seq": 1, "checkpoints": [{}]}],
    ids=repr,
)
async def test_a_list_of_checkpoints_that_cannot_be_read_is_damage(store: Store, index: Any) -> None:
    store.data["t:_checkpoints"] = index
    cp = StorageBackendAdapter(store)
    with pytest.raises(CorruptCheckpointError):
        await cp.load("t")
    with pytest.raises(CorruptCheckpointError):
        await cp.save(AgentState(), "t")
    assert store.data == {"t:_checkpoints": index}


async def test_a_time_that_cannot_be_read_is_damage(cp: StorageBackendAdapter, store: Store) -> None:
    await cp.save(AgentState(), "t")
    store.data["t:_checkpoints"]["checkpoints"][0]["created_at"] = "yesterday"
    with pytest.raises(CorruptCheckpointError):
        await cp.history("t")


@pytest.mark.parametrize("payload", [None, [], "x", 5, {"messages": 7}], ids=repr)
async def test_a_listed_payload_that_is_gone_or_no_state_is_damage(store: Store, payload: Any) -> None:
    cp = StorageBackendAdapter(store)
    saved = await cp.save(AgentState(), "t")
    store.data[f"t:{saved}"] = payload
    with pytest.raises(CorruptCheckpointError):
        await cp.load("t")


async def test_a_thread_with_a_missing_payload_is_not_copied_as_if_it_were_whole(
    cp: StorageBackendAdapter, store: Store
) -> None:
    saved = await cp.save(AgentState(), "t")
    del store.data[f"t:{saved}"]
    with pytest.raises(CheckpointError):
        await cp.copy_thread("t", "copy")
    assert await cp.load("copy") is None


async def test_a_bad_value_is_refused_before_anything_is_written(store: Store) -> None:
    state = AgentState().with_metadata("x", float("nan"))
    with pytest.raises(SerializationError) as caught:
        await StorageBackendAdapter(store).save(state, "t")
    assert caught.value.path == "metadata.x"
    assert store.data == {}


async def test_closing_leaves_the_object_alone() -> None:
    class Closable(SyncStore):
        closed = False

        def close(self) -> None:
            self.closed = True

    store = Closable()
    async with StorageBackendAdapter(store) as cp:
        await cp.save(AgentState(), "t")
    assert not store.closed
    assert await cp.exists("t")


async def test_a_window_of_a_plain_store_is_all_of_it() -> None:
    checkpointer = StorageBackendAdapter(SyncStore())
    state = AgentState().with_messages(Message.user(str(number)) for number in range(9))
    await checkpointer.save(state, "t")
    assert not checkpointer.capabilities.windows
    loaded = await checkpointer.load("t", last=2)
    assert loaded == state
    assert not loaded.omitted


async def test_lists_of_a_plain_store_have_pages_and_prefixes(cp: StorageBackendAdapter) -> None:
    names = ["a/1", "a/2", "a:3", "b"]
    for name in names:
        await cp.save(AgentState().with_message(Message.user(f"about {name}")), name, metadata={"k": "v"})
    assert await cp.list_threads(2, after="a/1") == ["a/2", "a:3"]
    assert await cp.list_threads(prefix="a/") == ["a/1", "a/2"]
    page = await cp.recent_threads(3, titles=True)
    assert [(one.thread_id, one.title) for one in page.threads] == [(name, f"about {name}") for name in names[:0:-1]]
    last = await cp.recent_threads(3, before=page.next)
    assert [one.thread_id for one in last.threads] == ["a/1"]
    assert not last.more
    found = await cp.query_by_metadata("k", "v", prefix="a/")
    assert [one["thread_id"] for one in found] == ["a/2", "a/1"]


async def test_what_only_the_object_can_find_is_cut_to_a_prefix() -> None:
    class Finds(FourMethods):
        def search(self, query: str, limit: int) -> list[dict[str, Any]]:
            return [{"thread_id": f"{'ab'[number % 7 == 0]}/{number}"} for number in range(50)][:limit]

        def list_with_metadata(self, limit: int) -> list[dict[str, Any]]:
            return [{"id": 1}][:limit]

    adapted = StorageBackendAdapter(Finds())
    assert [one["thread_id"] for one in await adapted.search("x", 3, prefix="b/")] == ["b/0", "b/7", "b/14"]
    assert len(await adapted.search("x", 100, prefix="b/")) == 8
    with pytest.raises(CapabilityError, match="does not say of which thread"):
        await adapted.list_with_metadata(prefix="b/")
    with pytest.raises(CapabilityError, match="recent_threads"):
        await adapted.recent_threads()
