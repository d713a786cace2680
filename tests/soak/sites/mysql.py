"""MySQL, with everything on its disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql  # type: ignore[import-untyped]

from tests.servers.mysql import MySQLServer
from tests.soak.faults.harm import Harm
from tests.soak.faults.sessions import SessionsEnded
from tests.soak.sites.base import ServerSite, at_port, require

OTHERS = "SELECT id FROM information_schema.processlist WHERE user = 'locus' AND id <> connection_id()"
DURABLE = {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"}


class MySQLSite(ServerSite[MySQLServer]):
    name = "mysql"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, MySQLServer(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return at_port(self.server.url, port)

    def harms(self) -> Sequence[Harm]:
        return [*super().harms(), SessionsEnded(self.end_sessions)]

    def end_sessions(self) -> int:
        ended = 0
        for (number,) in self._ask(OTHERS):
            with suppress(pymysql.err.MySQLError):  # it has ended by itself
                self._ask(f"KILL {number}")
                ended += 1
        return ended

    def check_durability(self) -> None:
        named = ", ".join(f"'{name}'" for name in DURABLE)
        require("MySQL", DURABLE, dict(self._ask(f"SHOW VARIABLES WHERE variable_name IN ({named})")))

    def find_versions(self) -> str:
        ((version,),) = self._ask("SELECT version()")
        return f"MySQL {version}"

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        place = urlsplit(self.server.url)
        connection = pymysql.connect(
            host="127.0.0.1", port=self.server.port, user=place.username, password=place.password, database="locus",
            autocommit=True, connect_timeout=30, ssl_disabled=True,
        )  # fmt: skip
        with connection, connection.cursor() as cursor:
            cursor.execute(question)
            return list(cursor.fetchall())
