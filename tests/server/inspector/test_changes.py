"""Forking, deleting and vacuuming by hand: a page shows what would happen, and an id is typed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from locus.memory.backends import MemoryCheckpointer
from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from locus.server import Quota
from tests.server.inspector.access import Page, logged_in, looking, serving, two_tenants
from tests.server.running import ACME, READER


@pytest.fixture
async def checkpointer() -> Checkpointer:
    return await two_tenants()


@pytest.fixture
async def client(checkpointer: Checkpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with looking(checkpointer.store, writes=True) as found:
        yield found


async def ids(checkpointer: Checkpointer, thread_id: str) -> list[str]:
    return [entry.checkpoint_id for entry in await checkpointer.store.history(thread_id, None, None, None)]


def form(page: Page) -> tuple[str, dict[str, str]]:
    """Where the form of a page goes, and what it has filled in."""
    forms = [at for at, (tag, values) in enumerate(page.elements) if tag == "form" and values.get("class") == "action"]
    assert len(forms) == 1
    action, filled = page.elements[forms[0]][1]["action"], {}
    for tag, values in page.elements[forms[0] + 1 :]:
        if tag == "form":
            break
        if tag == "input":
            filled[values["name"]] = values.get("value", "")
    return action, filled


async def sent(client: httpx.AsyncClient, address: str, **typed: str) -> httpx.Response:
    """Fill in the form of a page, and send it."""
    action, filled = form(Page((await client.get(address)).text))
    return await client.post(action, data=filled | typed)


async def test_a_checkpoint_is_forked(client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
    done = await sent(client, "/t/acme%2F1/fork?checkpoint=cp-1&ns=default", new_thread="acme/again")
    assert (done.status_code, done.headers["location"]) == (303, "/t/acme%2Fagain")
    assert await ids(checkpointer, "acme/again") == ["cp-1", "cp-0"]
    alone = await sent(client, "/t/acme%2F1/fork?checkpoint=cp-2", new_thread="acme/alone", ancestors="0")
    assert alone.status_code == 303
    assert await ids(checkpointer, "acme/alone") == ["cp-2"]
    latest = await sent(client, "/t/acme%2F1/fork")
    assert latest.headers["location"] == "/t/acme%2F1-again"
    assert await ids(checkpointer, "acme/1-again") == ["fork", "cp-1", "cp-0"]


async def test_a_fork_replaces_nothing(client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
    before = await ids(checkpointer, "other/1")
    taken = await sent(client, "/t/acme%2F1/fork", new_thread="other/1")
    assert taken.status_code == 409
    assert "exists already" in Page(taken.text).text
    assert await ids(checkpointer, "other/1") == before
    for wrong in ({"new_thread": ""}, {"new_thread": "a" * 256}, {"ancestors": "many"}, {"ancestors": "-1"}):
        assert (await sent(client, "/t/acme%2F1/fork", **wrong)).status_code in (400, 422)
    assert await checkpointer.store.list_threads(None, "*") == ["acme/1", "other/1"]


async def test_a_fork_takes_the_workspace_and_all_namespaces_along(client: httpx.AsyncClient) -> None:
    checkpointer = MemoryCheckpointer()
    backend = StorageBackend(checkpointer.store)
    for turn in range(2):
        await backend.save("t", {"n": turn}, f"c{turn}")
        await backend.save("t", {"files": turn}, namespace="workspace")
    await backend.save("g", {"n": 1}, "c", namespace="")
    await backend.save("g", {"n": 2}, "c", namespace="inner")
    async with looking(checkpointer.store, writes=True) as client:
        await sent(client, "/t/t/fork?checkpoint=c1", new_thread="t2")
        await sent(client, "/t/g/fork", new_thread="g2")
    assert await backend.load("t2", namespace="workspace") == {"files": 0}
    assert await checkpointer.store.namespaces("g2") == ["", "inner"]


async def test_a_thread_is_deleted_when_its_id_is_typed(client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
    page = Page((await client.get("/t/acme%2F1/delete")).text)
    assert "5 checkpoints" in page.text
    assert "It cannot be undone." in page.text
    for wrong in ("", "acme", "acme/2", "ACME/1", "cp-1"):
        answer = await sent(client, "/t/acme%2F1/delete", confirm=wrong)
        assert answer.status_code == 422
        assert "nothing was deleted" in answer.text
    assert len(await ids(checkpointer, "acme/1")) == 5
    done = await sent(client, "/t/acme%2F1/delete", confirm="acme/1")
    assert (done.status_code, done.headers["location"]) == (303, "/threads")
    assert await checkpointer.store.list_threads(None, "*") == ["other/1"]
    assert (await client.get("/t/acme%2F1/delete")).status_code == 404


async def test_a_checkpoint_is_deleted(client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
    page = Page((await client.get("/t/acme%2F1/delete?checkpoint=cp-2")).text)
    assert "It frees" in page.text
    wrong = await sent(client, "/t/acme%2F1/delete?checkpoint=cp-2", confirm="acme/1")
    assert wrong.status_code == 422
    done = await sent(client, "/t/acme%2F1/delete?checkpoint=cp-2", confirm="cp-2")
    assert (done.status_code, done.headers["location"]) == (303, "/t/acme%2F1")
    assert await ids(checkpointer, "acme/1") == ["fork", "cp-3", "cp-1", "cp-0"]


async def test_what_has_changed_since_is_not_deleted(client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
    action, filled = form(Page((await client.get("/t/acme%2F1/delete")).text))
    await StorageBackend(checkpointer.store).save("acme/1", {"n": 1}, "newer")
    answer = await client.post(action, data=filled | {"confirm": "acme/1"})
    assert answer.status_code == 409
    assert len(await ids(checkpointer, "acme/1")) == 6
    assert (await client.post(action, data=form(Page(answer.text))[1] | {"confirm": "acme/1"})).status_code == 303


async def test_an_id_without_a_shape_is_typed_as_it_is_shown() -> None:
    checkpointer = MemoryCheckpointer()
    await StorageBackend(checkpointer.store).save("a\u202eb\n", {"n": 1})
    async with looking(checkpointer.store, writes=True) as client:
        address = "/t/a%E2%80%AEb%0A/delete"
        assert "a\\u202eb\\n" in (await client.get(address)).text
        # Without its end it would be the id of another thread.
        assert (await sent(client, address, confirm="a\\u202eb")).status_code == 422
        done = await sent(client, address, confirm="a\\u202eb\\n")
        assert done.status_code == 303
    assert await checkpointer.store.list_threads(None, "*") == []


async def test_a_vacuum_shows_first_what_it_would_remove(client: httpx.AsyncClient, checkpointer: Checkpointer) -> None:
    assert "Nothing is removed before" in Page((await client.get("/vacuum")).text).text
    page = Page((await client.get("/vacuum?keep_last=1")).text)
    assert "It would remove 6 checkpoints" in page.text
    assert "2 threads were looked at" in page.text
    wrong = await sent(client, "/vacuum?keep_last=1", confirm="yes")
    assert wrong.status_code == 422
    assert "nothing was removed" in wrong.text
    assert len(await ids(checkpointer, "acme/1")) == 5
    done = await sent(client, "/vacuum?keep_last=1", confirm="vacuum")
    assert "Removed 6 checkpoints" in Page(done.text).text
    assert await ids(checkpointer, "acme/1") == ["fork", "cp-3"]
    for nothing in ({}, {"older_than": "", "keep_last": ""}, {"keep_last": "0"}, {"older_than": "soon"}):
        assert (await client.post("/vacuum", data={**nothing, "confirm": "vacuum"})).status_code == 422


async def test_a_token_that_may_only_read_changes_nothing(checkpointer: Checkpointer) -> None:
    rev = (await checkpointer.store.history("acme/1", 1, None, None))[0].rev
    async with logged_in(serving(checkpointer, inspector_writes=True), READER) as reader:
        for path, sending in (
            ("/ui/t/acme%2F1/fork", {"new_thread": "acme/2"}),
            ("/ui/t/acme%2F1/delete", {"confirm": "acme/1", "rev": rev}),
            ("/ui/vacuum", {"keep_last": "1", "confirm": "vacuum"}),
        ):
            assert (await reader.get(path)).status_code == 403
            assert (await reader.post(path, data=sending)).status_code == 403
    assert await checkpointer.store.list_threads(None, "*") == ["acme/1", "other/1"]
    assert len(await ids(checkpointer, "acme/1")) == 5


async def test_a_fork_counts_as_the_saves_that_it_is(checkpointer: Checkpointer) -> None:
    app = serving(checkpointer, inspector_writes=True, quota=Quota(4, None))
    async with logged_in(app, ACME) as acme:
        assert (await acme.post("/ui/t/acme%2F1/fork", data={"new_thread": "acme/2"})).status_code == 303
        refused = await acme.post("/ui/t/acme%2F1/fork", data={"new_thread": "acme/3"})
        assert refused.status_code == 429
        alone = {"new_thread": "acme/4", "ancestors": "0"}
        assert (await acme.post("/ui/t/acme%2F1/fork", data=alone)).status_code == 303
    assert await checkpointer.store.list_threads(None, "*") == ["acme/1", "acme/2", "acme/4", "other/1"]


async def test_a_form_is_bounded(client: httpx.AsyncClient) -> None:
    large = await client.post("/t/acme%2F1/fork", data={"new_thread": "a" * 70_000})
    assert large.status_code == 413
    twice = await client.post(
        "/t/acme%2F1/fork",
        content="new_thread=a&new_thread=b",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert twice.status_code == 400
    assert (await client.post("/t/acme%2F1/fork", json={"new_thread": "a"})).status_code == 415
    wrong = await client.post(
        "/t/acme%2F1/fork", content="new_thread=%ff", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert wrong.status_code == 400
