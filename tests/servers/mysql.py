"""MySQL, the real one: the machine's own `mysqld` if it has one, else that of Debian's unstable distribution.

The latter comes with its own C library (from_debian.sh), so that it runs on any Linux of the same
processor. Its version is what the distribution has on the day of the installation.
"""

import os
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.servers.base import Server
from tests.servers.errors import ServerError
from tests.servers.install import from_debian, installed

HINT = "Install MySQL's own server, or name a running one with LOCUS_TEST_MYSQL_URL"


class MySQLServer(Server):
    """The database `locus`, with a user of the same name who may do everything."""

    name = "mysql"

    @classmethod
    def install(cls) -> Path:
        own = mysqld_of_the_machine()
        return own.parent if own else installed("mysql-debian", download)

    @property
    def url(self) -> str:
        return f"mysql://locus:{self.secret('password')}@127.0.0.1:{self.port}/locus"

    def prepare(self) -> None:
        self.run(*self._mysqld(), "--initialize-insecure")
        self._first_statements.write_text(
            "CREATE DATABASE IF NOT EXISTS locus;\n"
            f"CREATE USER IF NOT EXISTS 'locus'@'%' IDENTIFIED BY '{self.secret('password')}';\n"
            "GRANT ALL ON *.* TO 'locus'@'%' WITH GRANT OPTION;\n",
            encoding="ascii",
        )
        self._first_statements.chmod(0o600)

    @property
    def _first_statements(self) -> Path:
        return self.folder / "first.sql"

    def command(self) -> list[str | Path]:
        return [
            *self._mysqld(),
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self._socket()}",
            f"--pid-file={self.folder / 'mysqld.pid'}",
            f"--init-file={self._first_statements}",
            "--skip-log-bin",
            "--max-connections=200",
            # Nobody looks at its statistics.
            "--performance-schema=OFF",
            # 2 writes at each commit, but does not wait for the disk.
            f"--innodb-flush-log-at-trx-commit={1 if self.durable else 2}",
        ]

    def _socket(self) -> Path:
        """Relative to the data: the system allows a socket's path about 100 characters, and no more."""
        return Path("mysqld.sock")

    def _mysqld(self) -> list[str | Path]:
        user = ["--user=root"] if os.geteuid() == 0 else []
        options = [*user, f"--datadir={self.data}", "--mysqlx=OFF", "--innodb-redo-log-capacity=64M"]
        own = mysqld_of_the_machine()
        if own:
            return [own, "--no-defaults", *options]
        usr = self.install() / "root" / "usr"
        (loader,) = usr.glob("lib/*-linux-gnu/ld-linux-*.so.*")
        return [
            loader, "--library-path", loader.parent, usr / "sbin" / "mysqld", "--no-defaults",
            f"--basedir={usr}", f"--lc-messages-dir={usr}/share/mysql",
            f"--character-sets-dir={usr}/share/mysql/charsets", f"--plugin-dir={usr}/lib/mysql/plugin",
            "--secure-file-priv=NULL", *options,
        ]  # fmt: skip

    def answers(self) -> bool:
        import pymysql  # type: ignore[import-untyped]

        try:
            connection = pymysql.connect(
                host="127.0.0.1", port=self.port, user="locus", password=self.secret("password"), database="locus",
                connect_timeout=2, read_timeout=2, ssl_disabled=True,
            )  # fmt: skip
        except pymysql.err.OperationalError:
            return False
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return bool(cursor.fetchone() == (1,))


class ReplicatedMySQLServer(MySQLServer):
    """One that keeps a binary log with GTIDs, so that others can follow it, and it can follow others.

    `like` is a server that it is a copy of, before the first start, with the same password.
    """

    def __init__(self, folder: Path, number: int, like: "ReplicatedMySQLServer | None" = None) -> None:
        super().__init__(folder)
        self.number = number
        self.like = like

    def secret(self, name: str) -> str:
        return super().secret(name) if self.like is None else self.like.secret(name)

    @classmethod
    def two(cls, folder: Path) -> tuple[Self, Self]:
        """Two that run, and do not follow each other yet."""
        cls.install()
        one = cls(folder / "one", 1)
        one._create_data()
        other = cls(folder / "two", 2, like=one)
        other._create_data()
        one.start()
        other.start()
        return one, other

    def prepare(self) -> None:
        if self.like is None:
            super().prepare()
            # What every server does for itself is not for others to follow.
            statements = self._first_statements.read_text(encoding="ascii")
            self._first_statements.write_text(f"SET SESSION sql_log_bin = 0;\n{statements}", encoding="ascii")
        else:
            # A copy takes a tenth of the time that it takes to make a database.
            shutil.copytree(self.like.data, self.data, dirs_exist_ok=True)
            shutil.copy(self.like._first_statements, self._first_statements)
            (self.data / "auto.cnf").unlink(missing_ok=True)  # the server's own id

    def command(self) -> list[str | Path]:
        return [
            *(word for word in super().command() if word != "--skip-log-bin"),
            "--log-bin=binlog",
            f"--server-id={self.number}",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--skip-replica-start",
            f"--sync-binlog={1 if self.durable else 0}",
            "--plugin-load-add=semisync_source.so",
            "--plugin-load-add=semisync_replica.so",
        ]

    def follow(self, source: MySQLServer, *, semisynchronous: bool) -> None:
        """Become a replica, which takes no writes. The source waits for it at each commit if it is semisynchronous."""
        self.ask(
            "STOP REPLICA",
            "RESET REPLICA ALL",
            "SET GLOBAL super_read_only = ON",
            "SET GLOBAL rpl_semi_sync_source_enabled = OFF",
            f"SET GLOBAL rpl_semi_sync_replica_enabled = {'ON' if semisynchronous else 'OFF'}",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {source.port},"
            f" SOURCE_USER = 'locus', SOURCE_PASSWORD = '{source.secret('password')}', SOURCE_AUTO_POSITION = 1,"
            " GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
            "START REPLICA",
        )

    def promote(self) -> None:
        """Apply all that was received, and take writes from now on."""
        self.ask("STOP REPLICA IO_THREAD")
        (status,) = self.ask("SHOW REPLICA STATUS")
        received = status["Retrieved_Gtid_Set"]
        assert self.ask(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{received}', 60) AS late") == [{"late": 0}]
        self.ask(
            "STOP REPLICA",
            "RESET REPLICA ALL",
            "SET GLOBAL super_read_only = OFF",
            "SET GLOBAL read_only = OFF",
        )

    def ask(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements as an administrator; the rows of the last one."""
        import pymysql

        with (
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="locus", password=self.secret("password"), autocommit=True,
                ssl_disabled=True, cursorclass=pymysql.cursors.DictCursor,
            ) as connection,
            connection.cursor() as cursor,
        ):  # fmt: skip
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


def client_tools(folder: Path) -> Path:
    """A folder with `mysql` and `mysqldump`, which are not part of the server."""
    folder.mkdir(parents=True, exist_ok=True)
    if mysqld_of_the_machine() is None:
        usr = installed("mysql-client-debian", partial(from_debian, "mysql-client-core")) / "root" / "usr"
        (loader,) = usr.glob("lib/*-linux-gnu/ld-linux-*.so.*")
        for name in ("mysql", "mysqldump"):
            script = folder / name
            words = [loader, "--library-path", loader.parent, usr / "bin" / name]
            script.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
    return folder


def mysqld_of_the_machine() -> Path | None:
    """MariaDB has a `mysqld`, too, but is no MySQL: its JSON is text."""
    found = shutil.which("mysqld")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
    return Path(found) if "MySQL" in version else None


def download(part: Path) -> None:
    try:
        from_debian("mysql-server-core", part)
    except ServerError as error:
        raise ServerError(f"{error}. {HINT}") from error
