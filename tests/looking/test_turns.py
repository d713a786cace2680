"""Turns and previews of real threads, one of each framework, and what it costs to read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.looking.deltas import added_messages, delta_messages
from locus.looking.previews import Facts, Kind, facts_of, first_words, previews_of
from locus.looking.reading import conversation, read_whole
from locus.looking.saves import saves_of
from locus.looking.turns import Save, Status, Turn, turns_of
from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.memory import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.conversations import utterance_of
from locus.memory.engine import Engine
from tests.looking.stories import PRICES, QUESTIONS, STORIES, WAITING, WITHOUT_TOOLS
from tests.server.inspector.asked import Asked

CALL = '→ get_price("Peak")'


@pytest_asyncio.fixture
async def store(told: Path) -> AsyncIterator[Checkpointer]:
    async with sqlite_checkpointer(told) as store:
        yield store


async def saves_in(store: Checkpointer, thread_id: str, count: int | None = None) -> list[Save]:
    return await saves_of(store.store, await store.store.history(thread_id, count, None, None))


async def turns_in(store: Checkpointer, thread_id: str) -> list[Turn]:
    return turns_of(await saves_in(store, thread_id))


@pytest.mark.parametrize("thread_id", STORIES)
async def test_a_thread_of_every_framework_is_turns(store: Checkpointer, thread_id: str) -> None:
    turns = await turns_in(store, thread_id)
    said = [[preview.line for preview in turn.previews if preview.text != "I look."] for turn in turns]
    assert said == [
        [question, *([] if thread_id in WITHOUT_TOOLS else [CALL, f"← {price}"]), f"The Peak jacket costs {price}."]
        for question, price in zip(QUESTIONS, PRICES, strict=True)
    ]
    assert [turn.status for turn in turns] == [Status.ANSWERED, Status.ANSWERED]
    assert [(turn.question or turn.previews[1]).text for turn in turns] == [*QUESTIONS]
    assert [turn.answer.text for turn in turns if turn.answer] == [
        "The Peak jacket costs 89.90.",
        "The Peak jacket costs 8.99.",
    ]


@pytest.mark.parametrize("thread_id", WAITING)
async def test_a_turn_that_waits_for_a_person_says_so(store: Checkpointer, thread_id: str) -> None:
    (turn,) = await turns_in(store, thread_id)
    assert (turn.status, turn.answer) == (Status.WAITING, None)
    (asked,) = [preview for preview in turn.previews if preview.kind is Kind.WAITS]
    assert asked.line == f"◷ waits for a person: {'May I look the price up?' if 'graph' in thread_id else CALL[2:]}"


async def test_numbers_are_those_that_were_recorded(store: Checkpointer) -> None:
    facts = {name: (await turns_in(store, name))[0].facts for name in STORIES}
    assert facts["langgraph"] == Facts(tokens=240, model="gpt-x")
    assert facts["p/claude"] == Facts(tokens=240, model="claude-x")
    assert facts["shop/alice/adk"].tokens == 240
    assert facts["agent"].tokens == 88
    assert facts["agent"].seconds is not None
    assert facts["openai"] == Facts()


@pytest.mark.parametrize("count", [10, 10_000])
async def test_a_page_takes_as_many_reads_however_long_the_thread_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    reads: Counter[str] = Counter()
    async with MemoryCheckpointer() as store:
        state = AgentState()
        for number in range(count):
            state = state.with_message(Message.user(f"Question {number}"))
            await store.save(state, "long")
        entries = await store.store.history("long", 50, None, None)
        engine = store.store.engine
        for name in ("read", "read_part", "export", "manifest", "history", "entry", "get_writes"):
            _count(monkeypatch, engine, name, reads)
        saves = await saves_of(store.store, entries)
    assert [save.lines for save in saves] == [[f"Question {count - 1 - at}"] for at in range(min(50, count))]
    assert reads == {"export": 1} | ({"read_part": 1} if count > 50 else {})


def _count(monkeypatch: pytest.MonkeyPatch, engine: Engine, name: str, reads: Counter[str]) -> None:
    method: Callable[..., Any] = getattr(engine, name)

    async def counted(*given: Any, **named: Any) -> Any:
        reads[name] += 1
        return await method(*given, **named)

    monkeypatch.setattr(engine, name, counted)


async def test_a_fork_is_a_turn_of_its_own(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        asked = AgentState().with_message(Message.user("How much?"))
        await store.save(asked, "t", "asked")
        await store.save(asked.with_message(Message.assistant("8.99")), "t", "wrong")
        again = await store.load("t", "asked")
        assert again is not None
        await store.save(again.with_message(Message.assistant("89.90")), "t", "right")
        first, fork = await turns_in(store, "t")
    assert (first.forked_from, [save.entry.checkpoint_id for save in first.saves]) == (None, ["asked", "wrong"])
    assert (fork.forked_from, [preview.line for preview in fork.previews]) == ("asked", ["89.90"])
    assert (fork.question, fork.status) == (None, Status.ANSWERED)


async def test_silence_is_death_after_a_while_or_when_somebody_goes_on(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        state = AgentState().with_message(Message.user("One?"))
        await store.save(state, "t")
        saves = await saves_in(store, "t")
        now = datetime.now(UTC)
        assert [turn.status for turn in turns_of(saves, now)] == [Status.UNDER_WAY]
        assert [turn.status for turn in turns_of(saves, now + timedelta(hours=1))] == [Status.KILLED]
        assert [turn.status for turn in turns_of(saves, now, newest=False)] == [None]
        call = Message.assistant(None, [ToolCall(id="c", name="f")])
        await store.save(state.with_messages([call, Message.user("Two?")]), "t")
        first, second = turns_of(await saves_in(store, "t"), now)
    assert (first.status, second.status) == (Status.KILLED, Status.UNDER_WAY)


async def test_errors_are_errors(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as store:
        call = ToolCall(id="c", name="get_price", arguments={"of": "Peak", "in": "EUR"})
        result = ToolResult(tool_call_id="c", name="get_price", error="timeout after 5 s")
        state = AgentState().with_messages(
            [Message.user("How much?"), Message.assistant(None, [call]), Message.tool(result)]
        )
        await store.save(state, "t", metadata={"status": "running"})
        await store.save(state.with_error("the model is gone"), "t", metadata={"status": "failed"})
        saves = await saves_in(store, "t")
    assert saves[1].lines == ["How much?", '→ get_price(of="Peak", in="EUR")  ✗ Error: timeout after 5 s']
    assert saves[0].lines == ["✗ the model is gone"]
    assert [turn.status for turn in turns_of(saves)] == [Status.FAILED]


async def test_a_page_in_the_middle_shows_what_its_saves_added(store: Checkpointer) -> None:
    entries = (await store.store.history("langgraph-deltas", None, None, None))[2:5]
    saves = await saves_of(store.store, entries)
    assert [save.lines for save in saves] == [[CALL], [QUESTIONS[1]], []]


async def test_a_conversation_in_deltas_has_a_title_and_marks_what_came(store: Checkpointer) -> None:
    recent = await store.recent_threads(titles=True)
    titles = {thread.thread_id: thread.title for thread in recent.threads}
    assert titles["langgraph-deltas"] == titles["langgraph"] == QUESTIONS[0]
    saves = await saves_in(store, "langgraph-deltas")
    marked = []
    for save in saves:
        entry = save.entry
        page = await Asked(store).page("t", "langgraph-deltas", "c", entry.checkpoint_id, ns=entry.namespace)
        marked.append("added here" in page.main.text)
    assert marked == [save.added > 0 for save in saves]
    assert marked.count(True) >= 6


async def test_a_conversation_in_deltas_is_whole(store: Checkpointer) -> None:
    newest, *_, then, _, _, _, _ = await store.store.history("langgraph-deltas", None, None, None)
    whole, earlier = [await conversation(store.store, entry, 0, 100) for entry in (newest, then)]
    assert whole is not None
    assert earlier is not None
    assert [utterance_of(item).text for item in whole[1].items][::2] == [QUESTIONS[0], "89.90", QUESTIONS[1], "8.99"]
    assert earlier[1].items == whole[1].items[:4]
    assert (await delta_messages(store.store, await read_whole(store.store, newest)))[1:3] == whole[1].items[1:3]


def test_messages_in_deltas_are_replaced_and_removed_as_the_graph_does_it() -> None:
    one, two, other = {"id": "1"}, {"id": "2"}, {"id": "1", "content": "changed"}
    assert added_messages([one], [two, other, {"content": "no id"}]) == [other, two, {"content": "no id"}]
    assert added_messages([one, two], [{"$type": "RemoveMessage", "id": "1"}]) == [two]
    assert added_messages([one, two], [{"$type": "RemoveMessage", "id": "__remove_all__"}, one]) == [one]


def test_an_item_that_says_several_things_has_several_previews() -> None:
    claude = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Which one?"},
            {"type": "text", "text": "Both."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        ],
    }
    results = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
            {"type": "text", "text": "Go on."},
        ],
    }
    assert [preview.line for preview in previews_of(claude)] == ["thinks: Which one?", "Both.", "→ f()"]
    assert [(preview.line, preview.role, preview.call_id) for preview in previews_of(results)] == [
        ("← 1", "tool", "a"),
        ("✗ no", "tool", "b"),
        ("Go on.", "user", None),
    ]


@pytest.mark.parametrize(
    "item",
    [None, 5, "words", [], {}, {"type": ["x"]}, {"content": [None, 7, {"type": {}}]}, {"message": {"parts": [[], 1]}}],
)
def test_any_json_has_previews(item: Any) -> None:
    assert all(preview.line for preview in previews_of(item))
    assert facts_of(item) == Facts()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("You paid **8.99**, and *L* is put `aside`.", "You paid 8.99, and L is put aside."),
        (
            "It costs:\n\n| size | price |\n|---|:--|\n| M | 89.90 |\n\n1. Choose.",
            "It costs: size · price M · 89.90 1. Choose.",
        ),
        ("## Title\n> said [here](https://x.example), ![a map](map.png)\n* one", "Title said here, a map - one"),
        ("```python\nx = 1\n```", "x = 1"),
        ("价格**8.99**元 ***both*** ~~gone~~", "价格8.99元 both gone"),
        ("2 ** 3 * 4, a*b*c, 2**3**4, __init__, ls | wc", "2 ** 3 * 4, a*b*c, 2**3**4, __init__, ls | wc"),
    ],
)
def test_signs_of_markdown_are_left_out_of_a_line(text: str, shown: str) -> None:
    assert [one.line for one in previews_of({"role": "assistant", "content": text})] == [shown]
    result = {"role": "tool", "content": text, "tool_call_id": "1"}
    assert [one.text for one in previews_of(result)] == [first_words(text)]


@pytest.mark.parametrize("sign", ["*", "**", "*a", "**a", "[", "[a](", "|", "| -", "`", "`a", "~~", "#", "- ", "> "])
def test_a_line_of_signs_takes_no_time(sign: str) -> None:
    assert len(first_words(sign * 1_000_000, markdown=True)) <= 200


def test_first_words_are_few() -> None:
    assert first_words("a\n\n b ") == "a b"
    assert first_words("word " * 1_000_000) == f"{'word ' * 39}word…"
    assert len(first_words("x" * 500)) == 200
