"""A service that fails, throttles, hangs, and goes away in the middle: a request is done, or it raises."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from locus.errors import BackendUnavailableError, CheckpointError
from locus.memory.backends.oci_bucket.client import ATTEMPTS, OCIObjectStore
from locus.memory.backends.oci_bucket.config import OCIConfig
from tests.backends.oci.conftest import OpenStore, failing
from tests.servers.oci.faults import Fault, Kind
from tests.servers.oci.fixtures import quick_retries
from tests.servers.oci.server import OCIServer

pytestmark = pytest.mark.oci

EVER = 1_000


@pytest.mark.parametrize(
    "fault",
    [
        Fault("answer", times=2, status=500, code="InternalServerError"),
        Fault("answer", times=2, status=503, code="ServiceUnavailable"),
        Fault("answer", times=2, status=429, code="TooManyRequests"),
        Fault("answer", times=2, status=409, code="ConcurrentObjectUpdate"),
        Fault("refuse", times=2),
        Fault("unread", times=2),
        Fault("hang", times=1, seconds=0.6),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status if fault.kind == 'answer' else ''}".strip(),
)
async def test_what_passes_is_sat_out(open_store: OpenStore, oci_faulty: OCIServer, fault: Fault) -> None:
    store = open_store(timeout=(1.0, 0.3))
    body = b"body" * 100_000
    oci_faulty.fail(fault)
    await store.put("a", body, if_absent=False)
    oci_faulty.fail(fault)
    assert await store.get("a") == body
    oci_faulty.fail(fault)
    assert [item.key for item in await store.list("")] == ["a"]
    oci_faulty.fail(fault)
    await store.delete(["a"])
    oci_faulty.fail()
    assert await store.get("a") is None


async def test_a_body_that_breaks_off_is_read_again(store: OCIObjectStore, oci_faulty: OCIServer) -> None:
    body = b"body" * 50_000
    await store.put("a", body, if_absent=True)
    oci_faulty.counts(reset=True)
    oci_faulty.fail(Fault("half", times=2, operation="GetObject"))
    assert await store.get("a") == body
    assert oci_faulty.counts() == {"GetObject": 3}
    oci_faulty.fail(Fault("half", times=EVER))
    async with failing(store, BackendUnavailableError, match="did not answer"):
        await store.get("a")
    async with failing(store, BackendUnavailableError):
        await store.list("")


@pytest.mark.parametrize("kind", ["lost", "late"])
async def test_an_object_whose_answer_was_lost_is_there_already(
    open_store: OpenStore, oci_faulty: OCIServer, kind: Kind
) -> None:
    """The store cannot know whose object it is, and says so; the engine compares."""
    store = open_store()
    oci_faulty.fail(Fault(kind, operation="PutObject", status=500))
    assert not await store.put("a", b"mine", if_absent=True)
    assert await store.get("a") == b"mine"


async def test_a_service_that_goes_on_failing_is_an_outage(store: OCIObjectStore, oci_faulty: OCIServer) -> None:
    from oci.exceptions import ServiceError  # type: ignore[import-untyped]

    await store.put("a", b"1", if_absent=True)
    oci_faulty.counts(reset=True)
    oci_faulty.fail(Fault("answer", times=EVER, status=503))
    started = time.monotonic()
    async with failing(store, BackendUnavailableError, match=r"503 ServiceUnavailable.*opc-request-id") as caught:
        await store.get("a")
    assert isinstance(caught.value.__cause__, ServiceError)
    assert oci_faulty.counts() == {"GetObject": ATTEMPTS}
    assert time.monotonic() - started < 10
    oci_faulty.fail()
    assert await store.get("a") == b"1", "no circuit breaker answers in its place"


async def test_throttling_says_so(open_store: OpenStore, oci_faulty: OCIServer) -> None:
    from oci.retry import NoneRetryStrategy  # type: ignore[import-untyped]

    store = open_store(retry_strategy=NoneRetryStrategy())
    oci_faulty.counts(reset=True)
    oci_faulty.fail(Fault("answer", times=EVER, status=429, code="TooManyRequests"))
    async with failing(store, BackendUnavailableError, match="limits the requests"):
        await store.put("a", b"", if_absent=True)
    assert oci_faulty.counts() == {"PutObject": 1}, "the retry strategy is the one that was given"


@pytest.mark.parametrize(("status", "code"), [(413, "RequestEntityTooLarge"), (400, "InvalidParameter")])
async def test_what_will_not_pass_is_not_tried_again(
    store: OCIObjectStore, oci_faulty: OCIServer, status: int, code: str
) -> None:
    oci_faulty.counts(reset=True)
    oci_faulty.fail(Fault("answer", times=EVER, status=status, code=code))
    async with failing(store, CheckpointError, match=f"{status} {code}"):
        await store.put("a", b"", if_absent=True)
    assert oci_faulty.counts() == {"PutObject": 1}


async def test_a_server_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    with OCIServer(tmp_path / "server") as server:
        config = OCIConfig(
            server.bucket,
            server.namespace,
            "p/",
            config_file=server.config_file,
            service_endpoint=server.endpoint,
            timeout=(1.0, 1.0),
            retry_strategy=quick_retries(),
        )
        store = OCIObjectStore(config)
        assert await store.put("a", b"1", if_absent=True)
        server.kill()
        for call in (store.get("a"), store.list(""), store.put("b", b"", if_absent=True), store.delete(["a"])):
            async with failing(store, BackendUnavailableError, match=server.endpoint) as caught:
                await call
            assert caught.value.__cause__ is not None
        server.start()
        assert await store.get("a") == b"1"
        server.pause()
        async with failing(store, BackendUnavailableError, match=r"[Tt]ime"):
            await asyncio.wait_for(store.get("a"), 20)
        server.resume()
        assert await store.get("a") == b"1"
        await store.close()


async def test_a_request_that_was_cancelled_leaves_the_store_usable(
    store: OCIObjectStore, oci_faulty: OCIServer
) -> None:
    oci_faulty.fail(Fault("hang", seconds=2.0))
    waiting = asyncio.ensure_future(store.put("a", b"1", if_absent=True))
    await asyncio.sleep(0.5)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert await store.put("b", b"2", if_absent=True)
    await store.close()
    assert await store.get("a") == b"1", "closing waits for what is under way"
