"""Buckets and objects in a folder, with the rules of OCI Object Storage.

::

    <folder>/<namespace>/<bucket>/<digest of the name>     a line of JSON (name, etag, …), then the body

An object is written beside its place and renamed into it, so a server that is killed leaves the old object or
the new one. Names are listed in the order of their UTF-8 bytes. An ETag is new with every write.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_LISTED = 1_000
MOST_NAME_BYTES = 1_024


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True)
class Facts:
    """What is known of an object without its body."""

    name: str
    etag: str
    md5: str
    size: int
    content_type: str
    created: str
    modified: str
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Listing:
    found: list[Facts]
    prefixes: list[str]
    next_start_with: str | None


class Bucket:
    """The objects of one bucket. Any number of threads may use it."""

    def __init__(self, folder: Path, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._lock = threading.Lock()
        self._facts: dict[str, Facts] = {}
        for path in folder.iterdir():
            if path.suffix == ".new":
                path.unlink()
                continue
            with path.open("rb") as file:
                facts = Facts(**json.loads(file.readline()))
            self._facts[facts.name] = facts
        self._order = sorted(map(_sort_key, self._facts))

    def put(
        self,
        name: str,
        body: bytes,
        *,
        content_type: str,
        metadata: Mapping[str, str],
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> Facts:
        _check_name(name)
        with self._lock:
            before = self._facts.get(name)
            _check_conditions(name, before, if_match, if_none_match)
            now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            facts = Facts(
                name=name,
                etag=str(uuid.uuid4()),
                md5=base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
                size=len(body),
                content_type=content_type,
                created=before.created if before else now,
                modified=now,
                metadata=dict(metadata),
            )
            self._write(facts, body)
            if before is None:
                bisect.insort(self._order, _sort_key(name))
            self._facts[name] = facts
            return facts

    def get(self, name: str) -> tuple[Facts, bytes]:
        with self._lock:
            facts = self.facts(name)
            _, _, body = self._path(name).read_bytes().partition(b"\n")
            return facts, body

    def facts(self, name: str) -> Facts:
        found = self._facts.get(name)
        if found is None:
            raise Refusal(404, "ObjectNotFound", f"The object '{name}' was not found in the bucket")
        return found

    def delete(self, name: str, *, if_match: str | None = None) -> None:
        with self._lock:
            _check_conditions(name, self.facts(name), if_match, None)
            self._remove(name)

    def rename(self, source: str, name: str, conditions: Mapping[str, str | None]) -> Facts:
        """`conditions` has those of the new name, and `source` for the old one."""
        _check_name(name)
        with self._lock:
            facts = self.facts(source)
            _check_conditions(source, facts, conditions.get("source"), None)
            _check_conditions(name, self._facts.get(name), conditions.get("if_match"), conditions.get("if_none_match"))
            _, _, body = self._path(source).read_bytes().partition(b"\n")
            renamed = Facts(**{**asdict(facts), "name": name})
            self._write(renamed, body)
            if name not in self._facts:
                bisect.insort(self._order, _sort_key(name))
            self._facts[name] = renamed
            if source != name:
                self._remove(source)
            return renamed

    def list(
        self,
        *,
        prefix: str = "",
        start: str = "",
        start_after: str = "",
        end: str | None = None,
        limit: int = MOST_LISTED,
        delimiter: str | None = None,
    ) -> Listing:
        if delimiter not in (None, "/"):
            raise Refusal(400, "InvalidParameter", "Only '/' is a supported delimiter")
        if not 0 < limit <= MOST_LISTED:
            raise Refusal(400, "InvalidParameter", f"limit must be between 1 and {MOST_LISTED}")
        found: list[Facts] = []
        prefixes: dict[str, None] = {}
        with self._lock:
            for name in self._names(prefix, start, start_after, end):
                folder = _folder_of(name, prefix) if delimiter else None
                if folder is None or folder not in prefixes:
                    if len(found) + len(prefixes) == limit:
                        return Listing(found, [*prefixes], name)
                    if folder is None:
                        found.append(self._facts[name])
                    else:
                        prefixes[folder] = None
        return Listing(found, [*prefixes], None)

    def _names(self, prefix: str, start: str, start_after: str, end: str | None) -> Iterator[str]:
        position = bisect.bisect_left(self._order, max(_sort_key(prefix), _sort_key(start)))
        if start_after:
            position = max(position, bisect.bisect_right(self._order, _sort_key(start_after)))
        for key in self._order[position:]:
            if not key.startswith(_sort_key(prefix)) or (end is not None and key >= _sort_key(end)):
                return
            yield key.decode()

    def _path(self, name: str) -> Path:
        return self._folder / hashlib.sha256(name.encode()).hexdigest()

    def _write(self, facts: Facts, body: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".new", delete=False) as file:
            file.write(json.dumps(asdict(facts)).encode() + b"\n" + body)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())
        Path(file.name).replace(self._path(facts.name))
        self._settle()

    def _remove(self, name: str) -> None:
        del self._facts[name]
        del self._order[bisect.bisect_left(self._order, _sort_key(name))]
        self._path(name).unlink()
        self._settle()

    def _settle(self) -> None:
        if self._durable:
            folder = os.open(self._folder, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)


class Buckets:
    """All buckets of one namespace."""

    def __init__(self, folder: Path, namespace: str, durable: bool = False) -> None:
        self.namespace = namespace
        self._folder = folder / namespace
        self._durable = durable
        self._lock = threading.Lock()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._buckets = {path.name: Bucket(path, durable) for path in self._folder.iterdir()}

    def create(self, name: str) -> None:
        with self._lock:
            if name in self._buckets:
                raise Refusal(409, "BucketAlreadyExists", f"Either the bucket '{name}' already exists or it is taken")
            (self._folder / name).mkdir()
            self._buckets[name] = Bucket(self._folder / name, self._durable)

    def bucket(self, namespace: str, name: str) -> Bucket:
        if namespace != self.namespace:
            message = "You do not have authorization to perform this request, or the resource could not be found."
            raise Refusal(404, "NamespaceNotFound", message)
        found = self._buckets.get(name)
        if found is None:
            message = f"Either the bucket named '{name}' does not exist in the namespace '{namespace}' or you are not "
            raise Refusal(404, "BucketNotFound", message + "authorized to access it")
        return found


def summary(facts: Facts, fields: set[str]) -> dict[str, Any]:
    """An object as ListObjects shows it; only the name, unless more is asked for."""
    known: dict[str, Any] = {
        "size": facts.size,
        "etag": facts.etag,
        "md5": facts.md5,
        "timeCreated": facts.created,
        "timeModified": facts.modified,
        "storageTier": "Standard",
    }
    return {"name": facts.name, **{name: value for name, value in known.items() if name.lower() in fields}}


def _sort_key(name: str) -> bytes:
    return name.encode()


def _folder_of(name: str, prefix: str) -> str | None:
    head, slash, _ = name.removeprefix(prefix).partition("/")
    return f"{prefix}{head}/" if slash else None


def _check_name(name: str) -> None:
    if not name or len(name.encode()) > MOST_NAME_BYTES or any(character in name for character in "\r\n\0"):
        raise Refusal(400, "InvalidObjectName", "The object name is empty, too long, or has a forbidden character")


def _check_conditions(name: str, before: Facts | None, if_match: str | None, if_none_match: str | None) -> None:
    if if_none_match is not None and if_none_match != "*":
        raise Refusal(400, "InvalidParameter", "The only valid value of If-None-Match is '*'")
    if if_none_match == "*" and before is not None:
        raise Refusal(412, "IfNoneMatchFailed", f"The object '{name}' exists already, and If-None-Match is '*'")
    if if_match is not None and (before is None or if_match not in ("*", before.etag)):
        raise Refusal(412, "IfMatchFailed", f"The entity tag of the object '{name}' is not that of If-Match")
