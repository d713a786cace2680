"""An inspector that a thread of this process serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from locus.server.auth import Guard
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.inspector.app import create_inspector
from locus.server.inspector.sessions import Sessions
from locus.transfer.stores import open_store, open_to_read
from locus.wire.format import segment
from tests.server.running import threaded


@dataclass(frozen=True)
class Served:
    """A running inspector."""

    port: int
    sessions: Sessions
    base: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base}"

    def to(self, *segments: str, **query: str | int) -> str:
        """The address of a page."""
        path = "".join(f"/{segment(text)}" for text in segments)
        return f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")


@contextmanager
def inspecting(
    path: Path, *, writes: bool = False, port: int = 0, sessions: Sessions | None = None, base: str = ""
) -> Iterator[Served]:
    """Serve the pages of a store. With a port and the sessions of an earlier one, it takes that one's place."""
    guard = Guard(None)
    sessions = sessions or Sessions(guard, by_code=True)
    store = open_store(f"sqlite:{path}") if writes else open_to_read(f"sqlite:{path}")
    store.hold_nothing()

    @asynccontextmanager
    async def closing(_app: Any) -> AsyncIterator[None]:
        yield
        await store.close()

    app = create_inspector(
        AuthorizedStore(store, Limits()),
        guard,
        base=base,
        writes=writes,
        hosts={"127.0.0.1"},
        sessions=sessions,
        lifespan=closing,
    )
    with threaded(app, port=port) as bound:
        yield Served(bound, sessions, base)
