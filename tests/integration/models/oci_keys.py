"""A throw-away OCI identity, and the check of what it signed."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.integration.models.server import Request

TENANCY = "ocid1.tenancy.oc1..aaaaaaaa" + "a" * 52
USER = "ocid1.user.oc1..aaaaaaaa" + "b" * 52
FINGERPRINT = "12:34:56:78:9a:bc:de:f0:12:34:56:78:9a:bc:de:f0"
SIGNED = {"date", "(request-target)", "host", "content-length", "content-type", "x-content-sha256"}


@cache
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def write_config(folder: Path, **more: str) -> Path:
    """A configuration file with one profile, and its key beside it."""
    key_file = folder / "key.pem"
    key_file.write_bytes(
        private_key().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    key_file.chmod(0o600)
    entries = {
        "user": USER,
        "tenancy": TENANCY,
        "fingerprint": FINGERPRINT,
        "region": "eu-frankfurt-1",
        "key_file": str(key_file),
        **more,
    }
    config = folder / "config"
    config.write_text("[DEFAULT]\n" + "".join(f"{name}={value}\n" for name, value in entries.items()))
    config.chmod(0o600)
    return config


def verified(request: Request) -> dict[str, str] | None:
    """The parts of the signature, if it is that of the throw-away key over this very request."""
    given = dict(re.findall(r'(\w+)="([^"]*)"', request.headers.get("authorization", "")))
    if {*given.get("headers", "").split()} != SIGNED:
        return None
    digest = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
    if request.headers["x-content-sha256"] != digest:
        return None
    values: dict[str, Any] = {**request.headers, "(request-target)": f"{request.method.lower()} {request.path}"}
    text = "\n".join(f"{name}: {values[name]}" for name in given["headers"].split())
    try:
        private_key().public_key().verify(
            base64.b64decode(given["signature"]), text.encode(), padding.PKCS1v15(), hashes.SHA256()
        )
    except InvalidSignature:
        return None
    return given
