"""What S3 answers instead of what was asked for, and what that means to us."""

from __future__ import annotations

from xml.etree import ElementTree

from locus.errors import BackendUnavailableError, CheckpointError, SerializationError

_ADVICE = {
    "NoSuchBucket": "the bucket does not exist: create it, or correct its name, region or endpoint",
    "AccessDenied": "these credentials may not do that: see the policy in the documentation",
    "SignatureDoesNotMatch": "the secret key does not fit the access key",
    "InvalidAccessKeyId": "the access key is unknown there",
    "ExpiredToken": "the session token has expired: get new credentials",
    "InvalidToken": "the session token is not valid there",
    "RequestTimeTooSkewed": "this machine's clock is wrong by more than a quarter of an hour",
    "AuthorizationHeaderMalformed": "the region is wrong: give `region_name`",
    "PermanentRedirect": "the bucket is in another region: give `region_name`",
    "NotImplemented": "this server has no conditional writes, without which nothing can be saved safely",
}


class S3Error(Exception):
    """An answer of the server that is no success. Only its code and message are kept, which hold no secret."""

    def __init__(self, status: int, code: str, message: str, action: str) -> None:
        super().__init__(f"{action}: {status} {code}: {message}".rstrip(": "))
        self.status = status
        self.code = code

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed a little later."""
        busy = self.status in (429, 500, 502, 503, 504)
        return busy or self.code in ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown")


def error_of(status: int, body: bytes, action: str) -> S3Error:
    code = message = ""
    try:
        root = ElementTree.fromstring(body) if body.strip() else None
    except ElementTree.ParseError:
        root = None
    if root is not None:
        code, message = field(root, "Code"), field(root, "Message")
    return S3Error(status, code, message[:300], action)


def local(tag: str) -> str:
    """A tag without its name space: not every server gives one."""
    return tag.rpartition("}")[2]


def field(node: ElementTree.Element, name: str) -> str:
    """The text of a child, "" if there is none."""
    return next((child.text or "" for child in node if local(child.tag) == name), "")


def translated(error: BaseException, bucket: str, place: str) -> CheckpointError:
    """Our error for one of the driver's."""
    where = f"the S3 bucket {bucket!r} at {place}"
    if isinstance(error, S3Error):
        if error.code == "EntityTooLarge":
            return SerializationError(f"a checkpoint is larger than {where} takes in one object: {error}")
        advice = _ADVICE.get(error.code)
        return BackendUnavailableError(f"{where} refused a request ({error})" + (f"; {advice}" if advice else ""))
    if isinstance(error, TimeoutError):
        return BackendUnavailableError(f"{where} did not answer in time")
    return BackendUnavailableError(f"{where} cannot be reached: {type(error).__name__}: {error}")
