"""nginx in front of another server: the machine's own, or one unpacked beside it."""

import shutil
import socket
from functools import partial
from pathlib import Path

from tests.servers.base import Server
from tests.servers.install import installed, unpacked

FRAME = """\
daemon off;
master_process off;
pid {data}/nginx.pid;
error_log stderr info;
events {{}}
http {{
    access_log off;
    client_body_temp_path {data}/body;
    proxy_temp_path {data}/proxy;
    fastcgi_temp_path {data}/fastcgi;
    uwsgi_temp_path {data}/uwsgi;
    scgi_temp_path {data}/scgi;
    include {data}/site.conf;
}}
"""


class NginxServer(Server):
    """One process, with what a file in `conf.d` would hold."""

    name = "nginx"

    def __init__(self, folder: Path, site: str) -> None:
        super().__init__(folder)
        self.site = site

    @classmethod
    def install(cls) -> Path:
        own = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
        return Path(own).parent if own else installed("nginx-debian", partial(unpacked, "nginx")) / "usr" / "sbin"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        (self.data / "nginx.conf").write_text(FRAME.format(data=self.data), encoding="ascii")
        (self.data / "site.conf").write_text(self.site, encoding="ascii")
        self.run(*self.command(), "-t")

    def command(self) -> list[str | Path]:
        return [self.install() / "nginx", "-p", self.data, "-e", "stderr", "-c", self.data / "nginx.conf"]

    def environment(self) -> dict[str, str]:
        libraries = [str(folder) for folder in self.install().parent.parent.glob("usr/lib/*-linux-gnu*")]
        return {**super().environment(), "LD_LIBRARY_PATH": ":".join(libraries)} if libraries else super().environment()

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2):
                return True
        except OSError:
            return False
