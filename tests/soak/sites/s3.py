"""An S3 bucket on SeaweedFS, which hands what it acknowledges to the system and does not wait for the disk."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from urllib.parse import urlencode

from tests.servers.seaweedfs import SeaweedServer
from tests.soak.sites.base import ServerSite


class S3Site(ServerSite[SeaweedServer]):
    """Its credentials are in the environment, where the processes of clients find them."""

    name = "s3"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SeaweedServer(folder / "server", durable=True))
        self._environment: dict[str, str | None] = {}

    def url_at(self, port: int) -> str:
        return f"s3://{self.server.bucket}/soak?{urlencode({'endpoint_url': f'http://127.0.0.1:{port}'})}"

    def set_up(self) -> None:
        super().set_up()
        self._set(
            {
                "AWS_ACCESS_KEY_ID": self.server.access_key,
                "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
                "AWS_REGION": self.server.region,
                "AWS_PROFILE": None,
                "AWS_CA_BUNDLE": None,
            }
        )

    def _set(self, wanted: dict[str, str | None]) -> None:
        self._environment = {name: os.environ.get(name) for name in wanted}
        for name, value in wanted.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def take_down(self) -> None:
        self._set(self._environment)
        super().take_down()

    def find_versions(self) -> str:
        program = self.server.install() / "bin" / "weed"
        said = subprocess.run([program, "version"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
        return f"SeaweedFS {said.split()[2]}"  # "version 30GB 4.40 … linux amd64"
