"""S3 that fails: errors, refusals, lost answers and cut connections. A save either happened or raised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from yarl import URL

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConflictError
from locus.memory.backends import s3_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import message
from tests.backends.s3.store import objects_of, set_credentials
from tests.servers.proxy import Proxy
from tests.servers.seaweedfs import SeaweedServer

Fault = Callable[["FaultyS3", web.Request, bytes], Awaitable[web.StreamResponse | None]]


class FaultyS3:
    """Passes requests on to a server, unless the next fault has something else in mind."""

    def __init__(self, server: SeaweedServer) -> None:
        self._server = server
        self.faults: list[Fault] = []
        self.matches: Callable[[web.Request], bool] = is_event
        self.seen = 0
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self.faults and self.matches(request):
            self.seen += 1
            answer = await self.faults.pop(0)(self, request, body)
            if answer is not None:
                return answer
        return await self.forward(request, body)

    async def forward(self, request: web.Request, body: bytes) -> web.Response:
        url = URL(f"{self._server.url}{request.raw_path}", encoded=True)
        async with (
            ClientSession(auto_decompress=False) as session,
            session.request(request.method, url, headers=request.headers, data=body) as answer,
        ):
            kept = {name: value for name, value in answer.headers.items() if name in ("Content-Type", "ETag")}
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)


def is_event(request: web.Request) -> bool:
    return request.method == "PUT" and "/s/" in request.path


def is_list(request: web.Request) -> bool:
    return "list-type" in request.query


def refused(status: int, code: str) -> Fault:
    """The server says no, and has done nothing."""

    async def fault(_server: FaultyS3, _request: web.Request, _body: bytes) -> web.StreamResponse:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>as the test asks</Message></Error>"
        return web.Response(status=status, text=text, content_type="application/xml")

    return fault


def answered_falsely(status: int, code: str) -> Fault:
    """The server has done it, and says that it has not."""

    async def fault(server: FaultyS3, request: web.Request, body: bytes) -> web.StreamResponse:
        await server.forward(request, body)
        return await refused(status, code)(server, request, body)  # type: ignore[return-value]

    return fault


async def cut_before(_server: FaultyS3, request: web.Request, _body: bytes) -> web.StreamResponse:
    """The connection breaks before the server has got the request."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_after(server: FaultyS3, request: web.Request, body: bytes) -> web.StreamResponse:
    """The connection breaks when the server has done it, before it can say so."""
    await server.forward(request, body)
    return await cut_before(server, request, body)


def slow(seconds: float) -> Fault:
    async def fault(_server: FaultyS3, _request: web.Request, _body: bytes) -> None:
        await asyncio.sleep(seconds)

    return fault


@pytest_asyncio.fixture
async def faulty(s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyS3]:
    set_credentials(s3_server, monkeypatch)
    proxy = FaultyS3(s3_server)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy.port = runner.addresses[0][1]
    yield proxy
    await runner.cleanup()


@pytest_asyncio.fixture
async def opened(
    faulty: FaultyS3, s3_server: SeaweedServer, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., Checkpointer]]:
    handles: list[Checkpointer] = []
    prefix = f"faults-{id(request)}-{asyncio.get_running_loop().time()}"

    def open_one(**options: Any) -> Checkpointer:
        endpoint = f"http://127.0.0.1:{faulty.port}"
        handles.append(s3_checkpointer(s3_server.bucket, prefix, **{"endpoint_url": endpoint, **options}))
        return handles[-1]

    yield open_one
    faulty.faults.clear()
    objects = objects_of(handles[0])
    await objects.delete([listed.key for listed in await objects.list("")])
    for handle in handles:
        await handle.close()


Open = Callable[..., Checkpointer]

PASSING: dict[str, Fault] = {
    "500": refused(500, "InternalError"),
    "503 SlowDown": refused(503, "SlowDown"),
    "429": refused(429, "TooManyRequests"),
    "409 conflict": refused(409, "ConditionalRequestConflict"),
    "500, but done": answered_falsely(500, "InternalError"),
    "503, but done": answered_falsely(503, "SlowDown"),
    "cut in the request": cut_before,
    "cut before the answer": cut_after,
}
DONE = ("500, but done", "503, but done", "cut before the answer")
"""After these the save is found, also by one who does not try again."""


@pytest.mark.parametrize("fault", PASSING)
async def test_what_passes_is_not_noticed(faulty: FaultyS3, opened: Open, fault: str) -> None:
    checkpointer, state = opened(), AgentState()
    names = [await checkpointer.save(state, "t")]
    for number in range(3):
        state = state.with_message(message(number))
        faulty.faults = [PASSING[fault]]
        names.append(await checkpointer.save(state, "t"))
        assert not faulty.faults
    assert await opened().list_checkpoints("t") == names[::-1]
    assert await opened().load("t") == state


@pytest.mark.parametrize("fault", PASSING)
async def test_a_save_that_raised_can_be_repeated(faulty: FaultyS3, opened: Open, fault: str) -> None:
    """Nobody can tell whether it happened; saved again under its id, it is there once."""
    checkpointer = opened(max_retries=0)
    state = AgentState().with_message(message(1))
    await checkpointer.save(state, "t", "first")
    later = state.with_message(message(2))
    # aiohttp itself tries again when a connection that was used before breaks.
    faulty.faults = [PASSING[fault]] * (2 if fault.startswith("cut") else 1)
    if fault in DONE:
        await checkpointer.save(later, "t", "second")
    else:
        with pytest.raises(BackendUnavailableError) as raised:
            await checkpointer.save(later, "t", "second")
        assert raised.value.__cause__ is not None
    assert not faulty.faults
    await checkpointer.save(later, "t", "second")
    assert await opened().list_checkpoints("t") == ["second", "first"]
    assert await opened().load("t") == later


async def test_a_save_that_took_too_long_happens_once(faulty: FaultyS3, opened: Open) -> None:
    checkpointer = opened(timeout=1.5, max_retries=2)
    await checkpointer.save(AgentState(), "t", "first")
    faulty.faults = [slow(2.0)]
    await checkpointer.save(AgentState(iteration=1), "t", "second")
    await asyncio.sleep(1.0)
    assert await opened().list_checkpoints("t") == ["second", "first"]


async def test_a_put_that_is_cut_in_the_middle_leaves_nothing(s3_server: SeaweedServer, opened: Open) -> None:
    state = AgentState()
    checkpointer = opened(max_retries=0)
    await checkpointer.save(state, "t", "first")
    with Proxy(s3_server.port) as proxy:
        through = opened(max_retries=0, endpoint_url=f"http://127.0.0.1:{proxy.port}")
        assert await through.load("t") is not None
        proxy.cut_after(to_server=100_000)
        proxy.refuse()
        large = state.with_message(Message.user("x" * 400_000))
        with pytest.raises(BackendUnavailableError):
            await through.save(large, "t", "second")
        assert await opened().list_checkpoints("t") == ["first"]
        proxy.accept()
        await through.save(large, "t", "second")
    assert await opened().load("t") == large


async def test_a_refused_list_is_no_empty_thread(faulty: FaultyS3, opened: Open) -> None:
    await opened().save(AgentState(), "t")
    faulty.matches = is_list
    for code in ("AccessDenied", "ExpiredToken"):
        for verb in ("load", "exists", "list_checkpoints"):
            faulty.faults = [refused(403, code)]
            with pytest.raises(BackendUnavailableError, match=code):
                await getattr(opened(), verb)("t")


async def test_a_conflict_is_told_also_where_the_answer_was_lost(faulty: FaultyS3, opened: Open) -> None:
    one, other = opened(), opened()
    first = await one.save(AgentState(), "t")
    assert await other.load("t") is not None
    faulty.faults = [cut_after]
    second = await one.save(AgentState(iteration=1), "t", if_latest=first)
    with pytest.raises(ConflictError) as told:
        await other.save(AgentState(iteration=2), "t", if_latest=first)
    assert told.value.latest == second


async def test_a_server_that_stops_and_comes_back_is_waited_for(
    faulty: FaultyS3, opened: Open, s3_server: SeaweedServer
) -> None:
    checkpointer = opened(timeout=3.0, max_retries=6)
    await checkpointer.save(AgentState(), "t", "first")
    s3_server.pause()
    try:
        saving = asyncio.ensure_future(checkpointer.save(AgentState(iteration=1), "t", "second"))
        await asyncio.sleep(1)
        assert not saving.done()
    finally:
        s3_server.resume()
    assert await saving == "second"
    assert await opened().list_checkpoints("t") == ["second", "first"]


async def test_saves_that_returned_survive_the_death_of_the_server(
    faulty: FaultyS3, opened: Open, s3_server: SeaweedServer
) -> None:
    checkpointer, saved, state = opened(max_retries=0, timeout=5.0), dict[str, AgentState](), AgentState()

    async def save_on() -> None:
        nonlocal state
        while True:
            state = state.with_message(message(len(saved)))
            saved[await checkpointer.save(state, "t")] = state
            if len(saved) == 20:
                enough.set()

    enough = asyncio.Event()
    saving = asyncio.ensure_future(save_on())
    await asyncio.wait([saving, asyncio.ensure_future(enough.wait())], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(s3_server.kill)
    with pytest.raises(BackendUnavailableError):
        await saving
    await asyncio.to_thread(s3_server.restart)
    reader = opened()
    assert len(saved) >= 20
    assert set(saved) <= set(await reader.list_checkpoints("t", limit=10_000))
    for name in list(saved)[-3:]:
        assert await reader.load("t", name) == saved[name]
