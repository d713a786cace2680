"""Throw-away OCI identities, and the check of what they signed.

The signature is version 1 of Oracle's request signatures: RSA-SHA256 over the headers that the request names,
`(request-target)` and `host` and a date among them, and over the digest of the body where there is one.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

TENANCY = "ocid1.tenancy.oc1..aaaaaaaa" + "a" * 52
USER = "ocid1.user.oc1..aaaaaaaa" + "b" * 52
FINGERPRINT = "12:34:56:78:9a:bc:de:f0:12:34:56:78:9a:bc:de:f0"
KEY_ID = f"{TENANCY}/{USER}/{FINGERPRINT}"
REGION = "eu-frankfurt-1"

ALWAYS_SIGNED = frozenset({"(request-target)", "host"})
BODY_SIGNED = frozenset({"content-length", "content-type", "x-content-sha256"})
MOST_SKEW = 300.0
"""Seconds by which the clocks of the two sides may differ."""


class NotAuthenticated(Exception):
    """The signature is missing, wrong or too old."""


def private_key(bits: int = 1024) -> rsa.RSAPrivateKey:
    """The key of this process: a short one, which signs in a fifth of the time."""
    return _private_key(bits)


@cache
def _private_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def private_pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def public_pem(key: rsa.RSAPrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def write_config(folder: Path, *, key: rsa.RSAPrivateKey | None = None, **more: str) -> Path:
    """A configuration file with one profile, and its key beside it."""
    key_file = folder / "key.pem"
    key_file.write_text(private_pem(key or private_key()))
    key_file.chmod(0o600)
    entries = {
        "user": USER,
        "tenancy": TENANCY,
        "fingerprint": FINGERPRINT,
        "region": REGION,
        "key_file": str(key_file),
        **more,
    }
    config = folder / "config"
    config.write_text("[DEFAULT]\n" + "".join(f"{name}={value}\n" for name, value in entries.items()))
    config.chmod(0o600)
    return config


def signature_parts(headers: Mapping[str, str]) -> dict[str, str]:
    """What the Authorization header says: keyId, headers, signature and more."""
    scheme, _, parts = headers.get("authorization", "").partition(" ")
    return dict(re.findall(r'(\w+)="([^"]*)"', parts)) if scheme == "Signature" else {}


def check_signature(
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: Mapping[str, rsa.RSAPublicKey],
    *,
    body_required: bool,
) -> str:
    """The id of the key that signed this very request; `headers` has lower-case names.

    `body_required`: whether the body's digest has to be signed, as it has for all requests with a body, but
    for the upload of objects. A digest that is given is checked in any case.
    """
    given = signature_parts(headers)
    signed = given.get("headers", "").split()
    required = ALWAYS_SIGNED | (BODY_SIGNED if body_required else frozenset())
    dated_by = "x-date" if "x-date" in headers else "date"
    if given.get("algorithm") != "rsa-sha256" or given.get("version") != "1" or not required < {*signed}:
        raise NotAuthenticated("the request is not signed, or not all of it")
    if dated_by not in signed or _skew(headers.get(dated_by, "")) > MOST_SKEW:
        raise NotAuthenticated("the date is missing, not signed, or too far from now")
    if "x-content-sha256" in headers and headers["x-content-sha256"] != sha256_base64(body):
        raise NotAuthenticated("the body is not the one that was signed")
    key = keys.get(given.get("keyId", ""))
    if key is None:
        raise NotAuthenticated("the key is unknown")
    values = {**headers, "(request-target)": f"{method.lower()} {target}"}
    text = "\n".join(f"{name}: {values.get(name, '')}" for name in signed)
    try:
        key.verify(base64.b64decode(given.get("signature", "")), text.encode(), padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        raise NotAuthenticated("the signature is not that of the key") from None
    return given["keyId"]


def sha256_base64(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def _skew(date: str) -> float:
    try:
        return abs(parsedate_to_datetime(date).timestamp() - time.time())
    except ValueError:
        return float("inf")
