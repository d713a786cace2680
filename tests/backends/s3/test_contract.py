"""The contract, kept by S3: on SeaweedFS, which has conditional writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import CoreContract, DurableLaws, StallLaws
from locus.testing.laws.durability.outage import OutageLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.search.metadata import MetadataLaws
from tests.backends.effort import FewestRepetitions
from tests.backends.proxied import proxy_for
from tests.backends.s3.store import S3Store, set_credentials
from tests.servers.pool import External
from tests.servers.seaweedfs import SeaweedServer


class TestS3(FewestRepetitions, CoreContract, MetadataLaws, CopyLaws, OutageLaws, StallLaws, DurableLaws):
    """`TestObjects` keeps the same laws with the same engine over objects in memory, and repeats them most.

    Only requests change anything, and the tests of interleavings let processes end between any two of them.
    """

    required = REQUIRED["s3"]
    queried_every = 5
    # Writers of one thread wait for each other's requests.
    saves_while_removing: ClassVar[Mapping[str, int]] = {"checkpoints": 15, "vacuum": 15, "thread": 40}
    # What a handle imports when it is opened: each process that is killed would take a second for it.
    worker_modules = ("aiohttp", "botocore.auth", "botocore.credentials", "botocore.session")

    @pytest.fixture
    def store(
        self, s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> Iterator[S3Store]:
        set_credentials(s3_server, monkeypatch)
        with proxy_for(request, s3_server.port) as proxy:
            store = S3Store(s3_server, proxy)
            yield store
            if isinstance(s3_server, External):
                # One of the tests' own is thrown away as a whole.
                store.remove()
