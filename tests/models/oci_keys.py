"""What a throw-away OCI identity signed, as these tests want to know it."""

from __future__ import annotations

from tests.models.server import Request
from tests.servers.oci.keys import (
    ALWAYS_SIGNED,
    BODY_SIGNED,
    FINGERPRINT,
    KEY_ID,
    TENANCY,
    USER,
    NotAuthenticated,
    check_signature,
    private_key,
    signature_parts,
    write_config,
)

__all__ = ["FINGERPRINT", "TENANCY", "USER", "private_key", "verified", "write_config"]

SIGNED = ALWAYS_SIGNED | BODY_SIGNED | {"date"}


def verified(request: Request) -> dict[str, str] | None:
    """The parts of the signature, if it is that of the throw-away key over this very request."""
    given = signature_parts(request.headers)
    keys = {key_id: private_key().public_key() for key_id in (KEY_ID, "ST$the-token")}
    try:
        check_signature(request.method, request.path, request.headers, request.body, keys, body_required=True)
    except NotAuthenticated:
        return None
    return given if {*given["headers"].split()} == SIGNED else None
