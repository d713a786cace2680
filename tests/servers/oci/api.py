"""OCI Object Storage's REST API, as far as checkpoints and the `oci` SDK need it: requests and their answers.

It follows what the SDK sends and expects, and Oracle's documentation of the errors, because Oracle offers no server
that runs on one machine. Only the real service can show what it gets wrong.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.servers.oci.faults import Fault, Faults
from tests.servers.oci.keys import NotAuthenticated, check_signature
from tests.servers.oci.objects import MOST_LISTED, Bucket, Buckets, Facts, Refusal, summary

NOT_AUTHENTICATED = "The required information to complete authentication was not provided or was incorrect."


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


def refused(status: int, code: str, message: str) -> Reply:
    return json_reply({"code": code, "message": message}, status)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def path(self) -> list[str]:
        """The parts of the path; the name of an object is the last one, slashes and all."""
        parts = urlsplit(self.target).path.split("/", 6)[1:]
        return [unquote(part) for part in parts]

    @cached_property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query, True).items()}

    @property
    def operation(self) -> str:
        match self.method, self.path:
            case "GET", ["n"] | ["n", ""]:
                return "GetNamespace"
            case "GET" | "HEAD", ["n", _, "b", _]:
                return "GetBucket" if self.method == "GET" else "HeadBucket"
            case "GET", ["n", _, "b", _, "o"]:
                return "ListObjects"
            case method, ["n", _, "b", _, "o", _]:
                return f"{method.capitalize()}Object"
            case "POST", ["n", _, "b", _, "actions", action]:
                return f"{action[:1].upper()}{action[1:]}"
        return "Unknown"


class ObjectStorage:
    """The answers, without the wire."""

    def __init__(self, folder: Path, namespace: str, durable: bool) -> None:
        self._folder = folder
        self.buckets = Buckets(folder / "data", namespace, durable)
        self.faults = Faults()
        self._keys: dict[str, RSAPublicKey] = {}
        self._keys_written = 0

    def answer(self, request: Request) -> Reply:
        try:
            self._check_signature(request)
            return self._answer(request)
        except NotAuthenticated as error:
            return refused(401, "NotAuthenticated", f"{NOT_AUTHENTICATED} ({error})")
        except Refusal as error:
            return refused(error.status, error.code, error.message)

    def _check_signature(self, request: Request) -> None:
        with_body = request.method == "POST" or (request.method == "PUT" and request.operation != "PutObject")
        facts = (request.method, request.target, request.headers, request.body)
        self._read_keys()
        check_signature(*facts, self._keys, body_required=with_body)

    def _read_keys(self) -> None:
        """Again only if the file has changed."""
        file = self._folder / "keys.json"
        written = file.stat().st_mtime_ns
        if written != self._keys_written:
            loaded = {key_id: load_pem_public_key(pem.encode()) for key_id, pem in json.loads(file.read_text()).items()}
            self._keys = {key_id: key for key_id, key in loaded.items() if isinstance(key, RSAPublicKey)}
            self._keys_written = written

    def _answer(self, request: Request) -> Reply:
        operation = request.operation
        if operation == "GetNamespace":
            return json_reply(self.buckets.namespace)
        if operation == "Unknown":
            raise Refusal(404, "NotAuthorizedOrNotFound", "Authorization failed or requested resource not found.")
        bucket = self.buckets.bucket(request.path[1], request.path[3])
        match operation:
            case "GetBucket" | "HeadBucket":
                return json_reply({"namespace": request.path[1], "name": request.path[3]}, etag="bucket")
            case "ListObjects":
                return _list(bucket, request)
            case "PutObject":
                return _put(bucket, request)
            case "GetObject" | "HeadObject":
                return _get(bucket, request)
            case "DeleteObject":
                bucket.delete(request.path[5], if_match=request.headers.get("if-match"))
                return Reply(204)
            case "RenameObject":
                return _rename(bucket, request)
            case "BatchDeleteObjects":
                return _batch_delete(bucket, request)
        raise Refusal(405, "MethodNotAllowed", f"{operation} is not part of this server")

    def control(self, request: Request) -> Reply:
        match request.method, request.path[1:]:
            case "PUT", ["buckets", name]:
                self.buckets.create(name)
            case "PUT", ["faults"]:
                self.faults.set([Fault(**fault) for fault in json.loads(request.body)])
            case "GET", ["counts"]:
                return json_reply(self.faults.counts(reset="reset" in request.query))
            case _:
                return Reply(404)
        return Reply(204)


def _list(bucket: Bucket, request: Request) -> Reply:
    query = request.query
    fields = {name.strip().lower() for name in query.get("fields", "name").split(",")}
    listing = bucket.list(
        prefix=query.get("prefix", ""),
        start=query.get("start", ""),
        start_after=query.get("startAfter", ""),
        end=query.get("end"),
        limit=int(query.get("limit", MOST_LISTED)),
        delimiter=query.get("delimiter"),
    )
    found: dict[str, Any] = {"objects": [summary(facts, fields) for facts in listing.found]}
    if "delimiter" in query:
        found["prefixes"] = listing.prefixes
    if listing.next_start_with is not None:
        found["nextStartWith"] = listing.next_start_with
    return json_reply(found)


def _put(bucket: Bucket, request: Request) -> Reply:
    headers = request.headers
    md5 = b64encode(hashlib.md5(request.body, usedforsecurity=False).digest()).decode()
    if headers.get("content-md5", md5) != md5:
        raise Refusal(400, "UnmatchedContentMD5", "The computed MD5 of the request body does not match Content-MD5")
    facts = bucket.put(
        request.path[5],
        request.body,
        content_type=headers.get("content-type", "application/octet-stream"),
        metadata={name: value for name, value in headers.items() if name.startswith("opc-meta-")},
        if_match=headers.get("if-match"),
        if_none_match=headers.get("if-none-match"),
    )
    return Reply(
        200, headers={"etag": facts.etag, "opc-content-md5": facts.md5, "last-modified": _http_date(facts.modified)}
    )


def _get(bucket: Bucket, request: Request) -> Reply:
    facts, body = bucket.get(request.path[5])
    if_match, if_none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if if_match not in (None, "*", facts.etag):
        raise Refusal(412, "IfMatchFailed", "The entity tag of the object is not that of If-Match")
    if if_none_match in ("*", facts.etag):
        return Reply(304, headers={"etag": facts.etag})
    asked = request.headers.get("range")
    if asked is None:
        return Reply(200, body, {**_headers_of(facts), "content-md5": facts.md5})
    first, last = _range(asked, len(body))
    extent = {"content-range": f"bytes {first}-{last}/{len(body)}"}
    return Reply(206, body[first : last + 1], {**_headers_of(facts), **extent})


def _headers_of(facts: Facts) -> dict[str, str]:
    return {
        "etag": facts.etag,
        "content-type": facts.content_type,
        "last-modified": _http_date(facts.modified),
        "storage-tier": "Standard",
        **facts.metadata,
    }


def _http_date(iso: str) -> str:
    return format_datetime(datetime.fromisoformat(iso), usegmt=True)


def _range(asked: str, size: int) -> tuple[int, int]:
    first, dash, last = asked.removeprefix("bytes=").partition("-")
    try:
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last), size - 1) if first and last else size - 1
    except ValueError:
        start, end = size, 0
    if not dash or start > end:
        raise Refusal(416, "InvalidRange", "The range cannot be satisfied")
    return start, end


def _rename(bucket: Bucket, request: Request) -> Reply:
    details = json.loads(request.body)
    conditions = {
        "source": details.get("srcObjIfMatchETag"),
        "if_match": details.get("newObjIfMatchETag"),
        "if_none_match": details.get("newObjIfNoneMatchETag"),
    }
    facts = bucket.rename(details["sourceName"], details["newName"], conditions)
    return Reply(200, headers={"etag": facts.etag, "last-modified": _http_date(facts.modified)})


def _batch_delete(bucket: Bucket, request: Request) -> Reply:
    details = json.loads(request.body)
    if not 0 < len(details["objects"]) <= MOST_LISTED:
        raise Refusal(400, "InvalidParameter", f"Between 1 and {MOST_LISTED} objects are deleted at once")
    deleted, failed = [], []
    for item in details["objects"]:
        try:
            bucket.delete(item["objectName"], if_match=item.get("ifMatch"))
        except Refusal as error:
            failed.append(
                {
                    "objectName": item["objectName"],
                    "statusCode": error.status,
                    "errorCode": error.code,
                    "errorMessage": error.message,
                }
            )
        else:
            deleted.append({"objectName": item["objectName"]})
    return json_reply({"deleted": [] if details.get("isSkipDeletedResult") else deleted, "failed": failed})
