"""SeaweedFS: an S3 endpoint with conditional writes, in one process."""

import contextlib
import json
import signal
import urllib.error
import urllib.request
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

from tests.servers.base import Server
from tests.servers.install import python_package
from tests.servers.ports import COMPANION, free_port

REGION = "us-east-1"
READY = ".ready"
"""An object that every start but the first finds already there."""


class SeaweedServer(Server):
    """One bucket, and one pair of keys that may do everything. It never waits for the disk, durable or not."""

    name = "s3"
    # Asked politely it waits for its other parts to notice, for ten seconds and more.
    stop_signal = signal.SIGKILL

    def __init__(self, folder: Path, durable: bool = False, bucket: str = "locus") -> None:
        super().__init__(folder, durable)
        self.access_key = "locus"
        self.bucket = bucket
        self.region = REGION
        self._master, self._volume, self._filer = free_port(), free_port(), free_port()

    @classmethod
    def install(cls) -> Path:
        return python_package("seaweedfs")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def secret_key(self) -> str:
        return self.secret("secret-key")

    def prepare(self) -> None:
        keys = {"accessKey": self.access_key, "secretKey": self.secret_key}
        identity = {"name": "locus", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        self._identities.write_text(json.dumps({"identities": [identity]}), encoding="ascii")
        self._identities.chmod(0o600)

    @property
    def _identities(self) -> Path:
        return self.folder / "identities.json"

    def command(self) -> list[str | Path]:
        return [
            self.install() / "bin" / "weed", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.data}",
            f"-master.port={self._master}", "-master.volumeSizeLimitMB=256",
            "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms", "-master.telemetry=false",
            f"-volume.port={self._volume}", "-volume.max=20", "-volume.preStopSeconds=0",
            "-filer", f"-filer.port={self._filer}",
            "-s3", f"-s3.port={self.port}", f"-s3.config={self._identities}",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
        ]  # fmt: skip

    def clean_up(self) -> None:
        for port in (self.port, self._master, self._volume, self._filer):
            for number in (port, port + COMPANION):
                for socket in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                    socket.unlink(missing_ok=True)

    def answers(self) -> bool:
        return self._create_bucket() and self._returns_an_object()

    def _create_bucket(self) -> bool:
        """A bucket is a folder of the filer, which is asked without a signature."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._filer}/buckets/{self.bucket}/", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=2):
                return True
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code == HTTPStatus.CONFLICT  # it is there
        except OSError:
            return False

    def _returns_an_object(self) -> bool:
        """What was put before a restart can be read: its parts find each other up to two seconds after they start."""
        from obstore.exceptions import BaseError, NotFoundError
        from obstore.store import S3Store

        store = S3Store(
            self.bucket,
            endpoint=self.url,
            region=self.region,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
            retry_config={"max_retries": 0},
        )
        with contextlib.suppress(BaseError):
            try:
                return bytes(store.get(READY).bytes()) == READY.encode()
            except (FileNotFoundError, NotFoundError):
                store.put(READY, READY.encode())
        return False
