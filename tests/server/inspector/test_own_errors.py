"""What a store says about how it is set up may name hosts and files: no page shows it."""

from __future__ import annotations

import pytest

from locus.errors import ConfigurationError
from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore
from tests.server.inspector.access import logged_in, serving
from tests.server.running import ACME_READER

SECRET = "/srv/secret-host.db"


class Misconfigured(MemoryEngine):
    async def setup(self) -> None:
        raise ConfigurationError(f"{SECRET} cannot be opened")


@pytest.mark.parametrize(
    "page",
    [
        "threads",
        "threads?q=a",
        "threads?meta=a%3D1",
        "search?q=word",
        "t/acme%2F1",
        "t/acme%2F1?at=2026-01-31T12:00:00",
        "t/acme%2F1/bisect?appears=a",
        "t/acme%2F1/c/a",
        "t/acme%2F1/c/a?view=value&path=%5B%22a%22%5D",
        "t/acme%2F1/diff?a=1&b=2",
        "t/acme%2F1/diff/a/b",
        "t/acme%2F1/stats",
        "t/acme%2F1/export?format=jsonl",
        "t/acme%2F1/follow",
    ],
)
async def test_it_is_not_shown(page: str) -> None:
    app = serving(Checkpointer(CheckpointStore(Misconfigured())))
    async with logged_in(app, ACME_READER) as client:
        answer = await client.get(f"/ui/{page}")
    assert answer.status_code == 500, answer.text
    assert SECRET not in answer.text
