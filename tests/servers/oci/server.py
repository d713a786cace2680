"""A stand-in for OCI Object Storage, which cannot be installed for a test. It follows Oracle's documentation.

It checks what the real service checks (signatures, dates, conditions, names), and fails when a test asks it to: see
`api`, `objects`, `keys` and `faults`.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.servers.base import Server
from tests.servers.oci.faults import Fault
from tests.servers.oci.keys import KEY_ID, private_key, public_pem, write_config
from tests.servers.tls import write_certificate

ROOT = Path(__file__).resolve().parents[3]


class OCIServer(Server):
    """One namespace, one bucket to begin with, and one key that may do everything."""

    name = "oci"

    def __init__(
        self,
        folder: Path,
        durable: bool = False,
        *,
        namespace: str = "locusnamespace",
        bucket: str = "locus",
        tls: bool = False,
        key_bits: int = 1024,
    ) -> None:
        super().__init__(folder, durable)
        self._key = private_key(key_bits)
        self.tls = tls
        self.namespace = namespace
        self.bucket = bucket
        self.keys = {KEY_ID: public_pem(self._key)}

    @classmethod
    def install(cls) -> Path:
        """It is part of the tree."""
        return Path(__file__).resolve().parent

    @property
    def endpoint(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """What clients have to trust, if it speaks HTTPS."""
        return self.folder / "tls.pem"

    @property
    def config_file(self) -> Path:
        """The client's: a profile, with its key beside it."""
        return self.folder / "config"

    @property
    def url(self) -> str:
        return self.url_of("locus/checkpoints/")

    def url_of(self, prefix: str, port: int | None = None) -> str:
        """What `get_checkpointer` opens; `port` is that of a proxy."""
        options = {
            "service_endpoint": f"http://127.0.0.1:{port or self.port}",
            "config_file": str(self.config_file),
        }
        return f"oci://{self.namespace}/{self.bucket}/{quote(prefix)}?{urlencode(options)}"

    def prepare(self) -> None:
        write_config(self.folder, key=self._key)
        self.accept_keys()
        if self.tls:
            write_certificate(self.certificate)
        (self.data / self.namespace / self.bucket).mkdir(parents=True)

    def accept_keys(self, **more: str) -> None:
        """Add key ids, with their public keys."""
        self.keys |= more
        self._write_keys()

    def withdraw_key(self, key_id: str) -> None:
        del self.keys[key_id]
        self._write_keys()

    def _write_keys(self) -> None:
        (self.folder / "keys.json").write_text(json.dumps(self.keys), encoding="ascii")

    def command(self) -> list[str | Path]:
        module = ["-m", "tests.servers.oci.http", str(self.folder), str(self.port), self.namespace]
        return [sys.executable, *module, *(["durable"] if self.durable else [])]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def answers(self) -> bool:
        try:
            self.counts()
        except (urllib.error.URLError, OSError):
            return False
        return True

    def fail(self, *faults: Fault) -> None:
        """From now on these faults, and no others; none: all is well again."""
        self._control("PUT", "faults", [asdict(fault) for fault in faults])

    def counts(self, *, reset: bool = False) -> dict[str, int]:
        """How many requests of each kind came."""
        counted: dict[str, int] = self._control("GET", "counts?reset=" if reset else "counts")
        return counted

    def create_bucket(self, name: str) -> None:
        self._control("PUT", f"buckets/{name}")

    def _control(self, method: str, what: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.endpoint}/control/{what}", method=method, data=json.dumps(body).encode()
        )
        trusted = ssl.create_default_context(cafile=self.certificate) if self.tls else None
        with urllib.request.urlopen(request, timeout=5, context=trusted) as answer:
            return json.loads(answer.read() or "null")
