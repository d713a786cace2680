"""One server process for a whole session of tests: every test has a store of its own in it.

    python -m tests.server.many_stores PORT FOLDER

`/sqlite/NAME/…` is a server of an SQLite file in the folder NAME, `/url/NAME/…` one of the store whose URL stands
in the file NAME/url. `DELETE /sqlite/NAME` closes it, and `GET /sqlite/NAME` answers when it is at rest: when
requests whose senders were killed have come to their end, too.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from locus.memory.checkpointer import BaseCheckpointer
from locus.memory.registry import get_checkpointer
from locus.server import create_app
from locus.server.middleware import ServerMiddleware
from locus.server.serving import uvicorn_config


class ManyStores:
    """Passes a request on to the server that its path begins with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[BaseCheckpointer, ServerMiddleware]] = {}
        self._busy: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            for checkpointer, _ in self._open.values():
                await checkpointer.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        _, kind, name, *rest = scope["path"].split("/", 3)
        place = f"/{kind}/{name}"
        if not rest:
            await self._at_rest(place)
            if scope["method"] == "DELETE" and place in self._open:
                await self._open.pop(place)[0].close()
            await Response(status_code=204)(scope, receive, send)
            return
        if place not in self._open:
            store = get_checkpointer(self._url(kind, name))
            self._open[place] = (store, create_app(store))
        scope["root_path"] = place
        self._busy[place] += 1
        try:
            await self._open[place][1](scope, receive, send)
        finally:
            self._busy[place] -= 1

    async def _at_rest(self, place: str) -> None:
        """Twice in a row, because what has arrived may not have been looked at yet."""
        quiet = 0
        while quiet < 2:
            await asyncio.sleep(0.002)
            quiet = 0 if self._busy[place] else quiet + 1

    def _url(self, kind: str, name: str) -> str:
        folder = self._folder / name
        return f"sqlite:{folder / 'locus.db'}" if kind == "sqlite" else (folder / "url").read_text().strip()


def main() -> None:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    uvicorn.run(**uvicorn_config(ManyStores(folder), host="127.0.0.1", port=port, grace_seconds=5.0))


if __name__ == "__main__":
    main()
