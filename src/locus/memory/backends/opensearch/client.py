"""Requests to OpenSearch: sent by a thread that may block, checked to the last item, and raised as `Failure`.

`_bulk`, `_mget` and `_search` answer 200 even if parts of them failed. Nothing of that is taken for an answer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from locus.errors import BackendUnavailableError, CheckpointError, SerializationError
from locus.extras import require
from locus.memory.model.codec import encode_trusted

Json = dict[str, Any]

PAGE = 1_000
"""Hits in one answer, and ids in one question."""
BULK_BYTES = 20_000_000
"""Bytes in one request of many documents; servers take a hundred million."""

_REFUSED = 429
_CONFLICT = 409
_ATTEMPTS = 6


class Failure(Exception):
    """What OpenSearch, or the way to it, did not do. The driver's own error is the cause."""

    def __init__(self, status: int | str, kind: str, reason: str = "") -> None:
        super().__init__(f"{kind}: {reason}" if reason else kind)
        self.status = status
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Doc:
    """A document as it is stored, with what a conditional write needs."""

    id: str
    source: Json
    seq_no: int
    primary_term: int
    sort: Sequence[Any] = ()
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Write:
    """One item of a bulk request. `only` is the document that must not have changed since."""

    action: str
    id: str
    source: Json | None = None
    version: int | None = None
    only: Doc | None = None

    def lines(self, routing: str) -> str:
        about: Json = {"_id": self.id, "routing": routing}
        if self.version is not None:
            about |= {"version": self.version, "version_type": "external"}
        if self.only is not None:
            about |= {"if_seq_no": self.only.seq_no, "if_primary_term": self.only.primary_term}
        text = encode_trusted({self.action: about}) + "\n"
        return text if self.source is None else text + encode_trusted(self.source) + "\n"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server is reached."""

    hosts: Sequence[Mapping[str, Any]]
    index: str
    timeout: float
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Client:
    """A connection of its own, used by one thread."""

    def __init__(self, settings: Settings, given: Any = None) -> None:
        driver = require("opensearchpy", "opensearch")
        self._errors = driver.exceptions
        self._settings = settings
        self._given = given
        self.index = settings.index
        self.needs_alias = True
        self._driver = given or driver.OpenSearch(
            hosts=[dict(host) for host in settings.hosts],
            timeout=settings.timeout,
            # One more try, with a new connection: servers close those that were idle for long.
            max_retries=max(1, len(settings.hosts) - 1),
            retry_on_timeout=False,
            retry_on_status=(),
            pool_maxsize=1,
            **settings.options,
        )

    def close(self) -> None:
        if self._given is None:
            self._driver.close()

    def send(self, method: str, path: str, body: Any = None, *, expected: Sequence[int] = (), **params: Any) -> Any:
        """One request. What the server is too busy for is asked again, a little later.

        `expected` are failures that are nothing to warn of; they are raised like all others.
        """
        for attempt in range(_ATTEMPTS - 1):
            try:
                return self._send(method, path, body, params, expected)
            except Failure as failure:
                if failure.status != _REFUSED:
                    raise
            pause(attempt)
        return self._send(method, path, body, params, expected)

    def _send(self, method: str, path: str, body: Any, params: Mapping[str, Any], expected: Sequence[int]) -> Any:
        errors = self._errors
        timeout = self._settings.timeout
        try:
            asked = {**params, "request_timeout": timeout, "ignore": tuple(expected)}
            answer = self._driver.transport.perform_request(method, f"/{path}", params=asked, body=body)
        except errors.ConnectionTimeout as error:
            raise Failure("TIMEOUT", "no answer", f"within {timeout:g} s") from error
        except errors.SSLError as error:
            said = "its certificate was not accepted, or it speaks no TLS; ca_certs names the file of its authority"
            raise Failure("N/A", "no encrypted connection", said) from error
        except errors.ConnectionError as error:
            raise Failure("N/A", "no connection", type(error.info).__name__) from error
        except errors.TransportError as error:
            raise Failure(error.status_code, str(error.error), _reason(error.info)) from error
        except (errors.OpenSearchException, OSError, ValueError) as error:
            raise Failure("N/A", "no readable answer", type(error).__name__) from error
        if expected and isinstance(answer, dict) and "error" in answer:
            raise _item_failure(answer.get("status", 0), answer["error"])
        return answer

    def get_many(
        self, routing: str, ids: Iterable[str], *, excludes: str = "", bare: Collection[str] = ()
    ) -> dict[str, Doc]:
        """Those of these documents that are there, as they are at this moment; of the bare ones only that."""
        found: dict[str, Doc] = {}
        for chunk in portions(list(dict.fromkeys(ids)), PAGE):
            body = {
                "docs": [
                    {"_id": name, "routing": routing, **({"_source": False} if name in bare else {})} for name in chunk
                ]
            }
            params: dict[str, Any] = {"_source_excludes": excludes} if excludes else {}
            found |= self._docs(body, params)
        return found

    def get_threads(self, threads: Iterable[str]) -> dict[str, Doc]:
        """The documents of several threads, by their digests."""
        found: dict[str, Doc] = {}
        for chunk in portions(list(dict.fromkeys(threads)), PAGE):
            found |= self._docs({"docs": [{"_id": name, "routing": name} for name in chunk]}, {})
        return found

    def _docs(self, body: Json, params: dict[str, Any]) -> dict[str, Doc]:
        found: dict[str, Doc] = {}
        for doc in self.send("POST", f"{self.index}/_mget", body, **params)["docs"]:
            if "error" in doc:
                raise _item_failure(doc.get("status", 0), doc["error"])
            if doc["found"]:
                found[doc["_id"]] = Doc(doc["_id"], doc.get("_source", {}), doc["_seq_no"], doc["_primary_term"])
        return found

    def write(self, routing: str, writes: Sequence[Write]) -> list[bool]:
        """Write documents of one thread, in this order. False for those whose condition did not hold.

        Everything else that keeps one from being written is raised.
        """
        done: list[bool] = []
        for text in _bodies(routing, writes):
            done += self._bulk(text)
        return done

    def _bulk(self, text: str) -> list[bool]:
        for attempt in range(_ATTEMPTS):
            seconds = f"{max(1, int(self._settings.timeout * 0.8))}s"
            params: Json = {"timeout": seconds, **({"require_alias": "true"} if self.needs_alias else {})}
            answer = self.send("POST", f"{self.index}/_bulk", text, **params)
            items = [next(iter(item.values())) for item in answer["items"]]
            if attempt == _ATTEMPTS - 1 or not items or any(item["status"] != _REFUSED for item in items):
                break
            pause(attempt)
        return [_written(item) for item in items]

    def refresh(self) -> None:
        """Make searches see everything that was acknowledged until now."""
        shards = self.send("POST", f"{self.index}/_refresh")["_shards"]
        if shards.get("failed"):
            raise _item_failure(503, shards.get("failures", [{}])[0].get("reason", {}))

    def search(self, body: Json, routing: str | None = None) -> list[Doc]:
        """One page of hits; an answer that is not whole is none."""
        params: Json = {"allow_partial_search_results": "false"}
        if routing is not None:
            params["routing"] = routing
        answer = self.send("POST", f"{self.index}/_search", {**body, "seq_no_primary_term": True}, **params)
        shards = answer["_shards"]
        if answer["timed_out"] or shards["failed"]:
            raise Failure(503, "search not finished", f"{shards['failed']} of {shards['total']} shards failed")
        return [
            Doc(hit["_id"], hit.get("_source", {}), hit["_seq_no"], hit["_primary_term"], hit.get("sort", ()),
                hit.get("_score") or 0.0)
            for hit in answer["hits"]["hits"]
        ]  # fmt: skip

    def pages(self, body: Json, routing: str | None = None, size: int = PAGE) -> Iterator[list[Doc]]:
        """All hits, page by page; `sort` in the body must tell any two of them apart."""
        last: Sequence[Any] | None = None
        while True:
            asked = {**body, "size": size, "track_total_hits": False}
            if last is not None:
                asked["search_after"] = list(last)
            hits = self.search(asked, routing)
            if hits:
                yield hits
            if len(hits) < size:
                return
            last = hits[-1].sort


def portions(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def pause(attempt: int) -> None:
    """Give a busy server time, longer each time, and never as long as the others give it."""
    time.sleep(random.uniform(0.3, 1.0) * 0.04 * 2**attempt)


def give_way(attempt: int) -> None:
    """Let another writer go first."""
    time.sleep(random.uniform(0.0, 0.004) * min(2**attempt, 16))


def _bodies(routing: str, writes: Sequence[Write]) -> Iterator[str]:
    """The bodies of bulk requests, none of them too large for a server, unless one document is."""
    texts: list[str] = []
    size = 0
    for write in writes:
        text = write.lines(routing)
        if texts and size + len(text) > BULK_BYTES:
            yield "".join(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        yield "".join(texts)


def _written(item: Json) -> bool:
    """Whether an item was done; 404 is a deletion of what is not there."""
    status = item["status"]
    if status < 300:
        return True
    if status == _CONFLICT or (status == 404 and "error" not in item):
        return False
    raise _item_failure(status, item["error"])


def _item_failure(status: int, error: Any) -> Failure:
    if not isinstance(error, dict):
        return Failure(status, str(error)[:200])
    kind = str(error.get("type", "error"))
    return Failure(404 if kind == "index_not_found_exception" else status, kind, _shown(error))


def _reason(info: Any) -> str:
    error = info.get("error", {}) if isinstance(info, dict) else {}
    return _shown(error) if isinstance(error, dict) else ""


def _shown(error: Json) -> str:
    """The reason, without the stored text that some have at the end."""
    root: Json = next(iter(error.get("root_cause") or ()), {})
    text = str(error.get("reason", ""))[:300]
    deeper = str(root.get("reason") or "")[:300]
    return f"{text} ({deeper})" if deeper and deeper != text else text


_HINTS = {
    401: "the user name or the password was refused",
    403: "it is not allowed",
    404: "the index is not there; it was deleted, or was never made. Nothing was read or written",
    413: "the request is larger than http.max_content_length",
    429: "the server is too busy, or short of memory; it was asked several times",
}


def translated(error: BaseException) -> CheckpointError:
    """Our error for a `Failure`."""
    if not isinstance(error, Failure):
        return BackendUnavailableError(f"OpenSearch cannot be used now: {type(error).__name__}")
    text = str(error)
    if error.kind == "cluster_block_exception":
        return BackendUnavailableError(f"the index does not accept this now (is the disk nearly full?): {text}")
    if error.status == 413 or error.kind in ("mapper_parsing_exception", "x_content_parse_exception"):
        return SerializationError(f"OpenSearch cannot hold this: {text}")
    hint = _HINTS.get(error.status) if isinstance(error.status, int) else None
    return BackendUnavailableError(f"OpenSearch cannot be used now: {f'{hint} ({text})' if hint else text}")
