"""The pages that find the save that brought something, that say where the bytes are, and that hand a thread on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.core.media import bytes_text
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError
from locus.looking.bisect import bisect_text
from locus.looking.formatting import duration
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from locus.server import Limits
from locus.server.inspector.charts import bars, columns
from locus.server.inspector.jobs import AT_ONCE_OF_A_TOKEN, PATIENCE_SECONDS, Jobs, PageJob
from locus.server.inspector.serving import app_of
from locus.transfer.imports import import_store
from locus.wire.problems import Problem
from tests.server.inspector.access import Page, browser, looking, two_tenants


@pytest.fixture
async def checkpointer() -> Checkpointer:
    return await two_tenants()


@pytest.fixture
async def client(checkpointer: Checkpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with looking(checkpointer.store) as found:
        yield found


async def settled(client: httpx.AsyncClient, address: str) -> Page:
    """The page when the work is done, as a browser without scripts would come to see it."""
    for _ in range(200):
        answer = await client.get(address)
        assert answer.status_code == 200, answer.text
        if "refresh" not in answer.headers:
            return Page(answer.text)
        assert answer.headers["refresh"] == "1"
    raise AssertionError("it does not end")


class TestBisect:
    async def test_the_answer_leads_to_the_difference(self, client: httpx.AsyncClient) -> None:
        page = await settled(client, "/t/acme%2F1/bisect?appears=says+2&to=cp-3")
        assert "It came with #3" in page.text
        assert "/t/acme%2F1/diff/cp-1/cp-2?ns=default&text=says+2" in page.links()
        assert "4 checkpoints were looked at, up to #4" in page.text
        diff = await client.get("/t/~YWNtZS8x/diff/cp-1/cp-2?ns=default")
        assert "what acme says 2" in diff.text

    async def test_a_line_ends_at_the_latest(self, client: httpx.AsyncClient) -> None:
        """Which is the fork, where the third turn never was."""
        page = await settled(client, "/t/acme%2F1/bisect?appears=says+2")
        assert "Not in any of the 3 checkpoints" in page.text
        page = await settled(client, "/t/acme%2F1/bisect?appears=another+way")
        assert "It came with #5" in page.text
        assert "/t/acme%2F1/diff/cp-1/fork?ns=default&text=another+way" in page.links()

    async def test_a_value_is_found_and_what_changed_often_is_told(self) -> None:
        checkpointer = MemoryCheckpointer()
        for turn, status in enumerate(["open", "closed", "open", "closed"]):
            await StorageBackend(checkpointer.store).save("t", {"a": {"status": status}, "n": turn}, f"c{turn}")
        async with looking(checkpointer.store) as client:
            for equals in ('"closed"', "closed"):
                page = await settled(client, f"/t/t/bisect?path=a.status&equals={equals}")
                assert "It came with #2" in page.text
                assert "It changed more than once #2 came" in page.text
                assert "#3 went" in page.text
            page = await settled(client, "/t/t/bisect?path=a.status")
            assert "It is there from the first checkpoint of the line on." in page.text
            page = await settled(client, "/t/t/bisect?path=a.nothing")
            assert "Not in any of the 4 checkpoints" in page.text

    async def test_without_a_question_it_asks_for_one(self, client: httpx.AsyncClient) -> None:
        page = await settled(client, "/t/acme%2F1/bisect")
        assert "appears" in page.attributes("input", "name")
        assert ("form", "get") in [(tag, values.get("method")) for tag, values in page.elements if tag == "form"]
        both = await client.get("/t/acme%2F1/bisect?appears=x&path=y")
        assert both.status_code == 422

    async def test_progress_is_shown_while_it_looks(
        self, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a script: the page is loaded again until there is an answer. It is the same work all the time."""
        go_on, began = asyncio.Event(), 0

        async def slow(*arguments: Any, progress: Any, **options: Any) -> Any:
            nonlocal began
            began += 1
            progress(2)
            await go_on.wait()
            return await bisect_text(*arguments, progress=progress, **options)

        monkeypatch.setattr("locus.server.inspector.pages.bisect.bisect_text", slow)
        monkeypatch.setattr("locus.server.inspector.jobs.WAIT_SECONDS", 0.0)
        address = "/t/acme%2F1/bisect?appears=says&to=cp-3"
        async with looking(checkpointer.store) as client:
            for _ in range(3):
                await client.get(address)
            answer = await client.get(address)
            assert answer.headers["refresh"] == "1"
            page = Page(answer.text)
            assert "2 of 4 checkpoints" in page.text
            assert page.attributes("progress", "value") == ["2"]
            go_on.set()
            found = await settled(client, address)
        assert "It came with #1" in found.text
        assert began == 1

    async def test_it_reads_pages_and_not_checkpoints(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with sqlite_checkpointer(tmp_path / "a.db") as checkpointer:
            state = AgentState()
            for turn in range(60):
                state = state.with_message(Message.user(f"turn {turn}."))
                await checkpointer.save(state, "long")
            counted: dict[str, int] = {}
            engine: Any = checkpointer.store.engine
            for name in ("read", "read_part", "export", "history", "manifest"):
                plain = getattr(engine, name)

                def counting(*given: Any, _name: str = name, _plain: Any = plain, **more: Any) -> Any:
                    counted[_name] = counted.get(_name, 0) + 1
                    return _plain(*given, **more)

                monkeypatch.setattr(engine, name, counting)
            async with looking(checkpointer.store) as client:
                page = await settled(client, "/t/long/bisect?appears=turn+37.")
        assert "It came with #38" in page.text
        assert sum(counted.values()) <= 14, counted


class TestStats:
    async def test_a_thread_is_measured_at_once(self, client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
        page = await settled(client, "/t/acme%2F1/stats")
        sizes = await checkpointer.store.sizes("acme/1")
        assert sizes is not None
        assert f"in 5 checkpoints and {sizes.runs} runs" in page.text
        assert "are shared by forks" in page.text
        assert re.search(r"messages \d+ B \d+ % \d+ B", page.text)
        tags = [tag for tag, _ in page.elements]
        assert tags.count("svg") >= 3
        assert "rect" in tags
        assert "How long turns took" in page.text
        assert "for the last 4." in page.text

    async def test_what_a_vacuum_would_free_is_exact(
        self, client: httpx.AsyncClient, checkpointer: Checkpointer
    ) -> None:
        page = await settled(client, "/t/acme%2F1/stats?keep_last=1")
        sizes = await checkpointer.store.sizes("acme/1", keep_last=1)
        assert sizes is not None
        assert sizes.freed is not None
        assert f"{bytes_text(sizes.freed.bytes)} : {sizes.freed.checkpoints} checkpoints" in page.text
        assert (await client.get("/t/acme%2F1/stats?keep_last=0")).status_code == 422
        assert (await client.get("/t/acme%2F1/stats?older_than=soon")).status_code == 422
        assert (await client.get("/t/acme%2F1/stats?older_than=30d&keep_last=2")).status_code == 200

    async def test_all_threads_are_measured_when_somebody_asks_for_it(self, client: httpx.AsyncClient) -> None:
        page = await settled(client, "/stats")
        assert "one after another" in page.text
        begun = await client.post("/stats", data={"older_than": "30d", "keep_last": ""})
        assert begun.headers["location"] == "/stats?older_than=30d"
        page = await settled(client, begun.headers["location"])
        assert "in 2 threads, 10 checkpoints" in page.text
        assert "A vacuum would free 0 B" in page.text
        assert "Partial" not in page.text
        assert "/t/acme%2F1/stats" in page.links()
        assert (await client.post("/stats", data={"nothing": "1"})).status_code == 422

    async def test_it_can_be_stopped_and_is_marked_as_partial(
        self, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain, waits = checkpointer.store.sizes, asyncio.Event()

        async def sizes(thread_id: str, *given: Any, **more: Any) -> Any:
            if thread_id == "other/1":
                await waits.wait()
            return await plain(thread_id, *given, **more)

        monkeypatch.setattr(checkpointer.store, "sizes", sizes)
        monkeypatch.setattr("locus.server.inspector.jobs.WAIT_SECONDS", 0.0)
        async with looking(checkpointer.store) as client:
            await client.post("/stats", data={"keep_last": ""})
            while "Partial: 1 threads so far" not in (text := Page((answer := await client.get("/stats")).text).text):
                assert answer.headers["refresh"] == "1"
            assert "in 1 threads, 5 checkpoints" in text
            await client.post("/stats", data={"action": "stop"})
            page = await settled(client, "/stats")
        assert "Partial: it was stopped after 1 threads." in page.text
        assert "in 1 threads, 5 checkpoints" in page.text

    async def test_a_store_that_fails_is_told(
        self, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*_: Any, **__: Any) -> Any:
            raise BackendUnavailableError("10.0.0.1 does not answer")

        async with looking(checkpointer.store) as client:
            monkeypatch.setattr(checkpointer.store, "sizes", fail)
            await client.post("/stats", data={"keep_last": "3"})
            answer = await client.get("/stats?keep_last=3")
            assert answer.status_code == 503
            assert "10.0.0.1" not in answer.text
            assert (await client.get("/stats?keep_last=3")).status_code == 200

    def test_bars_and_columns(self) -> None:
        chart = bars([("a", "10 B", 10, 5), ("b", "1 B", 1, 0), ("c", "0 B", 0, 0)])
        assert [bar.width for bar in chart] == [100, 10, 0]
        assert [bar.part for bar in chart] == [50, 0, 0]
        assert bars([]) == []
        drawn = columns([(0.0, "x"), (1.0, "y"), (3_600.0, "z")])
        heights = [column.height for column in drawn.columns]
        assert heights == sorted(heights)
        assert all(0 <= column.y <= drawn.height for column in drawn.columns)
        assert columns([]).columns == []
        assert [duration(seconds) for seconds in (0.012, 1.5, 90, 7_200, 200_000)] == [
            "12 ms",
            "1.5 s",
            "1.5 min",
            "2.0 h",
            "2.3 d",
        ]


class TestJobs:
    async def test_work_ends_that_nobody_asks_for(self) -> None:
        now = 0.0
        jobs: Jobs[int] = Jobs(lambda: now)

        async def work(job: PageJob[int]) -> int:
            nonlocal now
            while True:
                now += PATIENCE_SECONDS / 4
                job.step(job.done + 1)
                await asyncio.sleep(0)

        job = jobs.begin(("", "a"), work)
        await jobs.waited(job, 30)
        assert job.stopped
        assert not job.is_running

    async def test_a_token_has_a_few_at_once(self) -> None:
        jobs: Jobs[int] = Jobs()

        async def work(job: PageJob[int]) -> int:
            await asyncio.sleep(3_600)
            return 1

        begun = [jobs.begin(("a", str(number)), work) for number in range(AT_ONCE_OF_A_TOKEN)]
        with pytest.raises(Problem) as caught:
            jobs.begin(("a", "more"), work)
        assert caught.value.status == 429
        assert jobs.begin(("a", "0"), work) is begun[0]
        begun.append(jobs.begin(("b", "0"), work))
        for job in begun:
            job.stop()
            await jobs.waited(job, 30)
        jobs.begin(("a", "more"), work).stop()


class TestExport:
    async def test_the_page_offers_what_there_is(self, client: httpx.AsyncClient) -> None:
        page = await settled(client, "/t/acme%2F1/export")
        assert len([link for link in page.links() if "format=" in link]) == 4
        assert "The latest checkpoint, #5" in page.text
        page = await settled(client, "/t/acme%2F1/export?checkpoint=cp-1")
        assert "One checkpoint, #2" in page.text
        assert (await client.get("/t/acme%2F1/export?checkpoint=none")).status_code == 404
        assert (await client.get("/t/acme%2F1/export?format=exe")).status_code == 422

    async def test_lines_are_imported_again(self, client: httpx.AsyncClient, tmp_path: Path) -> None:
        answer = await client.get("/t/acme%2F1/export?format=jsonl")
        assert answer.headers["content-disposition"] == 'attachment; filename="acme-1.jsonl"'
        (tmp_path / "a.jsonl").write_bytes(answer.content)
        done = await import_store("jsonl", str(tmp_path / "a.jsonl"), f"sqlite:{tmp_path / 'b.db'}")
        assert done is not None
        async with sqlite_checkpointer(tmp_path / "b.db") as copy:
            state = await copy.load("acme/1", "cp-3")
            assert state is not None
            assert [message.content for message in state.messages][-2:] == ["what acme says 3", "answer 3"]

    async def test_a_checkpoint_as_a_document(self, client: httpx.AsyncClient) -> None:
        found = {}
        for kind in ("json", "md", "html"):
            answer = await client.get(f"/t/acme%2F1/export?format={kind}&checkpoint=cp-1")
            assert answer.headers["content-disposition"] == f'attachment; filename="acme-1.{kind}"'
            found[kind] = answer.text
        document = json.loads(found["json"])
        assert (document["checkpoint_id"], len(document["state"]["messages"])) == ("cp-1", 4)
        assert "> what acme says 1" in found["md"]
        assert "what acme says 1" in Page(found["html"]).text
        assert "what acme says 2" not in "".join(found.values())

    async def test_it_is_streamed(self) -> None:
        checkpointer = MemoryCheckpointer()
        state = AgentState()
        for turn in range(40):
            state = state.with_message(Message.user(f"{turn} " + "long " * 2_000))
        await checkpointer.save(state, "long")
        app, sessions = app_of(checkpointer.store, writes=False)
        pieces: list[bytes] = []

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def watch(message: Any) -> None:
                pieces.append(message.get("body", b""))
                await send(message)

            await app(scope, receive, watch)

        async with browser(watched) as client:
            await client.get("/open", params={"code": sessions.new_code()})
            for kind in ("json", "md", "html"):
                pieces.clear()
                answer = await client.get(f"/t/long/export?format={kind}")
                assert "content-length" not in answer.headers
                assert len(pieces) > 4
                assert max(map(len, pieces)) < 100_000
                assert b"39 long" in b"".join(pieces)

    async def test_what_is_too_large_to_build_is_refused(
        self, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("locus.server.inspector.serving.Limits", lambda: Limits(state_bytes=200))
        async with looking(checkpointer.store) as client:
            answer = await client.get("/t/acme%2F1/export?format=json")
            assert answer.status_code == 507
            assert "JSON Lines" in answer.text
            assert (await client.get("/t/acme%2F1/export?format=jsonl")).status_code == 200
