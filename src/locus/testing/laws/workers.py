"""The worker processes of a law."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest

from locus.testing.laws.base import Laws
from locus.testing.processes.workers import Crew
from locus.testing.stores import DurableTestStore


class WorkerLaws(Laws):
    """Base of the laws that need other processes. The fixture `store` gives a `DurableTestStore`."""

    worker_modules: ClassVar[Sequence[str]] = ()
    """Modules that a process has to import before `get_checkpointer(store.url)` works there."""

    @pytest.fixture
    def crew(self, store: DurableTestStore) -> Iterator[Crew]:
        """Worker processes; whatever the test leaves running is killed."""
        with Crew(store.url, self.worker_modules) as crew:
            yield crew
