"""PostgreSQL, with everything on its disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.servers.postgresql import PostgreSQLServer
from tests.soak.faults.harm import Harm
from tests.soak.faults.sessions import SessionsEnded
from tests.soak.sites.base import ServerSite, at_port, require

OTHERS = """
    SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


class PostgreSQLSite(ServerSite[PostgreSQLServer]):
    name = "postgresql"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PostgreSQLServer(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return at_port(self.server.url, port)

    def harms(self) -> Sequence[Harm]:
        return [*super().harms(), SessionsEnded(self.end_sessions)]

    def end_sessions(self) -> int:
        ((ended,),) = self._ask(OTHERS)
        return int(ended)

    def check_durability(self) -> None:
        require("PostgreSQL", DURABLE, dict(self._ask(SETTINGS, [*DURABLE])))

    def find_versions(self) -> str:
        ((version,),) = self._ask("SHOW server_version")
        return f"PostgreSQL {version}"

    def _ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url, autocommit=True, connect_timeout=30) as connection:
            return connection.execute(question.encode(), values).fetchall()
