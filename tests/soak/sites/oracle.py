"""Oracle Database's protocol, spoken by the stand-in, on a PostgreSQL that waits for its disk."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from tests.servers.oracle.fixtures import OracleDatabase, end_sessions, run
from tests.servers.oracle.server import ADMIN, SERVICE, OracleOnItsOwn
from tests.soak.faults.harm import Harm
from tests.soak.faults.sessions import SessionsEnded
from tests.soak.sites.base import ServerSite

USER = "LOCUS_SOAK"


class WholeOracle(OracleOnItsOwn):
    """Killed and stopped as one: clients of a real database know no second server below it."""

    def kill(self) -> None:
        super().kill()
        self.target.kill()

    def pause(self) -> None:
        super().pause()
        self.target.pause()

    def resume(self) -> None:
        self.target.resume()
        super().resume()


class OracleSite(ServerSite[WholeOracle]):
    name = "oracle"
    # The lists of a state go before the rest of it, which is sent together with the commit.
    saves = (b"agent_id",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, WholeOracle(folder / "server", durable=True))
        self._password = secrets.token_hex(12)

    def url_at(self, port: int) -> str:
        return f"oracle://{USER}:{self._password}@127.0.0.1:{port}/{SERVICE}"

    @property
    def _admin(self) -> OracleDatabase:
        return OracleDatabase(self.server.dsn, ADMIN, self.server.password, "")

    def set_up(self) -> None:
        super().set_up()
        run(self._admin, f'CREATE USER {USER} IDENTIFIED BY "{self._password}"')
        run(self._admin, f"GRANT CONNECT, RESOURCE TO {USER}")

    def take_down(self) -> None:
        super().take_down()
        self.server.target.stop()  # if it was alone because of a failed start

    def harms(self) -> Sequence[Harm]:
        return [*super().harms(), SessionsEnded(self.end_sessions)]

    def end_sessions(self) -> int:
        there = len(run(self._admin, "SELECT sid FROM v$session WHERE username = :1", USER))
        end_sessions(self._admin, USER)
        return there

    def find_versions(self) -> str:
        return "a stand-in for Oracle Database, on PostgreSQL"
