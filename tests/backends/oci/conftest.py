"""Stores on the stand-in, in place of what this machine may be configured with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from locus.errors import CheckpointError
from locus.memory.backends.oci_bucket.client import OCIObjectStore
from locus.memory.backends.oci_bucket.config import OCIConfig
from tests.servers.oci.server import OCIServer

OpenStore = Callable[..., OCIObjectStore]


@asynccontextmanager
async def failing(
    store: OCIObjectStore, kind: type[CheckpointError], match: str | None = None
) -> AsyncIterator[pytest.ExceptionInfo[CheckpointError]]:
    """What is done inside raises, and the store's word for it is this one."""
    with pytest.raises(kind, match=match) as caught:
        try:
            yield caught
        except store.driver_errors as error:
            raise store.translate(error) from error


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of this machine takes part."""
    for name in ("OCI_CONFIG_FILE", "OCI_CONFIG_PROFILE", "OCI_REGION", "OCI_RESOURCE_PRINCIPAL_VERSION"):
        monkeypatch.delenv(name, raising=False)


@pytest_asyncio.fixture
async def open_store(oci_server: OCIServer, oci_prefix: str) -> AsyncIterator[OpenStore]:
    """Opens stores under one prefix, and closes them at the end of the test."""
    opened: list[OCIObjectStore] = []

    def open_one(
        *, bucket: str = oci_server.bucket, namespace: str = oci_server.namespace, **more: Any
    ) -> OCIObjectStore:
        options = {
            "config_file": oci_server.config_file,
            "service_endpoint": oci_server.endpoint,
            "timeout": (5.0, 5.0),
            **more,
        }
        opened.append(OCIObjectStore(OCIConfig(bucket, namespace, oci_prefix, **options)))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_store: OpenStore) -> OCIObjectStore:
    return open_store()
