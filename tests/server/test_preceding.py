"""What a client's commit says of the items that precede its runs is true, or is not stored."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.digests import BEGINNING, digest_text, extended
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.server import create_app
from tests.backends.postgresql.store import new_store
from tests.server.running import asking, serving
from tests.servers.proxy import NoProxy

NOW = "2026-01-01T00:00:00+00:00"
A = "c1-revision0"
MADE_UP = "A" * 22
ITEMS = [{"zz": number, "a": "x" * number} for number in range(300)]
"""With keys that are not in order: some databases put them into another."""


def _digest(count: int, *, sort_keys: bool) -> str | None:
    """The digest of the first items."""
    digest = BEGINNING
    for item in ITEMS[:count]:
        digest = extended(digest, json.dumps(item, separators=(",", ":"), sort_keys=sort_keys))
    return digest_text(digest)


def _body(number: int, runs: list[Any], before: list[str | None] | None = None) -> dict[str, Any]:
    """Checkpoint `number`, which shows all items up to the end of its last run."""
    newest, start, items = runs[-1]
    body: dict[str, Any] = {
        "checkpoint_id": f"c{number}",
        "rev": f"c{number}-revision",
        "created_at": NOW,
        "metadata": {},
        "head": {"m": []},
        "manifest": [[["m"], [[A, newest, 0, start + len(items)]]]],
        "runs": [[A, *run] for run in runs],
    }
    if before is not None:
        body["before"] = before
    return body | ({"base": [f"c{number - 1}", f"c{number - 1}-revision"]} if number > 1 else {})


@pytest.fixture(params=["memory", "file", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
async def checkpointer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Checkpointer]:
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        with new_store(server.url, NoProxy(server.port)) as store:
            async with store.open() as checkpointer:
                yield checkpointer
        return
    url = {"memory": "memory", "file": f"file:{tmp_path}", "sqlite": f"sqlite:///{tmp_path}/t.db"}[request.param]
    async with get_checkpointer(url) as checkpointer:
        yield checkpointer


Post = Callable[[dict[str, Any]], Awaitable[httpx.Response]]


@pytest.fixture(params=["remembered", "read"])
async def post(request: pytest.FixtureRequest, checkpointer: Checkpointer) -> AsyncIterator[Post]:
    """Sends commits to one server, which remembers their bases, or each to a server that has yet to read its base."""
    async with asking(create_app(checkpointer)) as one:

        async def remembering(body: dict[str, Any]) -> httpx.Response:
            return await one.post("/threads/t/commits", json=body)

        async def reading(body: dict[str, Any]) -> httpx.Response:
            async with asking(create_app(checkpointer)) as another:
                return await another.post("/threads/t/commits", json=body)

        yield remembering if request.param == "remembered" else reading


async def _before(checkpointer: Checkpointer, number: int) -> list[str | None]:
    """The digests of the runs that a checkpoint shows, in order."""
    stored = await checkpointer.store.read("t", f"c{number}", DEFAULT_NAMESPACE)
    assert stored is not None
    return [run.before for run in sorted(stored.runs[A], key=lambda run: run.number)]


async def _committed(post: Post, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        answer = await post(body)
        assert answer.json().get("verdict") == "committed", answer.text


async def _refused(post: Post, body: dict[str, Any]) -> None:
    answer = await post(body)
    assert (answer.status_code, "`before` must be the digest" in answer.json()["detail"]) == (422, True), answer.text


FIRST = _body(1, [[0, 0, ITEMS[:100]], [1, 100, ITEMS[100:200]]])


async def test_a_made_up_digest_is_refused_and_a_true_one_is_kept(checkpointer: Checkpointer, post: Post) -> None:
    sort_keys = not checkpointer.store.engine.dialect.exact
    await _refused(post, {**FIRST, "before": [None, MADE_UP]})
    at_100, at_200, at_250 = (_digest(count, sort_keys=sort_keys) for count in (100, 200, 250))
    await _committed(post, {**FIRST, "before": [None, at_100]})
    second = [[2, 200, ITEMS[200:250]]]
    await _refused(post, _body(2, second, [MADE_UP]))
    await _refused(post, _body(2, second, [at_100]))
    await _committed(post, _body(2, second, [at_200]))
    # What is written in place of items that were written long before, and in place of the last one.
    for start, digest, wrong in ((100, at_100, at_200), (249, _digest(249, sort_keys=sort_keys), at_250)):
        third = [[3, start, ITEMS[start : start + 20]]]
        await _refused(post, _body(3, third, [wrong]))
        if start == 249:
            await _committed(post, _body(3, third, [digest]))
            assert await _before(checkpointer, 3) == [None, at_100, at_200, digest]


async def test_a_thread_can_be_read_after_what_a_made_up_digest_would_hide_is_deleted(
    checkpointer: Checkpointer, post: Post
) -> None:
    """The run of the second checkpoint shows nothing in the third, and goes with it."""
    at_200 = _digest(200, sort_keys=not checkpointer.store.engine.dialect.exact)
    await _committed(post, FIRST, _body(2, [[2, 200, ITEMS[200:250]]], [at_200]))
    await _refused(post, _body(3, [[3, 200, ITEMS[200:220]]], [MADE_UP]))
    await _committed(post, _body(3, [[3, 200, ITEMS[200:220]]], [at_200]))
    async with asking(create_app(checkpointer)) as client:
        assert (await client.delete("/threads/t/checkpoints/c2")).status_code == 204
        latest = await client.get("/threads/t/latest")
        assert (latest.status_code, latest.json()["state"]) == (200, {"m": ITEMS[:220]})


async def test_what_nobody_can_tell_is_stored_without_a_digest(checkpointer: Checkpointer, post: Post) -> None:
    """In the middle of a run that is not the newest, as no client of ours does it."""
    await _committed(post, FIRST, _body(2, [[2, 50, ITEMS[50:60]]], [MADE_UP]))
    stored = await checkpointer.store.read("t", "c2", DEFAULT_NAMESPACE)
    assert stored is not None
    assert [run.before for run in stored.runs[A] if run.number == 2] == [None]
    async with asking(create_app(checkpointer)) as client:
        assert (await client.get("/threads/t/latest")).json()["state"] == {"m": ITEMS[:60]}


async def test_an_item_that_is_longer_than_a_run_is_digested_as_well(checkpointer: Checkpointer, post: Post) -> None:
    text = "long " * 20_000
    first = digest_text(extended(BEGINNING, json.dumps(text)))
    await _committed(post, _body(1, [[0, 0, [text]]]), _body(2, [[1, 1, [1]]], [first]))
    assert await _before(checkpointer, 2) == [None, first]


async def test_clients_whose_server_does_not_remember_their_base_keep_all_digests(tmp_path: Path) -> None:
    """They append, and change the last message; an item that is longer than a run is among them."""
    store = f"sqlite:///{tmp_path}/t.db"
    with serving(tmp_path, store) as one, serving(tmp_path, store) as another:
        async with get_checkpointer(one.url) as first, get_checkpointer(another.url) as second:
            await first.save(AgentState().with_messages([Message.user("begin")]), "t")
            for client in (second, first, second):
                state = await client.load("t")
                assert isinstance(state, AgentState)
                state = state.with_messages([Message.user("Go on."), Message.assistant("long " * 20_000)])
                await client.save(state, "t")
                await client.save(state.with_messages_replaced((*state.messages[:-1], Message.user("No."))), "t")
    async with get_checkpointer(store) as inside:
        stored = await inside.store.read("t", None, DEFAULT_NAMESPACE)
        assert stored is not None
        runs = [run for of_branch in stored.runs.values() for run in of_branch if run.start]
        assert len(runs) == 9
        assert all(run.before for run in runs)
