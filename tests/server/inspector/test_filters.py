"""What the address of a page chooses: threads by status, framework and time, hits by speaker, saves without words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.storage import StorageBackend
from locus.server.inspector.pages import threads
from tests.server.inspector.asked import Asked, Shown, links

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"
TOMORROW = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
LONG_AGO = f"{datetime.now(UTC) - timedelta(days=30):%Y-%m-%d}"


def ids(shown: Shown) -> list[str]:
    return [one.text for one in shown.elements("span", class_="row-id")]


async def store() -> MemoryCheckpointer:
    checkpointer = MemoryCheckpointer()
    backend = StorageBackend(checkpointer.store)
    asked = AgentState().with_message(Message.user("How much?"))
    await checkpointer.save(asked.with_message(Message.assistant("89.90")), "answered")
    await checkpointer.save(asked, "open")
    graph = {"langgraph": 1, "v": 4, "channel_values": {"messages": [{"type": "human", "content": "Refund me."}]}}
    last = await backend.save("graph", graph, namespace="", metadata={"source": "loop", "step": 1, "user": "ada"})
    await checkpointer.store.put_writes(
        "graph",
        last,
        "t",
        [("__interrupt__", [{"value": {"question": "Refund 5 euros?", "order": 7}, "id": "9f2c"}])],
        task_path="",
        namespace="",
    )
    inner = {"langgraph": 1, "v": 4, "channel_values": {"messages": [{"type": "human", "content": "Plan it."}]}}
    await backend.save("graph", inner, namespace="planner:1")
    items = {"items": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]}
    await backend.save("session", items, namespace="openai-agents")
    return checkpointer


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["session", "graph", "open", "answered"]),
        ({"status": "answered"}, ["session", "answered"]),
        ({"status": "waiting"}, ["graph"]),
        ({"status": "under-way"}, ["open"]),
        ({"status": "failed"}, []),
        ({"framework": "langgraph"}, ["graph"]),
        ({"framework": "openai-agents"}, ["session"]),
        ({"framework": "locus", "status": "answered"}, ["answered"]),
        ({"since": TODAY, "until": TOMORROW}, ["session", "graph", "open", "answered"]),
        ({"until": LONG_AGO}, []),
        ({"since": f"{TODAY}T00:00:00", "until": LONG_AGO}, []),
        ({"q": "a", "framework": "locus"}, ["answered"]),
        ({"meta": "user=ada", "status": "answered"}, []),
    ],
)
async def test_threads_are_chosen_by_status_framework_and_time(query: dict[str, str], found: list[str]) -> None:
    asked = Asked(await store())
    page = await asked.page("threads", **query)
    assert ids(page) == found
    assert ("No thread matches" in page.main.text) is (not found)
    for name, value in query.items():
        chosen = [one.attributes["value"] for one in page.elements("option") if "selected" in one.attributes]
        shown = [*chosen, *(one.attributes.get("value") for one in page.elements("input"))]
        assert {value, value[:10]} & set(shown), name


async def test_a_thread_that_waits_ends_with_its_question() -> None:
    page = await Asked(await store()).page("threads", framework="langgraph")
    (last,) = page.elements("div", class_="row-last")
    assert last.text.strip() == "◷ waits for a person: Refund 5 euros?"
    chips = [one.text for one in page.elements("span") if "chip" in one.attributes.get("class", "").split()]
    assert "waits for a person" in chips
    assert not {"source=loop", "step=1"} & set(chips)


async def test_a_wrong_time_is_told() -> None:
    page = await Asked(await store()).page("threads", since="soon")
    assert "a time is written as" in page.main.text


async def test_few_threads_of_many_are_looked_for_further_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PAGE", 5)
    monkeypatch.setattr(threads, "MOST_LOOKED_AT", 15)
    checkpointer = MemoryCheckpointer()
    for number in range(22):
        state = AgentState().with_message(Message.user("How much?"))
        if number not in (0, 13):
            state = state.with_message(Message.assistant("89.90"))
        await checkpointer.save(state, f"t{number:02}")
    asked = Asked(checkpointer)
    first = await asked.page("threads", status="under-way")
    assert ids(first) == ["t13"]
    assert "15 threads were looked at for this page" in first.main.text
    (more,) = [one.attributes["href"] for one in first.elements("a", rel="next")]
    last = Shown((await asked.get(more)).text)
    assert ids(last) == ["t00"]
    assert not last.elements("a", rel="next")


async def thread_with_silent_saves() -> MemoryCheckpointer:
    checkpointer = MemoryCheckpointer()
    backend = StorageBackend(checkpointer.store)
    messages: list[dict[str, str]] = []
    for number in range(8):
        if number in (0, 4, 6):
            messages = [*messages, {"role": "user", "content": f"Question {number}, 8.99?"}]
        await backend.save("t", {"messages": messages, "count": number}, f"c{number}")
    return checkpointer


async def test_saves_without_words_are_folded_until_asked_for() -> None:
    asked = Asked(await thread_with_silent_saves())
    page = await asked.page("t", "t")
    rows = [one.attributes["data-seq"] for one in page.has("li", "data-row")]
    assert rows == ["8", "7", "5", "1"]  # the latest stays
    folded = [one for one in page.elements("li") if "folded" in one.attributes["class"].split()]
    assert [" ".join(one.text.split()) for one in folded] == ["a save without words", "3 saves without words"]
    (fold,) = [one.attributes["href"] for one in page.elements("a") if one.text == "3 saves without words"]
    assert fold == f"{asked.rendering.url('t', 't', quiet='1')}#4"
    drawn = [
        one for one in page.elements() if one.name in ("circle", "rect") and "dot" in one.attributes.get("class", "")
    ]
    assert len(drawn) == len(rows) + len(folded)
    everything = Shown((await asked.get(fold)).text)
    assert [one.attributes["data-seq"] for one in everything.has("li", "data-row")] == [*map(str, range(8, 0, -1))]
    assert "Fold saves without words" in everything.main.text


async def test_a_thread_without_any_words_folds_nothing() -> None:
    checkpointer = MemoryCheckpointer()
    for number in range(4):
        await StorageBackend(checkpointer.store).save("t", {"count": number}, metadata={"count": number})
    page = await Asked(checkpointer).page("t", "t")
    assert len(page.has("li", "data-row")) == 4
    assert "count=2" in page.main.text


async def test_marks_are_carried_along_until_they_are_let_go() -> None:
    asked = Asked(await thread_with_silent_saves())
    page = await asked.page("t", "t", words="8.99")
    marks = [one.text for one in page.elements("mark")]
    assert marks == ["8.99"] * 4  # what is marked, and three rows
    for address in [*links(page, "data-open"), *links(page, "data-changes")]:
        there = Shown((await asked.get(address.partition("#")[0])).text)
        assert "words=8.99" in address
        assert "8.99" in [one.text for one in there.elements("mark")]
        back = [one.attributes["href"] for one in there.elements("a") if one.text == "t"]
        assert all("words=8.99" in one for one in back)
        (free,) = [one.attributes["href"] for one in there.elements("a") if one.text == "Let go"]
        assert "8.99" not in free
        assert not Shown((await asked.get(free)).text).elements("mark")
    (compared,) = [await asked.get("/t/t/diff?pick=5&pick=7&words=8.99&text=")]
    assert "words=8.99" in compared.headers["location"]
    difference = Shown((await asked.get(compared.headers["location"])).text)
    (added,) = [one for one in difference.elements("ins") if "Question 6" in one.text]
    assert [one.text for one in added.all() if one.name == "mark"] == ["8.99"]


async def test_a_checkpoint_far_back_leads_to_its_page_of_the_timeline() -> None:
    checkpointer = MemoryCheckpointer()
    state = AgentState()
    for number in range(160):
        state = state.with_message(Message.user(f"turn {number}"))
        await checkpointer.save(state, "t", f"c{number}")
    asked = Asked(checkpointer)
    for number in (10, 150):
        page = await asked.page("t", "t", "c", f"c{number}")
        (back,) = [one.attributes["href"] for one in page.elements("a") if one.text == "t"]
        there = Shown((await asked.get(back.partition("#")[0])).text)
        assert f"#{number + 1}" == f"#{back.partition('#')[2]}"
        assert there.elements("li", id=str(number + 1))
    found = await asked.page("t", "t", "bisect", appears="turn 10", ns=DEFAULT_NAMESPACE)
    (back,) = [one.attributes["href"] for one in found.elements("a") if one.text == "Show it in the timeline"]
    there = Shown((await asked.get(back.partition("#")[0])).text)
    assert there.elements("li", id="11")
    assert "turn 10" in [one.text for one in there.elements("mark")]


async def test_hits_are_chosen_by_speaker_and_time() -> None:
    checkpointer = MemoryCheckpointer()
    said = [Message.user("A refund?"), Message.assistant("No refund.")]
    for number in range(2):
        await checkpointer.save(AgentState().with_messages(said[: number + 1]), f"t{number}")
    asked = Asked(checkpointer)
    for query, found in (
        ({}, {"user"}),
        ({"role": "assistant"}, {"assistant"}),
        ({"role": "tool"}, set()),
        ({"since": TODAY, "role": "user"}, {"user"}),
        ({"until": LONG_AGO}, set()),
        ({"thread": "t1", "role": "assistant"}, {"assistant"}),
    ):
        page = await asked.page("search", q="refund", **query)
        assert {one.text for one in page.elements("span", class_="who")} == found, query
        assert bool(page.has("li", "data-row")) is bool(found)
    assert "Look at everything" in (await asked.page("search", q="refund", role="tool")).main.text
