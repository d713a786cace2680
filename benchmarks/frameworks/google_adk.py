"""Sessions of Google ADK. A turn is four events: a question, a call, its result and an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.frameworks.postgresql_side import PostgreSQLSide, PostgreSQLSubject
from benchmarks.frameworks.subject import FrameworkSubject, Side
from benchmarks.subjects.postgresql import asyncpg_url
from benchmarks.turns import turn
from locus.integrations.google_adk import LocusSessionService

NAMES: Any = {"app_name": "shop", "user_id": "alice"}
BEGAN = 2_000_000_000.0
"""A time to come: ADK's own service takes a session that is older than its newest event for a stale one."""


class ServiceSide(Side):
    """A session object is kept from turn to turn, as ADK's runner keeps it during an invocation."""

    def __init__(self, folder: Path, service: Any) -> None:
        super().__init__(folder)
        self._service: Any = service
        self._sessions: dict[str, Session] = {}

    async def begin(self, session_id: str) -> None:
        service: BaseSessionService = self._service
        self._sessions[session_id] = await service.create_session(**NAMES, session_id=session_id)

    async def save(self, session_id: str, turn: list[Event]) -> None:
        session = self._sessions[session_id]
        for event in turn:
            await self._service.append_event(session, event.model_copy(deep=True))

    async def newest(self, session_id: str, count: int) -> list[Any]:
        config = GetSessionConfig(num_recent_events=count)
        session = await self._service.get_session(**NAMES, session_id=session_id, config=config)
        return list(session.events)

    async def close(self) -> None:
        await self._service.close()


class InMemory(ServiceSide):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, InMemorySessionService())

    def stored_bytes(self) -> int | None:
        return None

    async def close(self) -> None:
        """It has nothing to close."""


class ADKSubject(FrameworkSubject):
    name = "Google ADK, sessions"
    call = "4 × `append_event`"
    own = "`SqliteSessionService`"
    in_memory = "`InMemorySessionService`"
    libraries: tuple[str, ...] = ("google-adk", "aiosqlite")

    def turn(self, number: int) -> list[Event]:
        said = turn(number)
        parts = [
            types.Part(text=said.question),
            types.Part(
                function_call=types.FunctionCall(
                    id=said.call_id, name="look_up", args={"place": said.place, "why": said.thought}
                )
            ),
            types.Part(
                function_response=types.FunctionResponse(
                    id=said.call_id, name="look_up", response={"result": said.result}
                )
            ),
            types.Part(text=said.answer),
        ]
        return [
            Event(
                id=f"{number}-{index}",
                invocation_id=f"turn-{number}",
                author="clerk" if index else "user",
                timestamp=BEGAN + number * 4 + index,
                content=types.Content(role="model" if index % 2 else "user", parts=[part]),
            )
            for index, part in enumerate(parts)
        ]

    def content(self, turn: list[Event]) -> int:
        return sum(len(event.model_dump_json(exclude_none=True).encode()) for event in turn)

    def ours(self, folder: Path) -> Side:
        return ServiceSide(folder, LocusSessionService(f"sqlite:{folder / 'ours.db'}", durability="full"))

    def theirs(self, folder: Path) -> Side:
        return ServiceSide(folder, SqliteSessionService(str(folder / "theirs.db")))

    def floor(self, folder: Path) -> Side:
        return InMemory(folder)


class InPostgreSQL(PostgreSQLSide, ServiceSide):
    """Sessions in a database of their own."""


class InPostgreSQLSubject(PostgreSQLSubject, ADKSubject):
    own = "`DatabaseSessionService`"
    libraries = ("google-adk", "sqlalchemy", "asyncpg")
    peers = True

    def ours(self, folder: Path) -> Side:
        return InPostgreSQL(folder, LocusSessionService)

    def theirs(self, folder: Path) -> Side:
        from google.adk.sessions import DatabaseSessionService

        return InPostgreSQL(folder, lambda url: DatabaseSessionService(asyncpg_url(url)))


SUBJECTS = [ADKSubject(), InPostgreSQLSubject()]
