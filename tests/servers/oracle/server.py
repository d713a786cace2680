"""The stand-in as a server like the others: started, stopped, killed and paused."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tests.servers.base import Server
from tests.servers.ports import free_port
from tests.servers.postgresql import PostgreSQLServer

ROOT = Path(__file__).resolve().parents[3]
SERVICE = "FREEPDB1"
ADMIN = "ADMIN"
ALIAS = "locus_high"


class OracleServer(Server):
    """One service. `ADMIN` may create users; each has a schema of its name."""

    name = "oracle"

    def __init__(self, folder: Path, target: PostgreSQLServer) -> None:
        super().__init__(folder)
        self.target = target
        self.tls_port = free_port()

    @classmethod
    def install(cls) -> Path:
        """It is part of the tree."""
        return Path(__file__).resolve().parent

    @property
    def dsn(self) -> str:
        return self.dsn_at(self.port)

    def dsn_at(self, port: int) -> str:
        """`port` may be that of a proxy."""
        return f"127.0.0.1:{port}/{SERVICE}"

    @property
    def password(self) -> str:
        """Of ADMIN."""
        return self.secret("password")

    @property
    def url(self) -> str:
        return f"oracle://{ADMIN}:{self.password}@{self.dsn}"

    @property
    def wallet(self) -> Path:
        """A folder with a client's certificate, and with the alias `locus_high`, which leads to the TLS port."""
        return self.data / "wallet"

    @property
    def wallet_password(self) -> str:
        return self.secret("wallet-password")

    def prepare(self) -> None:
        from tests.servers.oracle.wallet import write_wallet

        self.secret("password")
        write_wallet(self.data, self.wallet_password, ALIAS, self.tls_port, SERVICE)

    def command(self) -> list[str | Path]:
        module = ["-m", "tests.servers.oracle.listen", str(self.port), str(self.tls_port), SERVICE]
        return [sys.executable, *module, self.target.url, self.data]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "LOCUS_ORACLE_ADMIN": self.password}

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
        except OSError:
            return False
        return True


class OracleOnItsOwn(OracleServer):
    """With a PostgreSQL of its own below it."""

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, PostgreSQLServer(folder / "postgresql", durable))

    @classmethod
    def install(cls) -> Path:
        return PostgreSQLServer.install()

    def start(self) -> None:
        if not self.target.is_running:
            self.target.start()
        super().start()

    def stop(self) -> None:
        was_running = self._process is not None
        super().stop()
        if was_running:
            self.target.stop()
