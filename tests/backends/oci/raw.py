"""Requests without Oracle's SDK, signed by hand, so that they can be signed wrongly."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.servers.oci.keys import KEY_ID, private_key, sha256_base64


@dataclass
class RawRequest:
    """What is signed. `send` may be given something else."""

    method: str
    target: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = field(default_factory=private_key)
    key_id: str = KEY_ID
    sign_body: bool = False

    def signed(self, port: int) -> dict[str, str]:
        headers = {"date": formatdate(usegmt=True), "host": f"127.0.0.1:{port}", **self.headers}
        names = ["x-date" if "x-date" in headers else "date", "(request-target)", "host"]
        if self.sign_body:
            headers |= {"x-content-sha256": sha256_base64(self.body), "content-length": str(len(self.body))}
            headers.setdefault("content-type", "application/json")
            names += ["content-length", "content-type", "x-content-sha256"]
        values = {**headers, "(request-target)": f"{self.method.lower()} {self.target}"}
        text = "\n".join(f"{name}: {values[name]}" for name in names)
        signature = base64.b64encode(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())).decode()
        headers["authorization"] = (
            f'Signature version="1",keyId="{self.key_id}",algorithm="rsa-sha256",headers="{" ".join(names)}",'
            f'signature="{signature}"'
        )
        return headers


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str]:
        return self.status, self.json["code"]


def send(
    port: int,
    request: RawRequest,
    *,
    target: str | None = None,
    body: bytes | None = None,
    headers: dict[str, str | None] | None = None,
) -> Answer:
    """Send a request as it was signed, but for what is given here; a header that is None is left out."""
    sent: dict[str, str | None] = {**request.signed(port), **(headers or {})}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(
            request.method,
            target or request.target,
            request.body if body is None else body,
            {name: value for name, value in sent.items() if value is not None},
        )
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, found, answer.read())
    finally:
        connection.close()
