"""What a session store of ours does beyond the SDK's contracts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    InMemorySessionStore,
    SessionStore,
    delete_session_via_store,
    fold_session_summary,
    fork_session_via_store,
    get_session_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    rename_session_via_store,
)
from claude_agent_sdk.types import SessionKey

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.claude_agent_sdk import (
    NAMESPACE,
    LocusSessionStore,
    SessionStoreClosedError,
)
from locus.integrations.claude_agent_sdk.transcript import Transcript
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog, logged_notes
from locus.memory.model.parts import Part
from locus.memory.model.records import Commit, Outcome, Stored
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from locus.testing.stores import TestStore
from tests.integrations.claude_agent_sdk.entries import (
    KEY,
    OTHER,
    PROJECT,
    SESSION,
    SUBAGENT,
    entries,
    entry,
    numbered,
    untimed,
)


class Watched(MemoryEngine):
    """Counts what it is asked to read, and remembers what it is asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.commits: list[Commit] = []

    async def commit(self, commit: Commit) -> Outcome:
        outcome = await super().commit(commit)
        self.commits += [commit] if outcome.is_written else []
        return outcome

    async def read(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Stored | None:
        self.reads += 1
        return await super().read(thread_id, namespace, checkpoint_id)

    async def read_part(self, thread_id: str, namespace: str, checkpoint_id: str | None, part: Part) -> Stored | None:
        self.reads += 1
        return await super().read_part(thread_id, namespace, checkpoint_id, part)


def summary_in(commit: Commit) -> Any:
    """The summary in the notes that a commit has made."""
    notes = logged_notes(commit.metadata)
    assert notes is not None
    return notes.get("summary")


@pytest.fixture
def engine() -> Watched:
    return Watched()


@pytest.fixture
def cold(engine: Watched) -> Any:
    """Makes a session store that knows nothing yet."""
    return lambda: LocusSessionStore(StorageBackend(CheckpointStore(engine)))


async def test_a_batch_that_is_sent_again_is_there_once(handle: Checkpointer) -> None:
    one, another = LocusSessionStore(handle), LocusSessionStore(handle)
    for store in (one, one, another):
        await store.append(KEY, entries(0, 1, 2))
    assert await one.load(KEY) == entries(0, 1, 2)
    assert len(await one.history(KEY)) == 1
    await another.append(KEY, entries(1, 2, 3))
    await one.append(KEY, untimed(1, 2))
    await LocusSessionStore(handle).append(KEY, [*untimed(2), *entries(0), *untimed(3, 3)])
    assert await one.load(KEY) == [*entries(0, 1, 2, 3), *untimed(1, 2, 3)]


async def test_the_sdks_own_store_keeps_a_batch_as_often_as_it_is_sent() -> None:
    """What the page says of it."""
    store = InMemorySessionStore()
    for _ in range(3):
        await store.append(KEY, entries(0))
    assert len(await store.load(KEY) or ()) == 3


async def test_entries_without_a_uuid_are_added_each_time(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    mode: Any = {"type": "mode", "mode": "plan"}
    for _ in range(2):
        await store.append(KEY, [*entries(0), mode])
    assert await store.load(KEY) == [*entries(0), mode, mode]


async def test_the_same_batches_from_many_at_once_are_there_once(handle: Checkpointer) -> None:
    stores = [LocusSessionStore(handle) for _ in range(4)]
    batches = [entries(number, number + 1) for number in range(0, 12, 2)]
    await asyncio.gather(*(store.append(KEY, batch) for batch in batches for store in stores))
    kept = numbered(await stores[0].load(KEY))
    assert sorted(kept) == list(range(12))
    assert all(second == first + 1 for first, second in zip(kept[::2], kept[1::2], strict=True))  # batches are whole
    assert len(await stores[0].history(KEY, None)) == 6


async def test_an_append_reads_nothing_and_writes_what_is_new(engine: Watched, cold: Any) -> None:
    warm = cold()
    for turn in range(300):
        await (warm if turn % 2 else cold()).append(KEY, entries(2 * turn, 2 * turn + 1))
        await (warm if turn % 2 else cold()).append(KEY, entries(2 * turn, 2 * turn + 1))  # which is the same again
    assert engine.reads == 0
    assert len(engine.commits) == 300
    sizes = [sum(len(run.items) for run in commit.runs) + len(commit.metadata) for commit in engine.commits]
    assert sizes[-1] <= sizes[20] + 20
    assert numbered(await cold().load(KEY)) == list(range(600))


async def test_a_transcript_is_read_once_if_there_is_doubt(engine: Watched, cold: Any) -> None:
    for turn in range(10):
        await cold().append(KEY, entries(2 * turn, 2 * turn + 1))
    again = cold()
    for turn in range(10):
        await again.append(KEY, entries(2 * turn, 2 * turn + 1))
    assert engine.reads == 1
    assert len(engine.commits) == 10
    for turn in range(5):
        await again.append(KEY, untimed(turn))
    assert engine.reads == 1  # it has followed the transcript since
    late = [entry(30, uuid="another"), entry(3, uuid="behind the others")]
    await again.append(KEY, late)
    assert (await again.load(KEY))[-2:] == late


async def test_what_somebody_else_has_put_into_a_transcript_counts(engine: Watched, cold: Any) -> None:
    await ItemLog(CheckpointStore(engine), f"{PROJECT}/{SESSION}", NAMESPACE).append(entries(0, 1))
    store = cold()
    assert await store.list_session_summaries(PROJECT) == []
    await store.append(KEY, entries(1, 2))
    assert await store.load(KEY) == entries(0, 1, 2)
    (summary,) = await store.list_session_summaries(PROJECT)
    assert summary["data"] == fold_session_summary(None, KEY, entries(0, 1, 2))["data"]


async def test_the_summary_is_that_of_all_entries_in_their_order(handle: Checkpointer) -> None:
    stores = [LocusSessionStore(handle) for _ in range(3)]
    titles = [entry(number, customTitle=f"title {number}", type="custom-title") for number in range(12)]
    await stores[0].append(KEY, entries(100))
    await asyncio.gather(*(stores[number % 3].append(KEY, [one, one]) for number, one in enumerate(titles)))
    await stores[1].append(SUBAGENT, [entry(0, customTitle="not of the session")])
    kept: Any = await stores[0].load(KEY)
    (summary,) = await stores[2].list_session_summaries(PROJECT)
    assert summary["data"] == fold_session_summary(None, KEY, kept)["data"]
    assert summary["data"]["custom_title"] == kept[-1]["customTitle"]
    (listed,) = await stores[2].list_sessions(PROJECT)
    assert listed == {"session_id": SESSION, "mtime": summary["mtime"]}


async def test_a_summary_that_is_too_large_is_left_out_and_the_sdk_reads_the_session(
    handle: Checkpointer, tmp_path: Path
) -> None:
    store = LocusSessionStore(handle)
    key: SessionKey = {"project_key": project_key_for_directory(str(tmp_path)), "session_id": SESSION}
    await store.append(key, [entry(0, "A question"), entry(1, customTitle="x" * 10_000)])
    await store.append(key, entries(2))
    assert await store.list_session_summaries(key["project_key"]) == []
    (found,) = await list_sessions_from_store(store, str(tmp_path))
    assert found.first_prompt == "A question"


async def test_an_entry_that_the_sdk_cannot_fold_is_kept(engine: Watched) -> None:
    def fold(_data: dict[str, Any] | None, entries: Sequence[Any]) -> dict[str, Any]:
        return {"sum": sum(each["n"] for each in entries)}

    transcript = Transcript(ItemLog(CheckpointStore(engine), "thread", "ns"), fold)
    await transcript.append([{"n": 1}])
    assert summary_in(engine.commits[-1]) == {"sum": 1}
    for odd in ({"n": "x"}, {"n": 2}):
        await transcript.append([odd])
        assert summary_in(engine.commits[-1]) is None
    assert await transcript.log.read() == [{"n": 1}, {"n": "x"}, {"n": 2}]


async def test_times_are_those_of_the_store(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    before = int(time.time() * 1000)
    await store.append(KEY, [entry(0, timestamp="2999-01-01T00:00:00.000Z")])
    await store.append(SUBAGENT, entries(1))
    (listed,) = await store.list_sessions(PROJECT)
    assert before <= listed["mtime"] < before + 3_600_000
    times = [listed["mtime"]]
    for number in range(5):  # one after the other, and so are their times
        await store.append({**KEY, "session_id": f"s{number}"}, entries(1))
        found = {one["session_id"]: one["mtime"] for one in await store.list_sessions(PROJECT)}
        times.append(found[f"s{number}"])
    assert times == sorted({*times})
    (point,) = await store.history(KEY)
    await store.rewind(KEY, point.checkpoint_id)
    found = {one["session_id"]: one["mtime"] for one in await store.list_sessions(PROJECT)}
    assert found[SESSION] >= listed["mtime"]


async def test_a_session_is_listed_if_its_main_transcript_has_entries(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    await store.append(SUBAGENT, entries(0))
    assert await store.list_sessions(PROJECT) == []
    assert await store.list_session_summaries(PROJECT) == []
    assert await store.list_subkeys(KEY) == ["subagents/agent-1"]
    await store.append(KEY, entries(1))
    await store.append(SUBAGENT, entries(2))
    assert [one["session_id"] for one in await store.list_sessions(PROJECT)] == [SESSION]


async def test_a_list_of_more_sessions_than_a_page_has(monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocusSessionStore(MemoryCheckpointer())
    keys: list[SessionKey] = [{"project_key": PROJECT, "session_id": f"session {number}"} for number in range(7)]
    for key in keys:
        await store.append(key, entries(0))
    await store.append({**keys[0], "subpath": "s"}, entries(1))
    before = await store.list_sessions(PROJECT)
    pages = CheckpointStore.newest_threads

    async def small_pages(self: CheckpointStore, _limit: Any, before: Any = None, prefix: str = "") -> Any:
        assert before is None
        return await pages(self, 3, None, prefix)

    monkeypatch.setattr(CheckpointStore, "newest_threads", small_pages)
    assert sorted(map(str, await store.list_sessions(PROJECT))) == sorted(map(str, before))
    assert len(before) == 7


async def test_deleting_a_session_takes_its_subagents_along_in_one_step(
    handle: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocusSessionStore(handle)
    steps: list[str | None] = []
    delete = CheckpointStore.delete

    async def counted(self: CheckpointStore, thread_id: str, checkpoint_id: str | None, namespace: str | None) -> bool:
        steps.append(namespace)
        return await delete(self, thread_id, checkpoint_id, namespace)

    monkeypatch.setattr(CheckpointStore, "delete", counted)
    others: SessionKey = {**KEY, "session_id": OTHER}
    for key in (KEY, SUBAGENT, others):
        await store.append(key, entries(0))
    await store.delete(KEY)
    assert steps == [None]
    assert (await store.load(KEY), await store.load(SUBAGENT), await store.list_subkeys(KEY)) == (None, None, [])
    assert [one["session_id"] for one in await store.list_sessions(PROJECT)] == [OTHER]
    await store.append(KEY, entries(0))
    assert await store.load(KEY) == entries(0)
    assert len(await store.history(KEY)) == 1


async def test_what_a_thread_has_of_others_stays_when_its_session_is_deleted(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    await store.append(KEY, entries(0))
    await store.append(SUBAGENT, entries(1))
    state = AgentState().with_message(Message.user("of an agent of ours"))
    await handle.save(state, f"{PROJECT}/{SESSION}")
    await store.delete(KEY)
    assert (await store.load(KEY), await store.load(SUBAGENT)) == (None, None)
    assert await handle.load(f"{PROJECT}/{SESSION}") == state


async def test_projects_sessions_and_prefixes_are_kept_apart(handle: Checkpointer) -> None:
    places: list[tuple[str, SessionKey]] = [
        ("", {"project_key": "a", "session_id": "b/c"}),
        ("", {"project_key": "a/b", "session_id": "c"}),
        ("", {"project_key": "a%2Fb", "session_id": "c"}),
        ("", {"project_key": "a", "session_id": "b%2Fc"}),
        ("", {"project_key": "a", "session_id": "b"}),
        ("", {"project_key": "a", "session_id": "b", "subpath": "c"}),
        ("", {"project_key": "A", "session_id": "b"}),
        ("a/", {"project_key": "b", "session_id": "c"}),
        ("", {"project_key": "x" * 250, "session_id": "c"}),
        ("", {"project_key": "x" * 249 + "y", "session_id": "c"}),
    ]
    for number, (prefix, key) in enumerate(places):
        await LocusSessionStore(handle, prefix=prefix).append(key, entries(number))
    for number, (prefix, key) in enumerate(places):
        assert await LocusSessionStore(handle, prefix=prefix).load(key) == entries(number)
    store = LocusSessionStore(handle)
    for project, sessions in {"a": ["b", "b%2Fc", "b/c"], "a/b": ["c"], "b": [], "x" * 250: ["c"]}.items():
        assert sorted(one["session_id"] for one in await store.list_sessions(project)) == sessions
    (tenant,) = await LocusSessionStore(handle, prefix="a/").list_sessions("b")
    assert tenant["session_id"] == "c"
    assert [each for each in await handle.list_threads(pattern="a/*") if each == "a/b/c"] == ["a/b/c"]


@pytest.mark.parametrize(
    "key",
    [
        {"project_key": "", "session_id": "s"},
        {"project_key": "p", "session_id": ""},
        {"project_key": "p"},
        {"project_key": 5, "session_id": "s"},
        {"project_key": "p", "session_id": "s" * 255},
        {"project_key": "p", "session_id": "\ud800"},
        {"project_key": "p", "session_id": "s", "subpath": ""},
        {"project_key": "p", "session_id": "s", "subpath": "s" * 255},
    ],
)
async def test_keys_that_cannot_be_kept_are_refused(key: Any) -> None:
    store = LocusSessionStore(MemoryCheckpointer())
    for call in (store.append(key, entries(0)), store.load(key), store.delete(key), store.history(key)):
        with pytest.raises(InvalidIdError, match=r"characters|empty|must be a str|surrogate"):
            await call


async def test_what_json_cannot_hold_is_refused_as_a_whole(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    with pytest.raises(SerializationError):
        await store.append(KEY, [*entries(0), entry(1, odd={1, 2})])
    with pytest.raises(ConfigurationError, match="is a dict"):
        await store.append(KEY, [*entries(0), "text"])  # type: ignore[list-item]
    await store.append(KEY, [])
    assert await store.load(KEY) is None


async def test_the_last_entries_are_read_without_the_others(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    for number in range(8):
        await store.append(KEY, entries(number))
    assert await store.load(KEY, last=3) == entries(5, 6, 7)
    assert await store.load(KEY, last=100) == entries(*range(8))
    assert await store.load(SUBAGENT, last=3) is None
    with pytest.raises(ConfigurationError, match="from 1 on"):
        await store.load(KEY, last=0)


async def test_history_and_going_back(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    for number in range(3):
        await store.append(KEY, [entry(number, customTitle=f"title {number}")])
    points = await store.history(KEY)
    assert [(point.items, point.change) for point in points] == [(3, "add"), (2, "add"), (1, "add")]
    view = store.at(KEY, points[-1].checkpoint_id)
    assert numbered(await view.load()) == [0]
    assert await view.load(SUBAGENT) is None
    with pytest.raises(ConflictError, match="fork it"):
        await view.append(KEY, entries(7))
    await store.rewind(KEY, points[1].checkpoint_id)
    assert numbered(await store.load(KEY)) == [0, 1]
    (summary,) = await store.list_session_summaries(PROJECT)
    assert summary["data"]["custom_title"] == "title 1"
    for writer in (store, LocusSessionStore(handle)):
        await writer.append(KEY, [entry(1), entry(2, customTitle="title 2")])
    assert numbered(await store.load(KEY)) == [0, 1, 2]
    assert [point.change for point in await store.history(KEY)] == ["add", "rewind", "add", "add", "add"]
    assert numbered(await store.at(KEY, points[0].checkpoint_id).load(last=1)) == [2]
    with pytest.raises(CheckpointNotFoundError):
        await store.rewind(KEY, "nowhere")
    with pytest.raises(CheckpointNotFoundError):
        await store.at(KEY, "nowhere").load()


async def test_a_fork_from_any_point(handle: Checkpointer) -> None:
    store = LocusSessionStore(handle)
    for number in range(3):
        await store.append(KEY, entries(number))
    await store.append(SUBAGENT, entries(9))
    (_, second, _) = await store.history(KEY)
    forked = await store.fork(KEY, second.checkpoint_id, title="Another way")
    assert forked["project_key"] == PROJECT
    found: list[Any] = await store.load(forked) or []
    assert numbered(found[:2]) == [0, 1]
    assert found[2]["customTitle"] == "Another way"
    assert {each["sessionId"] for each in found} == {forked["session_id"]}
    assert not {each["uuid"] for each in found} & {each["uuid"] for each in entries(0, 1, 2)}
    assert [each["forkedFrom"]["sessionId"] for each in found[:2]] == [SESSION] * 2
    assert len(await store.history(forked)) == 1
    await store.delete(KEY)
    assert len(await store.load(forked) or ()) == 3

    named = await store.fork(forked, new_session_id=OTHER)
    assert named == {"project_key": PROJECT, "session_id": OTHER}
    assert {each["sessionId"] for each in await store.load(named) or ()} == {OTHER}  # type: ignore[typeddict-item]
    with pytest.raises(ConflictError, match="another one"):
        await store.fork(forked, new_session_id=OTHER)
    assert len(await store.history(named)) == 1
    with pytest.raises(CheckpointNotFoundError, match="no entries"):
        await store.fork(KEY)
    with pytest.raises(ValueError, match="Invalid session_id"):
        await store.fork({"project_key": PROJECT, "session_id": "no UUID"})


async def test_the_sdks_functions_for_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, here = tmp_path / "config", str(tmp_path)
    project = project_key_for_directory(here)
    folder = config / "projects" / project
    (folder / SESSION / "subagents").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(config))
    (folder / f"{SESSION}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in entries(*range(5))))
    (folder / SESSION / "subagents" / "agent-7.jsonl").write_text(f"{json.dumps(entry(50))}\n")
    store = LocusSessionStore(MemoryCheckpointer())
    for size in (2, 3):  # the second time, because nobody knows how far the first one came
        await import_session_to_store(SESSION, store, directory=here, batch_size=size)
    key: SessionKey = {"project_key": project, "session_id": SESSION}
    assert await store.load(key) == entries(*range(5))
    assert await list_subagents_from_store(store, SESSION, here) == ["7"]
    assert len(await get_session_messages_from_store(store, SESSION, here)) == 5
    forked = await fork_session_via_store(store, SESSION, here)
    await rename_session_via_store(store, SESSION, "A better name", here)
    listed = {info.session_id: info.summary for info in await list_sessions_from_store(store, here)}
    assert listed == {SESSION: "A better name", forked.session_id: "text 0 (fork)"}
    await delete_session_via_store(store, SESSION, here)
    assert await store.load(key) is None
    assert await store.load({**key, "subpath": "subagents/agent-7"}) is None


async def test_a_url_is_opened_and_closed_here_and_nothing_else_is(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'agents.db'}"
    async with LocusSessionStore(url, prefix="acme/") as store:
        await store.append(KEY, entries(0))
        assert repr(store) == "LocusSessionStore(SQLiteEngine)"
    for call in (store.append(KEY, []), store.load(KEY), store.delete(KEY), store.list_sessions("x"), store.fork(KEY)):
        with pytest.raises(SessionStoreClosedError, match="make a new"):
            await call
    with pytest.raises(SessionStoreClosedError):
        store.at(KEY, "x")
    async with sqlite_checkpointer(tmp_path / "agents.db") as handle:
        assert await handle.list_threads() == [f"acme/{PROJECT}/{SESSION}"]
        async with LocusSessionStore(handle, prefix="acme/") as again:
            assert await again.load(KEY) == entries(0)
        assert await handle.list_threads() == [f"acme/{PROJECT}/{SESSION}"]
    with pytest.raises(ConfigurationError, match="prefix"):
        LocusSessionStore(url, prefx="acme/")


async def test_a_session_store_has_the_sdks_type(handle: Checkpointer) -> None:
    store: SessionStore = LocusSessionStore(handle)
    assert await store.load(KEY) is None


async def test_notes_go_along_to_another_store(tmp_path: Path) -> None:
    from locus.transfer import copy_store

    source, dest = f"sqlite:{tmp_path / 'a.db'}", f"file:{tmp_path / 'b'}"
    async with LocusSessionStore(source) as store:
        await store.append(KEY, [entry(0, customTitle="kept")])
        await store.append(KEY, entries(1))
        before = await store.list_session_summaries(PROJECT)
    await copy_store(source, dest)
    async with LocusSessionStore(dest) as store:
        assert await store.list_session_summaries(PROJECT) == before
        await store.append(KEY, entries(1, 2))
        assert await store.load(KEY) == [entry(0, customTitle="kept"), *entries(1, 2)]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, handle: Checkpointer) -> None:
    from locus.integrations.claude_agent_sdk import store as module

    monkeypatch.setattr(module, "_MOST_TRANSCRIPTS", 3)
    monkeypatch.setattr(module, "_MOST_UUIDS", 10)
    store = LocusSessionStore(handle)
    for turn in range(3):
        for number in range(5):
            await store.append(
                {"project_key": PROJECT, "session_id": f"s{number}"}, entries(*range(turn * 3, turn * 3 + 4))
            )
            assert len(store._followed) <= 3
            assert sum(each.held for each in store._followed.values()) <= 10 or len(store._followed) == 1
    for number in range(5):
        assert await store.load({"project_key": PROJECT, "session_id": f"s{number}"}) == entries(*range(10))


async def test_on_a_server(server_store: TestStore) -> None:
    """What a server could get wrong: notes in the metadata, and a thread with several namespaces."""
    async with server_store.open() as one, server_store.open() as another:
        first, second = LocusSessionStore(one), LocusSessionStore(another)
        odd = entry(0, "A \x00 and \u2028, ' \" \\ and 😀", customTitle="\x00 \\u0000 ' \" 😀")
        await first.append(KEY, [odd])
        batches = [entries(number, number + 1) for number in range(1, 9, 2)]
        await asyncio.gather(*(store.append(KEY, batch) for batch in batches for store in (first, second)))
        kept: Any = await second.load(KEY)
        assert kept[0] == odd
        assert sorted(numbered(kept[1:])) == list(range(1, 9))
        other: SessionKey = {**KEY, "subpath": "subagents/ä/agent-2"}
        for key in (SUBAGENT, other):
            await second.append(key, entries(20))
        assert sorted(await first.list_subkeys(KEY)) == ["subagents/agent-1", "subagents/ä/agent-2"]
        (summary,) = await LocusSessionStore(one).list_session_summaries(PROJECT)
        assert summary["data"] == fold_session_summary(None, KEY, kept)["data"]
        points = await first.history(KEY, None)
        assert [point.items for point in points] == [9, 7, 5, 3, 1]
        await second.rewind(KEY, points[-1].checkpoint_id)
        await first.append(KEY, entries(1))
        assert await second.load(KEY) == [odd, *entries(1)]
        await first.delete(KEY)
        assert await second.list_sessions(PROJECT) == []
        assert await second.list_subkeys(KEY) == []


@pytest.mark.parametrize("url", ["memory", "sqlite:{}/a.db", "file:{}/files", "http://127.0.0.1:1", "s3://bucket"])
@pytest.mark.parametrize("call", ["append", "load", "list_sessions"])
def test_without_asyncio_a_call_says_what_is_missing(url: str, call: str, tmp_path: Path) -> None:
    """As under trio: whoever runs the coroutine is no event loop of asyncio."""
    sessions: Any = LocusSessionStore(url.format(tmp_path))
    key = {"project_key": "p", "session_id": "s"}
    arguments = {"append": (key, [{"type": "user", "uuid": "a"}]), "load": (key,), "list_sessions": ("p",)}
    running = getattr(sessions, call)(*arguments[call])
    with pytest.raises(ConfigurationError, match="Under trio, run the program with asyncio"):
        running.send(None)
