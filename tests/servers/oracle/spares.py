"""Connections to PostgreSQL that are used again."""

from __future__ import annotations

from tests.servers.oracle.database import Database


class Spares:
    """Connections that sessions have left behind: to open one takes longer than most sessions last."""

    def __init__(self, url: str, most: int = 8) -> None:
        self._url = url
        self._most = most
        self._resting: list[Database] = []

    async def take(self) -> Database:
        while self._resting:
            found = self._resting.pop()
            if await found.rest():
                return found
            await found.close()
        return await Database.open(self._url)

    async def give(self, database: Database) -> None:
        if await database.rest() and len(self._resting) < self._most:
            self._resting.append(database)
        else:
            await database.close()

    async def close(self) -> None:
        while self._resting:
            await self._resting.pop().close()
