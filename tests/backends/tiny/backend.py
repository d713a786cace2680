"""The public class, and the factory for the registry."""

from __future__ import annotations

from typing import Any

from locus.memory.checkpointer import Checkpointer
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore
from tests.backends.tiny.config import TinyConfig
from tests.backends.tiny.engine import TinyEngine


class TinyBackend(StorageBackend):
    """Plain dicts on a shelf."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__(CheckpointStore(TinyEngine(config)))


def from_location(location: str = "", **options: Any) -> Checkpointer:
    """`"tiny://host/shelf"`."""
    return Checkpointer(TinyBackend(TinyConfig.from_url(f"tiny:{location}", **options)).store)
