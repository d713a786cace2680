"""Errors as problem details (RFC 9457), from which the client restores the errors:

{"type": "urn:locus:problem:conflict", "title": "Conflict", "status": 412, "detail": "…",
 "code": "conflict", "expected": "c6", "latest": "c7", "request_id": "…"}
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from locus.errors import (
    BackendUnavailableError,
    CapabilityError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    ConflictError,
    CorruptCheckpointError,
    InvalidIdError,
    LocusError,
    SerializationError,
    UnsupportedFormatError,
    WindowError,
)

MEDIA_TYPE = "application/problem+json"
NOT_FOUND = "not_found"
UNAUTHENTICATED = "unauthenticated"
FORBIDDEN = "forbidden"
RETRY_AFTER: Mapping[str, str] = {"Retry-After": "1"}

_KINDS: tuple[tuple[type[LocusError], str, int], ...] = (
    # The first class that fits counts, so a class comes before its base classes.
    (InvalidIdError, "invalid_id", 400),
    (SerializationError, "not_json", 422),
    (WindowError, "window", 422),
    (ConflictError, "conflict", 412),
    (CheckpointNotFoundError, "no_such_checkpoint", 404),
    (CapabilityError, "not_supported", 501),
    (UnsupportedFormatError, "unsupported_format", 500),
    (CorruptCheckpointError, "corrupt", 500),
    (BackendUnavailableError, "store_unavailable", 503),
    (ConfigurationError, "invalid_request", 400),
    (CheckpointError, "failed", 500),
    (LocusError, "failed", 500),
)
ERRORS: Mapping[str, type[LocusError]] = {code: kind for kind, code, _ in reversed(_KINDS)}
"""The class of error for each code."""


class Problem(Exception):
    """An error as the answer to a request."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers or {}
        self.more = more or {}

    def data(self, request_id: str) -> dict[str, Any]:
        return {
            "type": f"urn:locus:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
            **self.more,
        }


_DETAILS: Mapping[str, str] = {
    "corrupt": "what is stored for this request cannot be read: load an earlier checkpoint, or restore a backup",
    "unsupported_format": "what is stored was written by a newer version of Locus: upgrade the server",
    "store_unavailable": "the store of this server could not be reached",
}
_ANY_DETAIL = "this server failed; its log says where, under this request_id"


def failure(status: int, code: str, *, headers: Mapping[str, str] | None = None) -> Problem:
    """A problem with the server. Its text is fixed, because that of an error may name files, hosts or stored data."""
    return Problem(status, code, _DETAILS.get(code, _ANY_DETAIL), headers=headers)


def problem_of(error: LocusError) -> Problem:
    """The problem that stands for an error. An error that the sender cannot have caused gets a fixed text."""
    if isinstance(error, ConfigurationError):  # requests are checked before, so the server is not set up well
        return failure(500, "misconfigured")
    code, status = next((code, status) for kind, code, status in _KINDS if isinstance(error, kind))
    if status == 503:
        return failure(status, code, headers=RETRY_AFTER)
    if status == 500:
        return failure(status, code)
    more: dict[str, Any] = {}
    if isinstance(error, ConflictError):
        more = {"expected": error.expected, "latest": error.latest}
    if isinstance(error, SerializationError):
        more = {"path": error.path}
    return Problem(status, code, str(error), more=more)
