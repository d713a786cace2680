"""What the service or the network answered, as an error of ours, in words that say what to do."""

from __future__ import annotations

from typing import Any

from locus.errors import BackendUnavailableError, CheckpointError

_CREDENTIALS = (
    "check that the profile's user, tenancy, fingerprint and key belong together, that the public key is uploaded "
    "to that user, that a security token has not ended, and that this machine's clock is right to five minutes"
)


def refused(error: Any, namespace: str, bucket: str) -> CheckpointError:
    """For a `ServiceError`. The keys of objects are digests, and messages have no secret in them."""
    said = f"{error.status} {error.code}" + (f", {error.message}" if error.message else "")
    asked = f" (opc-request-id {error.request_id})" if error.request_id else ""
    where = f"the bucket {bucket!r} in the namespace {namespace!r}"
    match error.status:
        case 401:
            return BackendUnavailableError(f"OCI refused the signature: {said}{asked}; {_CREDENTIALS}")
        case 403 | 404:
            return BackendUnavailableError(
                f"{where} is not there, or may not be used: {said}{asked}; check its name, the namespace and the "
                "region, and that a policy allows these objects to be read, created, deleted and listed"
            )
        case 413:
            return CheckpointError(f"the checkpoint is too large for one object: {said}{asked}")
        case 429:
            return BackendUnavailableError(f"OCI limits the requests to {where}: {said}{asked}; try again later")
    return BackendUnavailableError(f"OCI Object Storage failed: {said}{asked}")


def unreached(error: BaseException, endpoint: str) -> BackendUnavailableError:
    """For whatever went wrong before there was an answer. The SDK's own text, with its URL, stays in the cause."""
    root: BaseException = error
    while root.args and isinstance(root.args[0], BaseException):
        root = root.args[0]
    return BackendUnavailableError(f"OCI Object Storage at {endpoint} did not answer: {type(root).__name__}")
