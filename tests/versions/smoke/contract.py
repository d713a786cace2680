"""The quick part of the contract, on SQLite: run by pytest, in an environment that has little else."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.testing.contract import REQUIRED
from locus.testing.laws.listing.order import OrderLaws
from locus.testing.laws.saving.conflicts import ConflictLaws
from locus.testing.laws.saving.copies import CopyLaws
from locus.testing.laws.saving.lineage import LineageLaws
from locus.testing.laws.saving.pending_writes import PendingWritesLaws
from locus.testing.laws.search.metadata import MetadataLaws
from locus.testing.laws.search.words import SearchLaws
from locus.testing.stores import TestStore
from tests.backends.embedded import SQLiteStore


class TestSQLite(
    ConflictLaws,
    CopyLaws,
    LineageLaws,
    MetadataLaws,
    OrderLaws,
    SearchLaws,
    PendingWritesLaws,
):
    """Some that are soon done, and use all that the suite is made of."""

    required = REQUIRED["sqlite"]

    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return SQLiteStore(tmp_path)
