"""What somebody who sees the inspector for the first time asks, and what the pages answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from locus.wire.problems import Problem
from tests.server.inspector.access import Page, looking, two_tenants
from tests.server.inspector.asked import Asked, Shown


@pytest.fixture
async def checkpointer() -> Checkpointer:
    return await two_tenants()


@pytest.fixture
async def client(checkpointer: Checkpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with looking(checkpointer.store, writes=True) as found:
        yield found


async def shown(client: httpx.AsyncClient, address: str, status: int = 200) -> Page:
    """A page, after the work that it may have begun."""
    while True:
        answer = await client.get(address)
        assert answer.status_code == status, answer.text
        if "refresh" not in answer.headers:
            return Page(answer.text)


async def long_thread(turns: int = 130, forked_at: int = 10) -> MemoryCheckpointer:
    """A thread with more checkpoints than a page of the timeline has, and a fork from its first ones."""
    checkpointer = MemoryCheckpointer()
    state = middle = AgentState()
    for turn in range(1, turns + 1):
        state = state.with_message(Message.user(f"turn {turn}"))
        await checkpointer.save(state, "t", f"c{turn}")
        middle = state if turn == forked_at else middle
    await checkpointer.save(middle.with_message(Message.user("another way")), "t", "fork")
    await checkpointer.save(state.with_message(Message.user("the end")), "t", "last")
    return checkpointer


class TestWhenDidItChange:
    async def test_case_does_not_matter_unless_that_is_asked_for(self, client: httpx.AsyncClient) -> None:
        page = await shown(client, "/t/acme%2F1/bisect?appears=ACME+Says+1")
        assert "It came with #2" in page.text
        assert "Upper and lower case count as the same." in page.text
        page = await shown(client, "/t/acme%2F1/bisect?appears=ACME+Says+1&case=1")
        assert "Not in any of the 3 checkpoints" in page.text
        assert "in exactly this case" in page.text
        (again,) = [link for link in page.links() if "appears=" in link]
        assert "It came with #2" in (await shown(client, again)).text

    async def test_the_answer_quotes_what_was_found(self, client: httpx.AsyncClient) -> None:
        answer = await client.get("/t/acme%2F1/bisect?appears=acme+SAYS+1")
        page = Page(answer.text)
        assert "user messages, item 2 what acme says 1" in page.text
        assert "<mark>acme says 1</mark>" in answer.text
        assert "cp-1" in page.text
        assert "turn=1" in page.text
        (place,) = [link for link in page.links() if "#m2" in link]
        conversation = await client.get(place)
        assert "<mark>acme says 1</mark>" in conversation.text
        assert "m2" in Page(conversation.text).attributes("article", "id")

    async def test_what_is_quoted_is_bounded_and_may_be_a_field(self) -> None:
        checkpointer = MemoryCheckpointer()
        backend = StorageBackend(checkpointer.store)
        await backend.save("t", {"plan": {"goal": f"{'before ' * 900}needle{' after' * 900}"}}, "c1")
        await backend.save("t", {"plan": {"goal": "x"}, "log": [{"note": "n" * 900 + "<b>pin"}] * 300}, "c2")
        async with looking(checkpointer.store) as client:
            answer = await client.get("/t/t/bisect?appears=needle")
            assert "plan.goal" in Page(answer.text).text
            assert "<mark>needle</mark>" in answer.text
            assert len(answer.text) < 12_000
            answer = await client.get("/t/t/bisect?appears=%3Cb%3EPIN")
            assert "<mark>&lt;b&gt;pin</mark>" in answer.text
            page = Page(answer.text)
            assert "log, item 0" in page.text
            (place,) = [link for link in page.links() if "#m0" in link]
            assert "m0" in Page((await client.get(place)).text).attributes("article", "id")

    async def test_a_text_on_another_branch_is_told(self, client: httpx.AsyncClient) -> None:
        page = await shown(client, "/t/acme%2F1/bisect?appears=says+2")
        assert "Not in any of the 3 checkpoints" in page.text
        assert "But it is on another branch, in #3" in page.text
        (there,) = [link for link in page.links() if "to=cp-2" in link]
        assert "It came with #3" in (await shown(client, there)).text

    async def test_what_was_looked_at_is_told_if_nothing_was_found(self, client: httpx.AsyncClient) -> None:
        page = await shown(client, "/t/acme%2F1/bisect?appears=nowhere")
        assert "Nor is it in the 2 other checkpoints saved by then" in page.text
        page = await shown(client, "/t/acme%2F1/bisect?appears=another+way&to=cp-3")
        assert "What was saved after #4 was not looked at." in page.text
        (further,) = [link for link in page.links() if "appears=another" in link]
        assert "It came with #5" in (await shown(client, further)).text

    async def test_metadata_of_checkpoints_is_found(self, client: httpx.AsyncClient) -> None:
        page = await shown(client, "/t/acme%2F1/bisect?path=metadata.turn&equals=2&to=cp-3")
        assert "It came with #3" in page.text
        assert "It is in the metadata of the checkpoints" in page.text
        page = await shown(client, "/t/acme%2F1/bisect?path=metadata.who&to=cp-3")
        assert "It came with #1" in page.text
        page = await shown(client, "/t/acme%2F1/bisect?path=metadata.turn&equals=9&to=cp-3")
        assert "Not in any of the 4 checkpoints" in page.text

    async def test_a_field_of_the_state_comes_before_the_metadata(self) -> None:
        checkpointer = MemoryCheckpointer()
        backend = StorageBackend(checkpointer.store)
        await backend.save("t", {"metadata": {"turn": 7}}, "c1", metadata={"turn": 1})
        await backend.save("t", {"metadata": {"turn": 8}}, "c2", metadata={"turn": 7})
        async with looking(checkpointer.store) as client:
            page = await shown(client, "/t/t/bisect?path=metadata.turn&equals=7")
            assert "It came with #1" in page.text
            assert "metadata of the checkpoints" not in page.text
            page = await shown(client, "/t/t/bisect?path=metadata.turn&equals=1")
            assert "metadata of the checkpoints" in page.text


class TestSearch:
    async def test_there_are_more_than_one_page_of_hits(self, tmp_path: Path) -> None:
        async with sqlite_checkpointer(tmp_path / "a.db", durability="normal") as checkpointer:
            for at in range(25):
                await checkpointer.save(AgentState().with_message(Message.user("a refund")), f"t{at:02}")
            asked = Asked(checkpointer)
            first = await asked.page("search", q="refund")
            assert len(first.has("li", "data-row")) == 20
            assert "1 to 20; there are more. Best matches first" in first.main.text
            (more,) = first.elements("a", rel="next")
            second = Shown((await asked.get(more.attributes["href"])).text)
            assert len(second.has("li", "data-row")) == 5
            assert "21 to 25." in second.main.text
            assert not second.elements("a", rel="next")
            both = [one.attributes["href"] for page in (first, second) for one in page.has("a", "data-open")]
            assert len(set(both)) == 25
            assert "Back to the best ones" in (await asked.page("search", q="refund", start=60)).main.text

    async def test_pages_end_with_a_hundred_hits(self, tmp_path: Path) -> None:
        async with sqlite_checkpointer(tmp_path / "a.db", durability="normal") as checkpointer:
            for at in range(105):
                await checkpointer.save(AgentState().with_message(Message.user("a refund")), f"t{at:03}")
            last = await Asked(checkpointer).page("search", q="refund", start=999)
            assert "81 to 100; there are more." in last.main.text
            assert "add words" in last.main.text
            assert not last.elements("a", rel="next")

    async def test_a_hit_leads_to_the_message_with_the_words_marked(self, tmp_path: Path) -> None:
        async with sqlite_checkpointer(tmp_path / "a.db") as checkpointer:
            said = ["Where is my refund?", "The refund comes by post.", "Is that all?"]
            await checkpointer.save(AgentState().with_messages([Message.user(text) for text in said]), "t")
            asked = Asked(checkpointer)
            (hit,) = (await asked.page("search", q="refund POST")).has("a", "data-open")
            address = hit.attributes["href"]
            assert urlsplit(address).fragment == "hit"
            page = Shown((await asked.get(address)).text)
            (article,) = [
                one for one in page.elements("article") if any(e.attributes.get("id") == "hit" for e in one.all())
            ]
            assert article.attributes["id"] == "m1"
            assert [one.text for one in article.all() if one.name == "mark"] == ["refund", "post"]

    async def test_words_that_are_not_on_the_page_are_told(self) -> None:
        checkpointer = MemoryCheckpointer()
        saved = await checkpointer.save(AgentState().with_message(Message.user("a")), "t")
        page = await Asked(checkpointer).page("t", "t", "c", saved, words="elsewhere")
        assert "is not in these messages" in page.main.text
        many = await Asked(checkpointer).page("t", "t", "c", saved, words=" ".join(map(str, range(300))))
        assert not many.elements("mark")

    async def test_a_hit_says_who_said_it(self, tmp_path: Path) -> None:
        async with sqlite_checkpointer(tmp_path / "a.db") as checkpointer:
            said = [Message.user("The user asks. Where is it?"), Message.assistant("It is here.")]
            await checkpointer.save(AgentState().with_messages(said), "t")
            page = await Asked(checkpointer).page("search", q="here")
            (snippet,) = page.elements("p", class_="snippet")
            assert snippet.text.strip() == "assistant It is here."

    async def test_the_help_says_what_is_found(self) -> None:
        page = await Asked(MemoryCheckpointer()).page("search")
        assert "A search finds the saves that brought all these words into a thread" in page.main.text


class TestMoments:
    async def test_the_second_that_a_page_shows_leads_to_its_checkpoint(self) -> None:
        checkpointer = MemoryCheckpointer()
        await checkpointer.save(AgentState().with_message(Message.user("a")), "t", "c")
        (entry,) = await checkpointer.store.history("t", 1, None, None)
        asked = Asked(checkpointer)
        second = entry.created_at.strftime("%Y-%m-%dT%H:%M:%S")
        answer = await asked.get(asked.rendering.url("t", "t", at=second))
        assert answer.headers["location"] == asked.rendering.url("t", "t", "c", "c", ns="default", at=second)
        page = Shown((await asked.get(answer.headers["location"])).text)
        assert f"As of {second.replace('T', ' ')} UTC, this was the latest checkpoint." in page.main.text

    async def test_a_checkpoint_that_was_not_the_latest_then_does_not_say_so(self) -> None:
        checkpointer = await long_thread(2, 1)
        asked = Asked(checkpointer)
        for wrong in ("2100-01-01T00:00", "2000-01-01T00:00", "nonsense"):
            assert "As of" not in (await asked.page("t", "t", "c", "c1", at=wrong)).main.text
        assert "As of 2100-01-01" in (await asked.page("t", "t", "c", "last", at="2100-01-01T00:00")).main.text

    async def test_a_time_before_the_first_save_is_answered_on_the_page(self) -> None:
        checkpointer = await long_thread(20, 10)
        first = (await checkpointer.store.history("t", None, None, None))[-1]
        early = (first.created_at - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%S")
        asked = Asked(checkpointer)
        page = await asked.page("t", "t", at=early)
        assert f"There was no checkpoint yet at {early.replace('T', ' ')} UTC. The first one is #1" in page.main.text
        assert asked.rendering.url("t", "t", "c", "c1", ns="default") in [
            one.attributes["href"] for one in page.elements("a")
        ]
        assert [one.attributes.get("value") for one in page.elements("input", id="at")] == [early]
        wrong = await asked.page("t", "t", at="soon")
        assert "a time is written as" in wrong.main.text
        assert len(wrong.has("li", "data-row")) == 22


class TestTimeline:
    async def test_a_branch_is_drawn_on_the_next_page_to_where_it_begins(self) -> None:
        asked = Asked(await long_thread())
        first = await asked.page("t", "t")
        (older,) = first.elements("a", rel="next")
        second = Shown((await asked.get(older.attributes["href"])).text)
        strokes = [one.attributes["d"] for one in second.elements("path") if one.attributes.get("class") == "c1"]
        assert len(strokes) == 1
        assert strokes[0].startswith("M22 -")
        (row,) = [one for one in second.has("li", "data-row") if "branch to" in one.text]
        assert row.attributes["data-seq"] == "10"
        (branch,) = [one for one in row.all() if "chip" in one.attributes.get("class", "") and one.name == "a"]
        assert branch.text == "branch to #131"
        assert branch.attributes["href"] == asked.rendering.url("t", "t", "c", "fork", ns="default")
        assert second.elements("svg", class_="lanes")[0].attributes["width"] == "30"

    async def test_the_last_page_leads_back(self) -> None:
        asked = Asked(await long_thread(250, 240))
        pages = [await asked.page("t", "t")]
        while older := pages[-1].elements("a", rel="next"):
            pages.append(Shown((await asked.get(older[0].attributes["href"])).text))
        assert len(pages) == 3
        numbers = [[one.attributes["data-seq"] for one in page.has("li", "data-row")] for page in pages]
        for at in (2, 1):
            (newer,) = pages[at].elements("a", rel="prev")
            back = Shown((await asked.get(newer.attributes["href"])).text)
            assert [one.attributes["data-seq"] for one in back.has("li", "data-row")] == numbers[at - 1]
        assert not pages[0].elements("a", rel="prev")

    async def test_two_rows_are_chosen_to_compare_them(self) -> None:
        asked = Asked(await long_thread(20, 10))
        page = await asked.page("t", "t")
        picks = [one.attributes for one in page.has("input", "name") if one.attributes["name"] == "pick"]
        assert [one["value"] for one in picks] == [str(number) for number in range(22, 0, -1)]
        assert {one["type"] for one in picks} == {"checkbox"}
        answer = await asked.get("/t/t/diff?pick=22&pick=20")
        assert answer.headers["location"] == asked.rendering.url("t", "t", "diff", "c20", "last", ns="default")
        for wrong in ("pick=1", "pick=1&pick=2&pick=3", "pick=1&pick=x"):
            with pytest.raises(Problem) as caught:
                await asked.get(f"/t/t/diff?{wrong}")
            assert caught.value.status == 422

    async def test_a_thread_found_by_metadata_names_the_checkpoint(self) -> None:
        checkpointer = MemoryCheckpointer()
        for turn in range(5):
            await checkpointer.save(AgentState().with_message(Message.user("a")), "t", f"c{turn}", metadata={"n": turn})
        asked = Asked(checkpointer)
        page = await asked.page("threads", meta="n=2")
        (facts,) = page.elements("span", class_="row-about")
        assert "#3 is the newest that matches" in facts.text
        assert "saves" not in facts.text
        (link,) = [one for one in facts.all() if one.name == "a"]
        assert link.attributes["href"] == asked.rendering.url("t", "t", "c", "c2", ns="default")
        assert "5 saves" in (await asked.page("threads")).main.text


class TestDifferences:
    async def test_a_list_says_where_it_breaks_off(self) -> None:
        asked = Asked(await long_thread(300, 1))
        page = await asked.page("t", "t", "diff", "c1", "c300")
        (messages,) = page.elements("section", aria_label="messages")
        assert re.search(r"This page ends here\. \d+ more changes", " ".join(messages.text.split()))
        (more,) = page.elements("a", rel="next")
        rest = Shown((await asked.get(more.attributes["href"])).text)
        assert "This page ends here" not in rest.main.text

    async def test_two_branches_are_told(self) -> None:
        asked = Asked(await long_thread(20, 10))
        page = await asked.page("t", "t", "diff", "fork", "last")
        assert "#21 and #22 are on two branches: neither continues the other. Both continue #10." in page.main.text
        for old, new in (("c1", "last"), ("c10", "fork"), ("last", "c1"), ("c3", "c3")):
            assert "two branches" not in (await asked.page("t", "t", "diff", old, new)).main.text
        assert "two branches" in (await asked.page("t", "t", "diff", "c20", "fork")).main.text

    async def test_times_are_folded(self) -> None:
        backend = StorageBackend(MemoryCheckpointer().store)
        old = await backend.save("t", {"at": "2026-11-16T10:00:00Z", "note": "2026-11-16T10:00:00Z"})
        new = await backend.save("t", {"at": "2026-11-16T10:00:01Z", "note": "at ten"})
        page = await Asked(backend).page("t", "t", "diff", old, new)
        (folded,) = page.elements("details", class_="times")
        assert "1 time changed: at" in " ".join(folded.text.split())
        assert "note" not in folded.text


class TestVacuum:
    @pytest.mark.parametrize("address", ["/t/acme%2F1/stats", "/stats", "/vacuum"])
    async def test_a_wrong_age_is_told_beside_its_field(self, client: httpx.AsyncClient, address: str) -> None:
        answer = await client.get(f"{address}?older_than=soon&keep_last=none")
        assert answer.status_code == 422
        page = Page(answer.text)
        assert "Write an age such as 30d, 12h or 2w." in page.text
        assert "Write a number, 1 or more." in page.text
        fields = {one["name"]: one for tag, one in page.elements if tag == "input" and "aria-invalid" in one}
        assert {name: one["value"] for name, one in fields.items()} == {"older_than": "soon", "keep_last": "none"}
        assert {one["placeholder"] for one in fields.values()} == {"e.g. 30d", "e.g. 10"}

    async def test_what_was_sent_is_kept_in_the_form(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/stats", data={"older_than": "soon", "keep_last": ""})
        assert answer.status_code == 422
        assert "Write an age such as 30d" in answer.text
        assert "soon" in Page(answer.text).attributes("input", "value")

    async def test_an_age_alone_says_that_the_latest_goes_too(
        self, client: httpx.AsyncClient, checkpointer: Checkpointer
    ) -> None:
        page = await shown(client, "/vacuum?older_than=0s")
        assert "It would remove 10 checkpoints" in page.text
        assert "everything that old goes, the latest checkpoint too" in page.text
        page = await shown(client, "/vacuum?older_than=0s&keep_last=1")
        assert "It would remove 6 checkpoints" in page.text
        assert "the latest checkpoint too" not in page.text
        done = await client.post("/vacuum", data={"older_than": "0s", "keep_last": "", "confirm": "vacuum"})
        assert "Removed 10 checkpoints" in Page(done.text).text
        assert await checkpointer.store.list_threads(None, "*") == []


async def test_the_only_field_of_a_page_that_is_opened_empty_has_the_focus(client: httpx.AsyncClient) -> None:
    for address, focused in (
        ("/search", ["q"]),
        ("/search?q=know", []),
        ("/t/acme%2F1/bisect", ["appears"]),
        ("/t/acme%2F1/bisect?appears=says", []),
    ):
        page = await shown(client, address)
        found = [values["name"] for tag, values in page.elements if tag == "input" and "autofocus" in values]
        assert found == focused, address


async def test_a_checkpoint_is_exported_from_its_page(client: httpx.AsyncClient) -> None:
    page = await shown(client, "/t/acme%2F1/c/cp-1")
    (export,) = [link for link in page.links() if "/export" in link]
    assert "One checkpoint, #2" in (await shown(client, export)).text


async def test_the_subtitle_of_a_thread_is_on_all_its_pages(client: httpx.AsyncClient) -> None:
    for name in ("", "/bisect", "/stats", "/export", "/fork", "/delete"):
        page = await client.get(f"/t/acme%2F1{name}")
        assert '<p class="title" dir="auto">what acme says 0</p>' in page.text, name


async def test_keys_that_do_nothing_are_not_listed(checkpointer: Checkpointer) -> None:
    for writes in (True, False):
        async with looking(checkpointer.store, writes=writes) as client:
            listed = Page((await client.get("/threads")).text).text
            assert ("f fork" in listed) is writes
