"""The laws that sealing could break, on the stores that need a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from locus.testing.contract import EVERYTHING
from locus.testing.laws.loading.ancestors import AncestorLaws
from locus.testing.laws.loading.cached_loads import CachedLoadLaws
from locus.testing.laws.loading.exports import ExportLaws
from locus.testing.laws.loading.item_ranges import ItemRangeLaws
from locus.testing.laws.loading.partial_reads import PartialReadLaws
from locus.testing.laws.saving.conflicts import ConflictLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.saving.pending_writes import PendingWritesLaws
from locus.testing.laws.saving.round_trip import RoundTripLaws
from locus.testing.laws.saving.shared_commits import SharedCommitLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.stores import TestStore
from tests.backends.effort import FewestRepetitions
from tests.backends.every_store import SERVERS, store_on_server
from tests.encryption.stores import SealedStore


class OnServers(FewestRepetitions):
    required = replace(EVERYTHING, search=False)

    @pytest.fixture(params=SERVERS)
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
        with store_on_server(request.param, request, tmp_path) as store:
            yield SealedStore(store)


class TestSealedOnServers(OnServers, PartialReadLaws, MetadataLaws, CopyLaws):
    """Parts, marks of metadata, and copies, which go on with the seals of their source."""


@pytest.mark.soak
class TestMoreLawsOnServers(
    OnServers,
    RoundTripLaws,
    PendingWritesLaws,
    AncestorLaws,
    CachedLoadLaws,
    ExportLaws,
    ItemRangeLaws,
    ConflictLaws,
    SharedCommitLaws,
):
    """In `make soak`: what sealing could break elsewhere."""
