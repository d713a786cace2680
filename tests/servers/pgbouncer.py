"""PgBouncer in transaction mode, in front of a PostgreSQL server: the machine's own, or one unpacked beside it."""

import re
import shutil
from functools import partial
from pathlib import Path

from tests.servers.base import Server
from tests.servers.install import installed, unpacked
from tests.servers.postgresql import PostgreSQLServer


class PgBouncerServer(Server):
    """Every transaction may go to another of its few connections to the server.

    With a `certificate` (PEM, and its key) it takes encrypted connections only.
    """

    name = "pgbouncer"
    refuses_root = True

    def __init__(
        self, folder: Path, target: PostgreSQLServer, connections: int = 3, certificate: str | None = None
    ) -> None:
        super().__init__(folder)
        self.target = target
        self.connections = connections
        self.certificate = certificate

    @classmethod
    def install(cls) -> Path:
        own = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
        return (
            Path(own).parent if own else installed("pgbouncer-debian", partial(unpacked, "pgbouncer")) / "usr" / "sbin"
        )

    @property
    def url(self) -> str:
        return re.sub(r"@.*/", f"@127.0.0.1:{self.port}/", self.target.url)

    def prepare(self) -> None:
        user, password = re.findall(r"//(\w+):(\w+)@", self.target.url)[0]
        users = self.data / "users.txt"
        users.write_text(f'"{user}" "{password}"\n', encoding="ascii")
        settings = self.data / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.target.port}\n\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\nadmin_users = {user}\n"
            f"pool_mode = transaction\ndefault_pool_size = {self.connections}\nmax_client_conn = 200\n"
            + self._encryption(),
            encoding="ascii",
        )
        for file in (users, settings):
            file.chmod(0o600)
            self.own(file)

    def _encryption(self) -> str:
        if self.certificate is None:
            return ""
        kept = self.data / "certificate.pem"
        kept.write_text(self.certificate, encoding="ascii")
        kept.chmod(0o600)
        self.own(kept)
        return f"client_tls_sslmode = require\nclient_tls_key_file = {kept}\nclient_tls_cert_file = {kept}\n"

    def command(self) -> list[str | Path]:
        return [self.install() / "pgbouncer", self.data / "pgbouncer.ini"]

    def environment(self) -> dict[str, str]:
        libraries = [str(folder) for folder in self.install().parent.parent.glob("usr/lib/*-linux-gnu*")]
        return {**super().environment(), "LD_LIBRARY_PATH": ":".join(libraries)} if libraries else super().environment()

    def answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, connect_timeout=2, prepare_threshold=None) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True
