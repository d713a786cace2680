"""The floor of HTTP: a POST of the new bytes to the smallest server that commits them to SQLite.

`python -m benchmarks.subjects.http_floor PORT FOLDER` is that server: our ASGI server, one INSERT, one COMMIT.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from benchmarks.subjects.floors import Floor, SQLiteFloor, database_bytes, extend_wal


class FloorApp:
    """Appends the body of every POST to the thread that its path names."""

    def __init__(self, folder: Path) -> None:
        self._floor = SQLiteFloor(folder, "full")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._floor.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["method"] == "POST":
            await self._floor.append(scope["path"][1:], body.decode())
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class HTTPFloor(Floor):
    """One client with its pool, as the documentation of httpx shows it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._client = httpx.AsyncClient(base_url=url)
        self._path = folder / "floor.db"

    async def append(self, thread_id: str, body: str) -> None:
        response = await self._client.post(f"/{thread_id}", content=body.encode())
        response.raise_for_status()

    def warm_up(self) -> None:
        extend_wal(self._path)

    def stored_bytes(self) -> int:
        return database_bytes(self._path)

    async def close(self) -> None:
        await self._client.aclose()


def main() -> None:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    uvicorn.run(FloorApp(folder), host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
