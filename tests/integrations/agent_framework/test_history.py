"""What the framework asks of a history provider, by its docstrings and its file history, and what ours adds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Content, FileHistoryProvider, Message
from agent_framework._sessions import filter_new_messages
from hypothesis import given
from hypothesis import strategies as st

from locus.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    InvalidIdError,
    SerializationError,
)
from locus.integrations.agent_framework import ClosedError, LocusHistoryProvider
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog
from tests.integrations.agent_framework.models import texts


def said(*words: str, role: str = "user", ids: bool = False) -> list[Message]:
    return [Message(role, [word], message_id=f"id-{word}" if ids else None) for word in words]


RICH = [
    Message("system", ["Be kind."]),
    Message("user", ["Hello 😀 \x00", Content.from_uri("https://example.com/a.png", media_type="image/png")]),
    Message("assistant", [Content.from_function_call("c1", "add", arguments={"a": 1})], author_name="clerk"),
    Message("tool", [Content.from_function_result("c1", result="2")]),
    Message("assistant", ["It is 2."], message_id="m1", additional_properties={"n": [1, None, {"x": 0.5}]}),
    Message("assistant", []),
]


async def test_messages_come_back_as_they_were(store: Checkpointer) -> None:
    provider = LocusHistoryProvider(store)
    assert await provider.get_messages("alice") == []
    await provider.save_messages("alice", RICH)
    for reader in (provider, LocusHistoryProvider(store)):
        found = await reader.get_messages("alice", state={})
        assert [message.to_dict() for message in found] == [message.to_dict() for message in RICH]
    await provider.save_messages("alice", [])
    assert len(await provider.history("alice")) == 1


async def test_no_session_is_the_session_of_the_file_history(store: Checkpointer, tmp_path: Path) -> None:
    theirs = FileHistoryProvider(tmp_path / "history")
    ours = LocusHistoryProvider(store)
    for provider in (theirs, ours):
        await provider.save_messages(None, said("a"))
    assert texts(await ours.get_messages("default")) == texts(await theirs.get_messages("default")) == ["a"]


@pytest.mark.parametrize("bad", ["", "x" * 256, "\ud800", 7])
async def test_an_id_that_cannot_be_kept_is_refused(store: Checkpointer, bad: Any) -> None:
    provider = LocusHistoryProvider(store)
    with pytest.raises(InvalidIdError):
        await provider.save_messages(bad, said("a"))
    with pytest.raises(InvalidIdError):
        await provider.get_messages(bad)


async def test_what_json_does_not_have_is_refused_and_nothing_is_written(store: Checkpointer) -> None:
    provider = LocusHistoryProvider(store)
    odd = Message("user", ["x"], additional_properties={"n": float("nan")})
    with pytest.raises(SerializationError):
        await provider.save_messages("alice", [*said("a"), odd])
    assert await provider.get_messages("alice") == []


WORDS = st.sampled_from("ab")
MESSAGES = st.lists(
    st.builds(
        lambda word, role, has_id: Message(role, [word], message_id=word if has_id else None),
        WORDS,
        st.sampled_from(["user", "assistant"]),
        st.booleans(),
    ),
    max_size=6,
)


@given(MESSAGES, MESSAGES)
def test_the_frameworks_rule_needs_no_more_of_the_end_than_it_is_given(
    existing: list[Message], incoming: list[Message]
) -> None:
    """So an append may be decided by the newest messages, as many as are handed over, or more."""
    whole = filter_new_messages(existing, incoming)
    for length in range(len(incoming), len(existing) + 1):
        end = existing[len(existing) - length :]
        assert filter_new_messages(end, incoming) == whole
    assert whole == incoming[len(incoming) - len(whole) :]


BATCHES: list[list[list[Message]]] = [
    [said("a"), said("a")],
    [said("a", "b"), said("a", "b")],
    [said("a", "b"), said("a", "b", "c", "d")],
    [said("a", "b", "c"), said("b", "c", "d")],
    [said("a"), said("a", "b"), said("b")],
    [said("a", ids=True), said("a", ids=True)],
    [said("a", "b", role="assistant"), said("b", role="assistant")],
    [said("a"), said("x", "a", "b")],
]


@pytest.mark.parametrize("batches", BATCHES)
async def test_what_is_handed_over_again_is_kept_as_the_file_history_keeps_it(
    store: Checkpointer, tmp_path: Path, batches: Sequence[list[Message]]
) -> None:
    theirs, ours = FileHistoryProvider(tmp_path / "history"), LocusHistoryProvider(store)
    for batch in batches:
        await theirs.save_messages("alice", batch)
        await ours.save_messages("alice", batch)
        await LocusHistoryProvider(store).save_messages("bob", batch)  # which has to look
    expected = texts(await theirs.get_messages("alice"))
    assert texts(await ours.get_messages("alice")) == expected
    assert texts(await ours.get_messages("bob")) == expected


async def test_a_batch_that_comes_again_late_is_kept_once(store: Checkpointer) -> None:
    provider = LocusHistoryProvider(store)
    await provider.save_messages("alice", said("a", "b", ids=True))
    await provider.save_messages("alice", said("c", ids=True))
    for again in (provider, LocusHistoryProvider(store)):
        await again.save_messages("alice", said("a", "b", ids=True))
    assert texts(await provider.get_messages("alice")) == ["a", "b", "c"]
    other = [Message("user", ["not a"], message_id="id-a"), Message("user", ["b"], message_id="id-b")]
    await provider.save_messages("alice", other)
    assert texts(await provider.get_messages("alice")) == ["a", "b", "c", "not a", "b"], "an id alone says little"
    await provider.save_messages("alice", said("c"))
    assert texts(await provider.get_messages("alice"))[-2:] == ["b", "c"], "without an id it may be said again"


class Reads:
    """Counts what is asked of a log's store."""

    def __init__(self, store: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("entry", "read", "read_part"):
            monkeypatch.setattr(store.store, name, self._counting(name, getattr(store.store, name)))

    def _counting(self, name: str, asked: Any) -> Any:
        async def counted(*given: Any) -> Any:
            self.made.append(name)
            return await asked(*given)

        return counted

    def take(self) -> list[str]:
        made, self.made = self.made, []
        return made


async def test_a_save_reads_nothing_where_the_end_is_known(
    store: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(store, monkeypatch)
    provider = LocusHistoryProvider(store)
    await provider.save_messages("alice", said("a", "b"))
    reads.take()
    await provider.save_messages("alice", said("c", "d"))
    assert reads.take() == []
    fresh = LocusHistoryProvider(store)
    await fresh.get_messages("alice")
    assert len(reads.take()) == 1
    await fresh.save_messages("alice", said("e", "f"))
    assert reads.take() == []
    await provider.save_messages("alice", said("g"))  # another was faster: looked at anew
    assert texts(await provider.get_messages("alice")) == list("abcdefg")


async def test_handles_of_sessions_do_not_pile_up(store: Checkpointer) -> None:
    provider = LocusHistoryProvider(store)
    for number in range(270):
        await provider.get_messages(f"session {number}")
    assert provider._store._logs.cache_info().currsize == 256
    await provider.save_messages("alice", [Message("user", ["x" * 200_000])])
    checkpoint = provider._log("alice")._latest
    assert checkpoint is not None
    assert checkpoint.tail == ()


async def test_a_limit_shows_the_newest_and_no_result_without_its_call(store: Checkpointer) -> None:
    await LocusHistoryProvider(store).save_messages("alice", RICH)
    for limit, expected in [
        (2, ["It is 2.", ""]),
        (3, ["It is 2.", ""]),
        (4, ["call add", "result 2", "It is 2.", ""]),
    ]:
        assert texts(await LocusHistoryProvider(store, limit=limit).get_messages("alice")) == expected
    provider = LocusHistoryProvider(store)
    assert texts(await provider.get_messages("alice", limit=3)) == ["result 2", "It is 2.", ""], "as it was asked for"
    assert await provider.get_messages("alice", limit=0) == []
    with pytest.raises(ConfigurationError):
        LocusHistoryProvider(store, limit=-1)


async def test_excluded_messages_are_left_out_if_that_is_wanted(store: Checkpointer) -> None:
    messages = [Message("user", ["a"], additional_properties={"_excluded": True}), *said("b")]
    await LocusHistoryProvider(store).save_messages("alice", messages)
    assert texts(await LocusHistoryProvider(store).get_messages("alice")) == ["a", "b"]
    assert texts(await LocusHistoryProvider(store, skip_excluded=True).get_messages("alice")) == ["b"]


async def test_batches_of_many_writers_stay_whole(store: Checkpointer) -> None:
    providers = [LocusHistoryProvider(store) for _ in range(4)]
    batches = [said(f"{number} first", f"{number} second") for number in range(16)]
    await asyncio.gather(*(providers[number % 4].save_messages("alice", batch) for number, batch in enumerate(batches)))
    kept = texts(await providers[0].get_messages("alice"))
    assert sorted(kept) == sorted(text for batch in batches for text in texts(batch))
    assert [text.split()[0] for text in kept[::2]] == [text.split()[0] for text in kept[1::2]]


async def test_history_fork_and_going_back(store: Checkpointer) -> None:
    provider = LocusHistoryProvider(store)
    for word in "abc":
        await provider.save_messages("alice", said(word))
    points = await provider.history("alice")
    assert [(point.items, point.change) for point in points] == [(3, "add"), (2, "add"), (1, "add")]
    second = points[1].checkpoint_id
    assert texts(await provider.get_messages("alice", checkpoint_id=second)) == ["a", "b"]
    assert [point.items for point in await provider.history("alice", 1, before=second)] == [1]
    await provider.fork("alice", "bob", second)
    await provider.save_messages("bob", said("d"))
    await provider.rewind("alice", second)
    await provider.save_messages("alice", said("e"))
    assert texts(await provider.get_messages("alice")) == ["a", "b", "e"]
    assert texts(await provider.get_messages("bob")) == ["a", "b", "d"]
    assert await provider.list_sessions() == ["alice", "bob"]
    with pytest.raises(ConflictError):
        await provider.fork("alice", "bob")
    for nothing in ("nobody", "alice"):
        with pytest.raises(CheckpointNotFoundError):
            await provider.fork(nothing, "new", None if nothing == "nobody" else "no such point")
    with pytest.raises(CheckpointNotFoundError):
        await provider.rewind("alice", "no such point")
    await provider.delete("alice")
    assert await provider.get_messages("alice") == []
    assert texts(await provider.get_messages("bob")) == ["a", "b", "d"]
    assert await provider.list_sessions() == ["bob"]


async def test_something_else_in_the_thread_is_told_without_its_content(store: Checkpointer) -> None:
    provider = LocusHistoryProvider(store)
    for odd in ({"type": "secret", "role": "user"}, ["secret"], "secret"):
        log = ItemLog(store.store, "alice", "agent-framework")
        await log.delete()
        await log.append([odd])
        with pytest.raises(CorruptCheckpointError, match="no message of the Agent Framework") as told:
            await provider.get_messages("alice")
        assert "secret" not in str(told.value)
        assert "alice" not in str(told.value)


async def test_a_store_is_closed_by_who_opened_it(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'a.db'}"
    async with LocusHistoryProvider(url, ttl_seconds=3600) as provider:
        await provider.save_messages("alice", said("a"))
    with pytest.raises(ClosedError, match="make a new LocusHistoryProvider"):
        await provider.get_messages("alice")
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        async with LocusHistoryProvider(store) as borrowed:
            assert texts(await borrowed.get_messages("alice")) == ["a"]
        assert await store.list_threads() == ["alice"]
    assert repr(provider) == "LocusHistoryProvider(SQLiteEngine)"
    with pytest.raises(ConfigurationError, match="the options are: source_id, "):
        LocusHistoryProvider(url, no_such_option=1)
