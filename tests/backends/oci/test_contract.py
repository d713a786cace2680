"""The contract, kept by a bucket of OCI Object Storage: Oracle's SDK, against the server that stands in for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from oci.retry import NoneRetryStrategy  # type: ignore[import-untyped]

from locus.memory.backends.objects.engine import ObjectEngine
from locus.memory.backends.objects.schema import thread_folder, thread_name
from locus.memory.backends.oci_bucket.backend import OCIBucketBackend
from locus.memory.checkpointer import Checkpointer
from locus.testing import REQUIRED
from locus.testing.contract import CoreContract, DurableLaws
from locus.testing.laws.durability.crash import CrashLaws
from locus.testing.laws.durability.damage import DamageLaws
from locus.testing.laws.durability.outage import OutageLaws
from locus.testing.laws.durability.processes import ProcessLaws
from locus.testing.laws.durability.stalls import StallLaws
from locus.testing.laws.handles.capabilities import CapabilityLaws
from locus.testing.laws.handles.lifecycle import HandleLaws
from locus.testing.laws.listing.thread_lists import ThreadPatternLaws
from locus.testing.laws.names.ids import IdLaws
from locus.testing.laws.removal.deletion import DeletionLaws
from locus.testing.laws.saving.conflicts import ConflictLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.saving.round_trip import RoundTripLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.stateful import StatefulLaws
from locus.testing.stores import DurableTestStore, Stall, StallTestStore
from tests.backends.effort import FewestRepetitions
from tests.backends.stalls import stalling_on_the_way
from tests.servers.oci.fixtures import quick_retries
from tests.servers.oci.server import OCIServer


class OCIStore(DurableTestStore, StallTestStore):
    """A prefix of the server's bucket."""

    def __init__(self, server: OCIServer, prefix: str) -> None:
        self._server = server
        self._prefix = prefix

    @property
    def url(self) -> str:
        return self._server.url_of(self._prefix)

    def open(self, *, ttl_seconds: float | None = None, **options: Any) -> Checkpointer:
        given = {
            "config_file": self._server.config_file,
            "service_endpoint": self._server.endpoint,
            "retry_strategy": quick_retries(),
            "ttl_seconds": ttl_seconds,
        }
        return OCIBucketBackend(self._server.bucket, self._server.namespace, self._prefix, **(given | options))

    async def corrupt(self, thread_id: str) -> None:
        """Cut off the end of every text."""
        async with self.open() as checkpointer:
            engine = checkpointer.store.engine
            assert isinstance(engine, ObjectEngine)
            found = await engine.store.list(thread_folder(thread_name(thread_id)))
            assert found
            for listed in found:
                body = await engine.store.get(listed.key)
                assert body is not None
                record, *texts = body.split(b"\n")
                spoilt = b"\n".join([record, *(text[:-2] for text in texts)])
                await engine.store.put(listed.key, spoilt, if_absent=False)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        self._server.kill()
        yield
        self._server.start()

    @asynccontextmanager
    async def stalling(self, seconds: float) -> AsyncIterator[Stall]:
        def open_through(port: int) -> Checkpointer:
            once = NoneRetryStrategy()
            return self.open(service_endpoint=f"http://127.0.0.1:{port}", timeout=seconds, retry_strategy=once)

        async with stalling_on_the_way(self._server.port, open_through) as stall:
            yield stall


class OnOCI(FewestRepetitions):
    """For both classes below. A request takes Oracle's SDK some milliseconds of the processor."""

    required = REQUIRED["oci"]

    @pytest.fixture
    def store(self, oci_server: OCIServer, oci_prefix: str) -> OCIStore:
        return OCIStore(oci_server, oci_prefix)


@pytest.mark.oci
class TestOCI(
    OnOCI,
    CapabilityLaws,
    RoundTripLaws,  # bodies of objects
    IdLaws,  # ids become names of objects
    ThreadPatternLaws,  # lists, as the service makes them
    DeletionLaws,  # requests that delete many objects
    ConflictLaws,  # a put that is refused because the object exists
    DamageLaws,
    HandleLaws,  # worker threads, several event loops
    ProcessLaws,  # and forks
    OutageLaws,
    StallLaws,
    CrashLaws,
    StatefulLaws,
):
    """The engine keeps the whole contract on S3. Here it keeps the laws that can differ for another client."""


@pytest.mark.oci
@pytest.mark.soak
class TestWholeContractOnOCI(OnOCI, CoreContract, MetadataLaws, CopyLaws, OutageLaws, StallLaws, DurableLaws):
    """In `make soak`: every law."""
