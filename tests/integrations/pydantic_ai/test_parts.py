"""A long conversation costs no more than a short one, and its end is read without the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation

from locus.integrations.pydantic_ai import LocusConversationStore
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from tests.integrations.openai_agents.test_parts import Rows
from tests.integrations.pydantic_ai.messages import kept, texts, turn

SHORT, LONG = 10, 200
"""Turns."""


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(monkeypatch)


@pytest.fixture
async def handle(tmp_path: Path, rows: Rows) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(tmp_path / "locus.db", durability="normal") as handle:
        conversations = LocusConversationStore(handle)
        for count in (SHORT, LONG):
            conversation = Conversation(conversation_id=f"{count}")
            for number in range(count):
                conversation.messages += turn(f"{number}")
                await conversations.save(conversation)
        yield handle


async def _appended(conversations: LocusConversationStore, conversation_id: str) -> Any:
    window = await conversations.load(conversation_id, limit=2)
    assert window is not None
    window.messages += turn("new")
    await conversations.save(window)
    return texts(window.messages)[-3:]


async def _regenerated(conversations: LocusConversationStore, conversation_id: str) -> Any:
    """Twice, so that the second one goes on behind a branch."""
    record = await conversations.read_record(conversation_id)
    assert record is not None
    return await kept(conversations, conversation_id, 2)


Work = Callable[[LocusConversationStore, str], Awaitable[Any]]
WORK: dict[str, tuple[Work, Callable[[int], Any]]] = {
    "a window": (lambda store, name: kept(store, name, 3), lambda n: [f"{n - 2}.", f"{n - 1}?", f"{n - 1}."]),
    "no message": (lambda store, name: kept(store, name, 0), lambda _: []),
    "the record": (_regenerated, lambda n: [f"{n - 1}?", f"{n - 1}."]),
    "a save": (_appended, lambda n: [f"{n - 1}.", "new?", "new."]),
}


async def test_as_many_rows_are_read_of_a_long_conversation_as_of_a_short_one(handle: Checkpointer, rows: Rows) -> None:
    """By stores that know nothing yet."""
    for name, (work, expected) in WORK.items():
        read = []
        for count in (SHORT, LONG):
            before = rows.count
            assert await work(LocusConversationStore(handle), f"{count}") == expected(count), name
            read.append(rows.count - before)
        assert read[0] == read[1] <= 20, f"{name}: {read}"


async def test_an_entry_is_read_without_the_rest(handle: Checkpointer, rows: Rows) -> None:
    read = []
    for count in (SHORT, LONG):
        entries = await LocusConversationStore(handle).load_entries(f"{count}")
        assert entries is not None
        before = rows.count
        for entry in (entries[0], entries[5], entries[-1]):
            assert await LocusConversationStore(handle).read_entry(entry.id) == entry
        read.append(rows.count - before)
    assert read[0] == read[1], read


async def test_every_run_knows_what_precedes_it_though_little_was_read(handle: Checkpointer) -> None:
    await _appended(LocusConversationStore(handle), f"{SHORT}")
    stored = await handle.store.read(f"{SHORT}", None, "pydantic-ai")
    assert stored is not None
    newest = sorted((run for runs in stored.runs.values() for run in runs), key=lambda run: run.number)[-4:]
    assert all(run.before for run in newest)
    (branch,) = (name for name in stored.runs if not name.startswith("#"))
    assert [run.number for run in stored.runs[branch]] == list(range(SHORT + 1))
