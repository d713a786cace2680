"""A side in a PostgreSQL database of its own, for stores that can't be told to use a schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.subjects.postgresql import OwnDatabase, server_version, shared_server


class PostgreSQLSide(Side):
    """Stands before the class of a side that is made of a folder and a store."""

    def __init__(self, folder: Path, make: Callable[[str], Any]) -> None:
        """`make` gets the URL of the database, and makes the store."""
        self._database = OwnDatabase(shared_server())
        super().__init__(folder, make(self._database.url))  # type: ignore[call-arg]

    def stored_bytes(self) -> int | None:
        return self._database.stored_bytes()

    async def close(self) -> None:
        await super().close()
        self._database.remove()


class PostgreSQLSubject(FrameworkSubject):
    """Stands before the class of a subject."""

    store = "PostgreSQL"

    def servers(self) -> dict[str, str]:
        return {"PostgreSQL": server_version(shared_server())}
