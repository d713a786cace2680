"""Over HTTPS, where Oracle's SDK has connections of its own: as it is in the cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from locus.errors import BackendUnavailableError
from locus.memory.backends.oci_bucket.client import LARGE, OCIObjectStore
from locus.memory.backends.oci_bucket.config import OCIConfig
from tests.backends.oci.conftest import failing
from tests.servers.oci.fixtures import quick_retries
from tests.servers.oci.server import OCIServer

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module")
def secure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OCIServer]:
    with OCIServer(tmp_path_factory.mktemp("oci") / "secure", tls=True) as server:
        yield server


def open_store(server: OCIServer, prefix: str) -> OCIObjectStore:
    config = OCIConfig(
        server.bucket,
        server.namespace,
        prefix,
        config_file=server.config_file,
        service_endpoint=server.endpoint,
        timeout=(5.0, 5.0),
        retry_strategy=quick_retries(),
    )
    return OCIObjectStore(config)


@pytest_asyncio.fixture
async def store(
    secure_server: OCIServer, oci_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OCIObjectStore]:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secure_server.certificate))
    store = open_store(secure_server, oci_prefix)
    yield store
    await store.close()


async def test_small_objects_are_sent_unasked_and_large_ones_are_not(
    store: OCIObjectStore, secure_server: OCIServer
) -> None:
    secure_server.counts(reset=True)
    assert await store.put("small", b"body", if_absent=True)
    assert not await store.put("small", b"body", if_absent=True)
    assert await store.get("small") == b"body"
    assert secure_server.counts(reset=True) == {"PutObject": 2, "GetObject": 1}
    body = b"x" * LARGE
    assert await store.put("large", body, if_absent=True)
    assert not await store.put("large", body, if_absent=True)
    assert await store.get("large") == body
    assert secure_server.counts() == {"PutObject": 2, "GetObject": 1, "100-continue": 2}


async def test_a_certificate_that_is_not_trusted(
    secure_server: OCIServer, oci_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    store = open_store(secure_server, oci_prefix)
    async with failing(store, BackendUnavailableError, match="did not answer: SSL"):
        await store.get("a")
    await store.close()


async def test_a_proxy_is_taken_from_the_environment(
    secure_server: OCIServer, oci_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    store = open_store(secure_server, oci_prefix)
    async with failing(store, BackendUnavailableError, match=r"did not answer: .*Proxy"):
        await store.get("a")
    await store.close()
