"""Another tenant's threads, on every route: what is there and what is not are the same page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from locus.memory.checkpointer import Checkpointer
from tests.server.inspector.access import SECRET, Page, logged_in, serving, two_tenants
from tests.server.inspector.walking import Step, steps
from tests.server.running import ACME, ACME_READER, WRITER

STEPS = list(steps(writes=True, base="/ui"))
ABOUT_A_THREAD = [step for step in STEPS if step.about_a_thread]
ABOUT_ALL = [step for step in STEPS if not step.about_a_thread]


@pytest.fixture
async def checkpointer() -> Checkpointer:
    return await two_tenants()


@pytest.fixture(params=[ACME, ACME_READER], ids=["writer", "reader"])
async def client(request: pytest.FixtureRequest, checkpointer: Checkpointer) -> AsyncIterator[httpx.AsyncClient]:
    async with logged_in(serving(checkpointer, inspector_writes=True), request.param) as found:
        yield found


async def asked(client: httpx.AsyncClient, step: Step, thread_id: str, rev: str = "") -> httpx.Response:
    async with asyncio.timeout(30):  # what another tenant's thread is not is a stream that does not end
        if step.method == "POST":
            return await client.post(step.address(thread_id), data=step.filled(thread_id, rev))
        return await client.request(step.method, step.address(thread_id))


async def contents(checkpointer: Checkpointer) -> list[tuple[str, str, str]]:
    found = []
    for thread_id in await checkpointer.store.list_threads(None, "*"):
        for entry in await checkpointer.store.history(thread_id, None, None, None):
            found.append((entry.thread_id, entry.checkpoint_id, entry.rev))
    return found


def test_every_route_is_walked() -> None:
    paths = {step.path for step in STEPS}
    for path in ("/ui/threads", "/ui/search", "/ui/t/{thread_id}", "/ui/t/{thread_id}/delete", "/ui/vacuum"):
        assert path in paths
    assert {step.path for step in ABOUT_A_THREAD if step.method == "POST"} == {
        "/ui/t/{thread_id}/fork",
        "/ui/t/{thread_id}/delete",
    }


@pytest.mark.parametrize("step", ABOUT_A_THREAD, ids=str)
async def test_absent_looks_like_forbidden(client: httpx.AsyncClient, checkpointer: Checkpointer, step: Step) -> None:
    before = await contents(checkpointer)
    rev = (await checkpointer.store.history("other/1", 1, None, None))[0].rev
    there = await asked(client, step, "other/1", rev)
    not_there = await asked(client, step, "other/none")
    own = await asked(client, step, "acme/none")
    assert there.status_code == not_there.status_code == own.status_code
    assert there.status_code in (403, 404)
    assert there.text == not_there.text == own.text
    assert SECRET not in there.text
    ignored = {"x-request-id", "content-length"}
    headers = [{k: v for k, v in one.headers.items() if k not in ignored} for one in (there, not_there, own)]
    assert headers[0] == headers[1] == headers[2]
    assert await contents(checkpointer) == before


@pytest.mark.parametrize(
    "step", [step for step in ABOUT_A_THREAD if step.method == "GET" and not step.streams], ids=str
)
async def test_its_own_are_there(client: httpx.AsyncClient, step: Step) -> None:
    answer = await asked(client, step, "acme/1")
    may_write = "may change the store" in (await client.get("/ui/threads")).text
    if step.path.endswith(("/fork", "/delete")) and not may_write:
        assert answer.status_code == 403
    else:
        assert answer.status_code in (200, 303), answer.text
    if answer.headers.get("content-type", "").startswith("text/html") and "attachment" not in str(answer.headers):
        assert Page(answer.text).is_harmless()


@pytest.mark.parametrize("step", [step for step in ABOUT_ALL if step.method == "GET"], ids=str)
async def test_what_is_about_all_is_about_its_own(client: httpx.AsyncClient, step: Step) -> None:
    answer = await client.get(step.address())
    for _ in range(50):
        if "refresh" not in answer.headers:
            break
        answer = await client.get(step.address())
    assert answer.status_code in (200, 303, 403)
    for theirs in ("other/", SECRET, "b3RoZXIv"):
        assert theirs not in answer.text


async def test_what_all_threads_take_is_what_its_own_take(checkpointer: Checkpointer) -> None:
    app = serving(checkpointer)
    async with logged_in(app, ACME_READER) as acme, logged_in(app, WRITER) as operator:
        for client, threads in ((acme, "in 1 threads"), (operator, "in 2 threads")):
            begun = await client.post("/ui/stats", data={"keep_last": "1"})
            assert begun.headers["location"] == "/ui/stats?keep_last=1"
            answer = await client.get("/ui/stats?keep_last=1")
            assert threads in Page(answer.text).text
            assert ("other/1" in answer.text) == (client is operator)


async def test_a_tenant_vacuums_its_own(checkpointer: Checkpointer) -> None:
    async with logged_in(serving(checkpointer, inspector_writes=True), ACME) as acme:
        shown = Page((await acme.get("/ui/vacuum?keep_last=1")).text).text
        assert "It would remove 3 checkpoints" in shown
        done = await acme.post("/ui/vacuum", data={"keep_last": "1", "confirm": "vacuum"})
        assert "Removed 3 checkpoints" in Page(done.text).text
    assert len(await checkpointer.store.history("acme/1", None, None, None)) == 2
    assert len(await checkpointer.store.history("other/1", None, None, None)) == 5


async def test_a_fork_stays_with_the_tenant(checkpointer: Checkpointer) -> None:
    async with logged_in(serving(checkpointer, inspector_writes=True), ACME) as acme:
        before = await contents(checkpointer)
        taken = await acme.post("/ui/t/acme%2F1/fork", data={"new_thread": "other/1"})
        free = await acme.post("/ui/t/acme%2F1/fork", data={"new_thread": "other/free"})
        assert taken.status_code == free.status_code == 404
        assert taken.text == free.text
        assert await contents(checkpointer) == before


async def test_an_error_names_no_thread_of_another_tenant(checkpointer: Checkpointer) -> None:
    """Where the command line says what was most likely meant, it looks at all threads."""
    async with logged_in(serving(checkpointer), ACME) as acme:
        for path in (
            "t/acme%2F",
            "t/acme%2F1/c/none",
            "t/acme%2F1/diff?a=1&b=99",
            "t/acme%2F1/bisect?appears=x&to=none",
        ):
            answer = await acme.get(f"/ui/{path}")
            assert answer.status_code == 404
            assert "other" not in answer.text
