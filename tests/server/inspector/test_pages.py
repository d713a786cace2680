"""What the pages show: threads, timelines, checkpoints, differences, hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.engine import Engine
from locus.memory.storage import StorageBackend
from locus.server.auth import Grant
from locus.server.inspector.pages.timeline import PAGE
from tests.server.inspector.asked import Asked, Element, Shown, links

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m\"'&javascript:"
VISIBLE = "<script>alert(1)</script>\\u202e\\x1b[31m\"'&javascript:"


async def _threads(checkpointer: MemoryCheckpointer, count: int) -> None:
    for at in range(count):
        state = AgentState().with_message(Message.user(f"Hello {at}"))
        await checkpointer.save(state, f"t-{at:03}", metadata={"user": f"u{at % 2}"})


async def test_the_newest_threads_come_first_with_what_they_are_about() -> None:
    checkpointer = MemoryCheckpointer()
    await _threads(checkpointer, 60)
    asked = Asked(checkpointer)
    first = await asked.page("threads")
    titles = [one.text for one in first.elements("span", class_="row-title")]
    assert titles == [f"Hello {at}" for at in range(59, 9, -1)]
    (more,) = [one.attributes["href"] for one in first.elements("a", rel="next")]
    second = Shown((await asked.get(more)).text)
    assert [one.text for one in second.elements("span", class_="row-title")] == [
        f"Hello {at}" for at in range(9, -1, -1)
    ]
    assert not second.elements("a", rel="next")


async def test_threads_are_filtered_by_id_and_metadata() -> None:
    checkpointer = MemoryCheckpointer()
    await _threads(checkpointer, 12)
    asked = Asked(checkpointer)

    async def ids(**query: str) -> list[str]:
        shown = await asked.page("threads", **query)
        return [one.text for one in shown.elements("span", class_="row-id")]

    assert await ids(q="-00") == [f"t-{at:03}" for at in range(10)]
    assert await ids(q="t-?11") == ["t-011"]
    assert await ids(meta="user=u1", q="t-00*") == ["t-009", "t-007", "t-005", "t-003", "t-001"]
    assert await ids(order="id", after="t-009") == ["t-010", "t-011"]
    assert await ids(q="nothing") == []
    assert "KEY=VALUE" in (await asked.page("threads", meta="nonsense")).main.text


async def test_an_empty_store_says_what_to_do_next() -> None:
    shown = await Asked(MemoryCheckpointer()).page("threads")
    assert "No threads yet" in shown.main.text
    assert "get_checkpointer" in shown.main.text


async def test_the_timeline_shows_forks_and_what_each_save_added() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState()
    ids: list[str] = []
    for at in range(3):
        state = state.with_messages([Message.user(f"q{at}"), Message.assistant(f"a{at}")])
        ids.append(await checkpointer.save(state, "t"))
    forked = await checkpointer.load("t", ids[0])
    assert forked is not None
    await checkpointer.save(forked.with_message(Message.user("another way")), "t")
    shown = await Asked(checkpointer).page("t", "t")
    names = [one.attributes["aria-label"] for one in shown.has("a", "data-open")]
    assert names == ["Checkpoint 4, fork of 1, latest", "Checkpoint 3", "Checkpoint 2", "Checkpoint 1"]
    rows = [" ".join(one.text.split()) for one in shown.has("li", "data-row")]
    assert "user another way" in rows[0]
    assert "user q2 assistant a2" in rows[1]
    assert [one.attributes["title"] for one in shown.has("a", "data-changes")] == [
        "+1 messages",
        "+2 messages",
        "+2 messages",
    ]
    assert len(shown.elements("rect")) == 1  # the fork has a shape of its own
    assert [one.attributes["aria-hidden"] for one in shown.elements("svg", class_="lanes")] == ["true"]


async def test_a_fork_of_a_checkpoint_on_an_older_page_is_told() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState()
    ids: list[str] = []
    for at in range(3):
        state = state.with_message(Message.user(f"{at}"))
        ids.append(await checkpointer.save(state, "t"))
    first = await checkpointer.load("t", ids[0])
    assert first is not None
    first = first.with_message(Message.user("another way"))
    for at in range(PAGE):
        state = state.with_message(Message.user(f"more {at}"))
        ids.append(await checkpointer.save(state, "t"))
    await checkpointer.save(first, "t")
    asked = Asked(checkpointer)

    async def forks(**query: int) -> list[str]:
        shown = await asked.page("t", "t", **query)
        names = [one.attributes["aria-label"] for one in shown.has("a", "data-open")]
        return [name for name in names if "fork" in name]

    assert await forks() == [f"Checkpoint {PAGE + 4}, fork of 1, latest"]
    # What continues a checkpoint of an older page, and is its only successor, is no fork.
    assert await forks(before=PAGE + 4) == []
    await checkpointer.delete("t", ids[0])
    assert await forks() == []


async def test_ids_that_differ_in_blanks_look_different() -> None:
    checkpointer = MemoryCheckpointer()
    for thread_id in ("a b", "a\nb", "a  b"):
        await checkpointer.save(AgentState().with_message(Message.user("Hello")), thread_id)
    asked = Asked(checkpointer)
    shown = await asked.page("threads")
    assert [one.text for one in shown.elements("span", class_="row-id")] == ["a\\x20\\x20b", "a\\nb", "a b"]
    assert "a\\nb" in (await asked.page("t", "a\nb")).main.text


async def test_two_numbers_become_the_address_of_their_difference() -> None:
    checkpointer = MemoryCheckpointer()
    old = await checkpointer.save(AgentState().with_message(Message.user("a")), "t")
    new = await checkpointer.save(AgentState().with_message(Message.user("b")), "t")
    asked = Asked(checkpointer)
    answer = await asked.get("/t/t/diff?a=2&b=1")
    assert answer.status_code == 303
    assert answer.headers["location"] == asked.rendering.url("t", "t", "diff", old, new, ns="default")


async def test_a_time_leads_to_the_checkpoint_that_was_the_latest() -> None:
    checkpointer = MemoryCheckpointer()
    await checkpointer.save(AgentState().with_message(Message.user("a")), "t")
    (entry,) = await checkpointer.store.history("t", 1, None, None)
    asked = Asked(checkpointer)
    answer = await asked.get(asked.rendering.url("t", "t", at=entry.created_at.isoformat()))
    assert answer.headers["location"] == asked.rendering.url("t", "t", "c", entry.checkpoint_id, ns="default")


async def test_tool_calls_stand_beside_their_results() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState().with_messages(
        [
            Message.user("weather?"),
            Message.assistant("", tool_calls=(ToolCall(id="c1", name="forecast", arguments={"city": "Rome"}),)),
            Message.tool(ToolResult(tool_call_id="c1", name="forecast", content="sunny")),
            Message.assistant("It is sunny."),
        ]
    )
    checkpoint_id = await checkpointer.save(state, "t")
    shown = await Asked(checkpointer).page("t", "t", "c", checkpoint_id)
    turns = [one.attributes["id"] for one in shown.elements("article")]
    assert turns == ["m0", "m1", "m3"]
    (call,) = shown.elements("div", class_="call")
    assert "forecast" in call.text
    assert "Rome" in call.text
    assert "sunny" in call.text


async def test_a_long_conversation_comes_in_pages() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState().with_messages([Message.user(f"m{at}") for at in range(120)])
    checkpoint_id = await checkpointer.save(state, "t")
    asked = Asked(checkpointer)
    shown = await asked.page("t", "t", "c", checkpoint_id)
    assert [one.attributes["id"] for one in shown.elements("article")] == [f"m{at}" for at in range(70, 120)]
    (earlier,) = [
        one.attributes["href"] for one in shown.elements("a", rel="prev") if "data-parent" not in one.attributes
    ]
    shown = Shown((await asked.get(earlier)).text)
    assert [one.attributes["id"] for one in shown.elements("article")] == [f"m{at}" for at in range(20, 70)]


async def test_the_state_is_a_tree_with_its_lists_kept_apart() -> None:
    backend = StorageBackend(MemoryCheckpointer().store)
    payload = {
        "plan": {"steps": ["a", "b"], "done": False},
        "blob": "x" * 200_000,
        "log": [{"n": at} for at in range(500)],
    }
    checkpoint_id = await backend.save("t", payload)
    asked = Asked(backend)
    shown = await asked.page("t", "t", "c", checkpoint_id, view="state")
    assert "steps" in shown.main.text
    kept = {one.text: one.attributes["href"] for one in shown.elements("a") if "path=" in one.attributes["href"]}
    assert set(kept) == {"blob", "log"}
    value = Shown((await asked.get(kept["blob"])).text)
    assert "x" * 2_000 in value.main.text or "bytes" in value.main.text
    items = Shown((await asked.get(kept["log"])).text)
    assert len(items.elements("article")) == 50


async def test_a_difference_marks_words() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState()
    old = await checkpointer.save(state.with_message(Message.user("the refund takes three days")), "t")
    new = await checkpointer.save(state.with_message(Message.user("the refund takes nine days")), "t")
    shown = await Asked(checkpointer).page("t", "t", "diff", old, new)
    (messages,) = shown.elements("section", aria_label="messages")
    assert [one.text for one in messages.all() if one.name == "del"] == ["three"]
    assert [one.text for one in messages.all() if one.name == "ins"] == ["nine"]
    same = await Asked(checkpointer).page("t", "t", "diff", old, old)
    assert "Nothing differs" in same.main.text


async def test_hits_are_shown_with_their_words_marked(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as checkpointer:
        await checkpointer.save(AgentState().with_message(Message.user("where is my Refund?")), "t")
        asked = Asked(checkpointer)
        shown = await asked.page("search", q="refund")
        assert [one.text for one in shown.elements("mark")] == ["Refund"]
        assert "Nothing found" in (await asked.page("search", q="nowhere")).main.text
        assert not (await asked.page("search")).elements("mark")


async def test_a_search_stays_in_a_thread_and_marks_what_was_typed(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "a.db") as checkpointer:
        for thread_id in ("t", "t-2", "u"):
            state = AgentState().with_message(Message.assistant("Of 80 % you paid 8.99."))
            await checkpointer.save(state, thread_id)
        asked = Asked(checkpointer)
        everywhere = await asked.page("search", q="8.99")
        assert [one.text for one in everywhere.elements("mark")] == ["8.99"] * 3
        within = await asked.page("search", q="8.99", thread="t")
        assert [one.text for one in within.elements("span", class_="row-title")] == ["t"]
        assert "Nothing found" in (await asked.page("search", q="8.99", thread="none")).main.text
        other = Asked(checkpointer, Grant(prefix="u"))
        assert "Nothing found" in (await other.page("search", q="8.99", thread="t")).main.text


async def test_what_is_not_there_and_what_is_not_yours_look_the_same() -> None:
    checkpointer = MemoryCheckpointer()
    checkpoint_id = await checkpointer.save(AgentState().with_message(Message.user("a")), "rival/t")
    await checkpointer.save(AgentState().with_message(Message.user("b")), "other/t")
    asked = Asked(checkpointer, Grant(prefix="other/"))
    from locus.wire.problems import Problem

    for path in (
        asked.rendering.url("t", "rival/t"),
        asked.rendering.url("t", "rival/t", "c", checkpoint_id),
        asked.rendering.url("t", "rival/t", "diff", checkpoint_id, checkpoint_id),
        asked.rendering.url("t", "other/none"),
        asked.rendering.url("t", "other/t", "c", "none"),
    ):
        with pytest.raises(Problem) as caught:
            await asked.get(path)
        assert (caught.value.status, caught.value.code) == (404, "not_found")
    assert "rival" not in (await asked.page("threads")).source
    assert "rival" not in (await asked.page("threads", order="id")).source
    assert "rival" not in (await asked.page("threads", q="rival")).main.text


async def test_whatever_is_stored_is_text() -> None:
    checkpointer = MemoryCheckpointer()
    name = HOSTILE.replace("\x1b", "")  # ids have no control characters
    state = AgentState(metadata={HOSTILE: HOSTILE}).with_messages(
        [
            Message.user(HOSTILE),
            Message.assistant("", tool_calls=(ToolCall(id="1", name="x", arguments={HOSTILE: HOSTILE}),)),
            Message.tool(ToolResult(tool_call_id="1", name="x", content=HOSTILE)),
        ]
    )
    checkpoint_id = await checkpointer.save(state, name, metadata={"note": HOSTILE})
    second = await checkpointer.save(state.with_message(Message.user(HOSTILE * 2)), name)
    await checkpointer.put_writes(name, checkpoint_id, "task", [("channel", {HOSTILE: HOSTILE})])
    asked = Asked(checkpointer)
    for shown in (
        await asked.page("threads"),
        await asked.page("threads", q=name),
        await asked.page("t", name),
        await asked.page("t", name, "c", checkpoint_id),
        await asked.page("t", name, "c", checkpoint_id, view="state"),
        await asked.page("t", name, "diff", checkpoint_id, second),
    ):
        assert {one.attributes.get("src") for one in shown.elements("script")} == {"/static/inspector.js"}
        assert "alert(1)" in shown.main.text
        assert not {"\u202e", "\x1b"} & {*shown.main.text}
        for link in [one.attributes["href"] for one in shown.elements("a")]:
            assert link.startswith(("/", "#"))
    conversation = await asked.page("t", name, "c", checkpoint_id)
    assert [one.text for one in conversation.elements("div", class_="said rich")] == [VISIBLE]


def test_no_template_switches_escaping_off() -> None:
    folder = Path(__file__).parents[3] / "src/locus/server/inspector/templates"
    found = list(folder.glob("*.html"))
    assert found
    for template in found:
        text = template.read_text()
        assert "|safe" not in text.replace(" ", "")
        assert "autoescape" not in text
        assert "style=" not in text
        assert " on" not in [word[:3] for word in text.split('="')]


async def test_links_for_scripts_are_there() -> None:
    checkpointer = MemoryCheckpointer()
    first = await checkpointer.save(AgentState().with_message(Message.user("a")), "t")
    second = await checkpointer.save(AgentState().with_messages([Message.user("a"), Message.user("b")]), "t")
    asked = Asked(checkpointer)
    shown = await asked.page("t", "t", "c", first)
    assert links(shown, "data-child") == [asked.rendering.url("t", "t", "c", second, ns="default")]
    shown = await asked.page("t", "t", "c", second)
    assert links(shown, "data-parent") == [asked.rendering.url("t", "t", "c", first, ns="default")]
    assert shown.main.attributes["data-thread"] == "t"


async def test_a_row_says_what_was_said_and_how_its_turn_ended() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState().with_message(Message.user("How much is it?"))
    await checkpointer.save(state, "t")
    call = ToolCall(id="c1", name="get_price", arguments={"item": "Peak"})
    state = state.with_message(Message.assistant("", tool_calls=(call,)))
    state = state.with_message(Message.tool(ToolResult(tool_call_id="c1", name="get_price", content="89.90")))
    await checkpointer.save(state, "t")
    await checkpointer.save(state.with_message(Message.user("Hello?")), "t")
    shown = await Asked(checkpointer).page("t", "t")
    paragraphs = [[one for one in row.all() if one.name == "p"] for row in _rows(shown)]
    lines = [[one.text for one in some] for some in paragraphs]
    assert lines == [["user Hello?"], ['→ get_price("Peak") ← 89.90'], ["user How much is it?"]]
    assert ["nobody answered" in row.text for row in _rows(shown)] == [False, True, False]
    listed = await Asked(checkpointer).page("threads")
    (row,) = _rows(listed)
    assert "user Hello?" in row.text
    assert "under way" in row.text


def _rows(shown: Shown) -> list[Element]:
    return shown.has("li", "data-row")


@pytest.mark.parametrize("count", [10, 3_000])
async def test_pages_take_as_many_reads_however_long_the_thread_is(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    reads: Counter[str] = Counter()
    checkpointer = MemoryCheckpointer()
    state = AgentState()
    for number in range(count):
        state = state.with_message(Message.user(f"Question {number}"))
        await checkpointer.save(state, "long", f"c{number}")
    engine = checkpointer.store.engine
    for name in ("read", "read_part", "export", "manifest", "history", "entry", "get_writes", "namespaces"):
        _count(monkeypatch, engine, name, reads)
    asked = Asked(checkpointer)
    await asked.page("t", "long")
    assert reads.total() <= 12, reads
    reads.clear()
    await asked.page("threads")
    assert reads.total() <= 8, reads
    reads.clear()
    await asked.page("t", "long", "c", f"c{count - 1}")
    assert reads.total() <= 8, reads


def _count(monkeypatch: pytest.MonkeyPatch, engine: Engine, name: str, reads: Counter[str]) -> None:
    method: Callable[..., Any] = getattr(engine, name)

    def counted(*given: Any, **named: Any) -> Any:
        reads[name] += 1
        return method(*given, **named)

    monkeypatch.setattr(engine, name, counted)
