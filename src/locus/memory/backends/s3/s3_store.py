"""Objects under a prefix of an S3 bucket, for the object engine."""

from __future__ import annotations

import builtins
import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import datetime
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from locus.errors import CheckpointError
from locus.memory.backends.objects.client import PAGE, Listed, ObjectStore
from locus.memory.backends.s3.client import Access, S3Client
from locus.memory.backends.s3.s3_errors import S3Error, error_of, field, local, translated


class S3ObjectStore(ObjectStore):
    """The five requests, from any event loop."""

    def __init__(self, access: Access, prefix: str) -> None:
        super().__init__()
        self._access = access
        self._prefix = prefix
        self._client = S3Client(access, self.requests)
        self.driver_errors = self._client.errors  # type: ignore[misc]  # known when the driver is
        self.at_once = access.max_connections

    @property
    def identity(self) -> str:
        return f"s3:{self._access.address}/{self._prefix}"

    def translate(self, error: BaseException) -> CheckpointError:
        return translated(error, self._access.bucket, self._access.endpoint_url)

    async def put(self, key: str, body: bytes, *, if_absent: bool) -> bool:
        headers = {"If-None-Match": "*"} if if_absent else {}
        answer = await self._client.ask(
            "put", "PUT", self._prefix + key, body=body, headers=headers, accept=lambda error: error.status == 412
        )
        return answer.status != 412

    async def get(self, key: str) -> bytes | None:
        answer = await self._client.ask(
            "get", "GET", self._prefix + key, accept=lambda error: error.code == "NoSuchKey"
        )
        return answer.body if answer.status < 300 else None

    async def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> builtins.list[Listed]:
        found: builtins.list[Listed] = []
        query = {"list-type": "2", "encoding-type": "url", "prefix": self._prefix + prefix}
        if start_after is not None:
            query["start-after"] = self._prefix + start_after
        while limit is None or len(found) < limit:
            query["max-keys"] = str(PAGE if limit is None else min(PAGE, limit - len(found)))
            answer = await self._client.ask("list", "GET", "", query=query)
            page = _parsed(answer.body)
            encoded = field(page, "EncodingType") == "url"
            found += [self._listed(node, encoded) for node in page if local(node.tag) == "Contents"]
            token = field(page, "NextContinuationToken")
            if field(page, "IsTruncated") != "true" or not token:
                break
            query["continuation-token"] = token
        return found

    def _listed(self, node: ElementTree.Element, encoded: bool) -> Listed:
        key = field(node, "Key")
        key = (unquote(key) if encoded else key).removeprefix(self._prefix)
        return Listed(key, int(field(node, "Size")), datetime.fromisoformat(field(node, "LastModified")))

    async def delete(self, keys: Iterable[str]) -> None:
        for some in _pages(keys):
            entries = "".join(f"<Object><Key>{escape(self._prefix + key)}</Key></Object>" for key in some)
            body = f"<Delete><Quiet>true</Quiet>{entries}</Delete>".encode()
            digest = b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
            headers = {"Content-MD5": digest, "Content-Type": "application/xml"}
            answer = await self._client.ask("delete", "POST", "", query={"delete": ""}, body=body, headers=headers)
            for node in _parsed(answer.body):
                if local(node.tag) == "Error" and field(node, "Code") != "NoSuchKey":
                    raise S3Error(200, field(node, "Code"), field(node, "Message"), "deleting objects")

    async def close(self) -> None:
        await self._client.close()


def _parsed(body: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise error_of(200, b"", f"the answer is not XML ({error})") from error


def _pages(keys: Iterable[str]) -> Iterator[builtins.list[str]]:
    left = list(keys)
    for start in range(0, len(left), PAGE):
        yield left[start : start + PAGE]
