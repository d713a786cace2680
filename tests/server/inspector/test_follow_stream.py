"""The stream of new checkpoints: where it goes on, how many there may be, and when it ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.looking.histories import NEWEST, Following
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.server import Limits, Token, create_app
from locus.server.authorized_store import AuthorizedStore
from locus.server.inspector.pages import Pages, follow
from locus.server.inspector.rendering import Rendering
from locus.wire.problems import Problem
from tests.server.inspector.serving import Served, inspecting
from tests.server.running import ACME, WRITER, threaded

THREAD = "watched/1"


async def save(handle: Checkpointer, count: int = 1, **options: Any) -> None:
    state = await handle.load(THREAD) or AgentState(agent_id="writer")
    for _ in range(count):
        state = state.with_message(Message.user(f"Message {len(state.messages)}"))
        await handle.save(state, THREAD, **options)


@asynccontextmanager
async def watched(path: Path, count: int = 2) -> AsyncIterator[tuple[Served, Checkpointer, httpx.Client]]:
    async with sqlite_checkpointer(path / "watched.db", durability="normal") as handle:
        await save(handle, count)
        with inspecting(path / "watched.db") as served, visitor(served) as client:
            yield served, handle, client


@contextmanager
def visitor(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60, follow_redirects=True) as client:
        assert client.get(served.to("open", code=served.sessions.new_code())).is_success
        yield client


@contextmanager
def stream(client: httpx.Client, served: Served, last: int | None = None, **query: Any) -> Iterator[Iterator[str]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client.stream("GET", served.to("t", THREAD, "follow", **query), headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield answer.iter_lines()


def events(lines: Iterator[str]) -> Iterator[tuple[str, int | None, Any]]:
    """Name, number and data of each event."""
    name, number, data = "", None, None
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            number = int(value)
        elif field == "data":
            data = json.loads(value)
        elif not line and name:
            yield name, number, data
            name, number, data = "", None, None


async def test_what_is_saved_comes_and_what_was_there_does_not(tmp_path: Path) -> None:
    async with watched(tmp_path) as (served, handle, client):
        with stream(client, served) as lines:
            await save(handle, metadata={"kind": "chat"})
            name, number, data = next(events(lines))
            assert (name, number) == ("checkpoint", 3)
            assert data["name"] == "Checkpoint 3, latest"
            assert data["said"] == "kind=chat"
            assert client.get(data["href"]).is_success
            assert client.get(data["changes"]).is_success


async def test_it_goes_on_after_the_last_event(tmp_path: Path) -> None:
    async with watched(tmp_path, 5) as (served, _, client):
        with stream(client, served, last=2) as lines:
            found = events(lines)
            assert [next(found)[1] for _ in range(3)] == [3, 4, 5]
        with stream(client, served, after=4) as lines:
            assert next(events(lines))[1] == 5
        # The header is newer than the address, which the browser sends unchanged.
        with stream(client, served, last=4, after=1) as lines:
            assert next(events(lines))[1] == 5


async def test_whoever_was_away_too_long_is_told_to_load_the_page_again(tmp_path: Path) -> None:
    async with watched(tmp_path, follow.MOST_AT_ONCE + 3) as (served, _, client):
        with stream(client, served, last=1) as lines:
            assert [name for name, *_ in events(lines)] == ["missed"]
        with stream(client, served, last=999) as lines:
            assert [name for name, *_ in events(lines)] == ["shortened"]


async def test_there_are_so_many_streams_and_their_places_become_free(tmp_path: Path) -> None:
    async with watched(tmp_path) as (served, _, client):
        with ExitStack() as open_streams:
            # What is read has to be kept: httpx closes a stream when nobody has its lines any more.
            read = [open_streams.enter_context(stream(client, served)) for _ in range(follow.MOST_STREAMS)]
            assert {next(lines) for lines in read} == {f"retry: {follow.RETRY_MS}"}
            refused = client.get(served.to("t", THREAD, "follow"))
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "10"
            assert f"{follow.MOST_STREAMS} pages" in refused.text
        for _ in range(200):  # the server hears of each client that goes a moment later
            with client.stream("GET", served.to("t", THREAD, "follow")) as answer:
                if answer.status_code == 200:
                    break
        else:
            pytest.fail("no place became free")


def test_one_token_cannot_take_all_streams() -> None:
    authorized = AuthorizedStore(MemoryCheckpointer().store, Limits())
    pages = follow.FollowPages(Pages(authorized, Rendering()))
    with ExitStack() as open_streams:
        for _ in range(follow.MOST_OF_A_TOKEN):
            open_streams.enter_context(pages._place("a token"))
        with pytest.raises(Problem, match="with this token"):
            open_streams.enter_context(pages._place("a token"))
        open_streams.enter_context(pages._place("another"))
    with pages._place("a token"):
        pass


async def test_a_thread_that_is_not_there_cannot_be_followed(tmp_path: Path) -> None:
    async with watched(tmp_path) as (served, _, client):
        assert client.get(served.to("t", "nobody", "follow")).status_code == 404
        assert client.get(served.to("t", THREAD, "follow", ns="nobody")).status_code == 404
        client.cookies.clear()
        assert client.get(served.to("t", THREAD, "follow")).status_code == 401


async def test_a_stream_ends_with_the_server(tmp_path: Path) -> None:
    """Otherwise a server would wait for its pages until its patience ends, whenever it is stopped."""
    with ExitStack() as stack:
        async with watched(tmp_path) as (served, *_):
            client = stack.enter_context(visitor(served))
            lines = stack.enter_context(stream(client, served))
            next(lines)
        # The answer came to its end in order: a broken one raises here.
        assert [name for name, *_ in events(lines)] == []


async def test_following_finds_each_checkpoint_once() -> None:
    async with MemoryCheckpointer() as handle:
        await save(handle, 3)
        following = Following(handle.store, THREAD, None, 0)
        assert [entry.seq for entry in await following.look()] == [1, 2, 3]
        assert await following.look() == []
        await save(handle, 2 * NEWEST + 1)
        assert [entry.seq for entry in await following.look()] == list(range(4, 2 * NEWEST + 5))
        assert not following.missed


async def test_following_waits_longer_when_nothing_comes() -> None:
    async with MemoryCheckpointer() as handle:
        await save(handle, 1)
        following = Following(handle.store, THREAD, None, 1)
        pauses = []
        for _ in range(8):
            await following.look()
            pauses.append(following.pause)
        assert pauses == sorted(pauses)
        assert pauses[-1] == 5.0
        await save(handle, 1)
        await following.look()
        assert following.pause == 1.0


async def test_following_says_what_it_left_out_and_what_is_gone() -> None:
    async with MemoryCheckpointer() as handle:
        await save(handle, 3 * NEWEST)
        following = Following(handle.store, THREAD, None, 1, most=NEWEST)
        assert len(await following.look()) == NEWEST
        assert following.missed
        await handle.delete(THREAD)
        assert await following.look() == []
        assert following.shortened


async def test_a_stream_ends_with_the_token_of_its_session(tmp_path: Path) -> None:
    async with sqlite_checkpointer(tmp_path / "watched.db", durability="normal") as handle:
        await save(handle, 2)
        with sqlite_app(tmp_path / "watched.db") as (app, port), ExitStack() as opened:
            client = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}/ui", timeout=60))
            client.headers["Sec-Fetch-Site"] = "same-origin"
            assert client.post("/login", data={"token": WRITER}).status_code == 303
            lines = opened.enter_context(client.stream("GET", f"/t/{quote(THREAD, safe='')}/follow")).iter_lines()
            assert next(lines).startswith("retry:")
            await save(handle)
            while "event: checkpoint" not in next(lines):
                pass
            app.use_tokens([Token(ACME, prefix="acme/")])
            await save(handle)
            rest = list(lines)
            assert not any("event: checkpoint" in line for line in rest), rest
            assert client.get("/threads").status_code == 401


@contextmanager
def sqlite_app(path: Path) -> Iterator[tuple[Any, int]]:
    app = create_app(sqlite_checkpointer(path), [Token(WRITER), Token(ACME, prefix="acme/")], inspector=True)
    with threaded(app) as port:
        yield app, port


async def test_a_stream_ends_when_its_reader_logs_out(tmp_path: Path) -> None:
    async with watched(tmp_path) as (served, handle, client):
        with stream(client, served) as lines:
            assert next(lines).startswith("retry:")
            served.sessions.end([*client.cookies.values()])
            await save(handle)
            assert not any("event: checkpoint" in line for line in lines)
