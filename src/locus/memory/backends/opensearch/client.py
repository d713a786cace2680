"""Requests to OpenSearch, sent with the blocking driver on an OS thread. Whatever goes wrong raises `Failure`.

`_bulk`, `_mget` and `_search` answer 200 even if parts of them failed. So every part of an answer is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from locus.errors import BackendUnavailableError, CheckpointError, SerializationError
from locus.extras import require
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.model.codec import encode_trusted, parse
from locus.memory.runtime.retry import Backoff

Json = dict[str, Any]

PAGE_SIZE = 1_000
"""The number of hits that one search returns, and of ids that one `_mget` names."""
BULK_BYTES = 20_000_000
"""The size of one `_bulk` request; by default, servers accept a hundred million bytes."""

_REFUSED = 429
_CONFLICT = 409
_ATTEMPTS = 6

BUSY = Backoff(0.04, 5.12, random_part=0.7)
"""The pauses that give a busy server time."""
RACE = Backoff(0.004, 0.064, random_part=1.0)
"""The pauses in which another writer can finish first."""


def racing(times: int, what: str) -> Iterator[int]:
    """Number the attempts at something that other writers may prevent, with pauses in which they can finish.

    If the last attempt fails too, `Failure` is raised, which says `what` went wrong.
    """
    for attempt in range(times):
        yield attempt
        RACE.block(attempt)
    raise Failure(409, "too many writers", what)


def filtered(*clauses: Mapping[str, Any], **more: Any) -> Json:
    """The body of a search for the documents that fulfil all clauses; `more` are its other fields."""
    return {"query": {"bool": {"filter": [*clauses]}}, **more}


class Failure(Exception):
    """A request, or a part of one, failed. The driver's own error is the cause, if there is one."""

    def __init__(self, status: int | str, kind: str, reason: str = "") -> None:
        super().__init__(f"{kind}: {reason}" if reason else kind)
        self.status = status
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document, with the numbers that a conditional write needs."""

    id: str
    source: Json
    seq_no: int
    primary_term: int
    sort: Sequence[Any] = ()
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One item of a bulk request. It is refused if the document `unchanged` has changed since it was read."""

    action: str
    id: str
    source: Json | None = None
    version: int | None = None
    unchanged: StoredDocument | None = None

    def lines(self, routing: str) -> str:
        target: Json = {"_id": self.id, "routing": routing}
        if self.version is not None:
            target |= {"version": self.version, "version_type": "external"}
        if self.unchanged is not None:
            target |= {"if_seq_no": self.unchanged.seq_no, "if_primary_term": self.unchanged.primary_term}
        text = encode_trusted({self.action: target}) + "\n"
        return text if self.source is None else text + encode_trusted(self.source) + "\n"


class _Serializer:
    """The driver's JSON, except that answers are read by pydantic's parser: it takes half as long for a long thread."""

    mimetype = "application/json"

    def __init__(self, driver_json: Any) -> None:
        self._driver_json = driver_json

    def loads(self, text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            return self._driver_json.loads(text)  # reads lone surrogates and deep values, too, or says what is wrong

    def dumps(self, data: Any) -> Any:
        return self._driver_json.dumps(data)


class Client:
    """The requests that the backend sends. One OS thread uses it, with a connection of its own."""

    page_size = PAGE_SIZE

    def __init__(self, config: OpenSearchConfig, given: Any = None) -> None:
        driver = require("opensearchpy", "opensearch")
        self._errors = driver.exceptions
        self._config = config
        self._given = given
        self.index = config.index
        self.needs_alias = True
        self.may_write = True
        self._driver = given or driver.OpenSearch(
            hosts=[dict(host) for host in config.hosts],
            timeout=config.timeout,
            # Servers close connections that were idle for long: try once more, with a new one.
            max_retries=max(1, len(config.hosts) - 1),
            retry_on_timeout=False,
            retry_on_status=(),
            pool_maxsize=1,
            serializer=_Serializer(driver.JSONSerializer()),
            **config.options,
        )

    def close(self) -> None:
        if self._given is None:
            self._driver.close()

    def send(self, method: str, path: str, body: Any = None, *, expected: Sequence[int] = (), **params: Any) -> Any:
        """Send one request. If the server is too busy, send it again a little later.

        `expected` are statuses that the driver should not log as warnings; they are raised like all others.
        """
        for attempt in range(_ATTEMPTS - 1):
            try:
                return self._send(method, path, body, params, expected)
            except Failure as failure:
                if failure.status != _REFUSED:
                    raise
            BUSY.block(attempt)
        return self._send(method, path, body, params, expected)

    def _send(self, method: str, path: str, body: Any, params: Mapping[str, Any], expected: Sequence[int]) -> Any:
        errors = self._errors
        timeout = self._config.timeout
        try:
            all_params = {**params, "request_timeout": timeout, "ignore": tuple(expected)}
            answer = self._driver.transport.perform_request(method, f"/{path}", params=all_params, body=body)
        except errors.ConnectionTimeout as error:
            raise Failure("TIMEOUT", "no answer", f"within {timeout:g} s") from error
        except errors.SSLError as error:
            hint = "its certificate was not accepted, or it speaks no TLS; ca_certs names the file of its authority"
            raise Failure("N/A", "no encrypted connection", hint) from error
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
        self, routing: str, ids: Iterable[str], *, excludes: str = "", without_source: Collection[str] = ()
    ) -> dict[str, StoredDocument]:
        """Read those of these documents that exist, in real time.

        They lack the fields that `excludes` lists, separated by commas, and all fields for the ids in `without_source`.
        """
        documents: dict[str, StoredDocument] = {}
        for chunk in chunks(list(dict.fromkeys(ids)), PAGE_SIZE):
            body = {
                "docs": [
                    {"_id": doc_id, "routing": routing, **({"_source": False} if doc_id in without_source else {})}
                    for doc_id in chunk
                ]
            }
            params: dict[str, Any] = {"_source_excludes": excludes} if excludes else {}
            documents |= self._get(body, params)
        return documents

    def get_each(self, ids: Iterable[tuple[str, str]], *, excludes: str = "") -> dict[str, StoredDocument]:
        """Read documents of several threads, each with its routing, in real time."""
        found: dict[str, StoredDocument] = {}
        for chunk in chunks(list(dict.fromkeys(ids)), PAGE_SIZE):
            body = {"docs": [{"_id": doc_id, "routing": routing} for routing, doc_id in chunk]}
            found |= self._get(body, {"_source_excludes": excludes} if excludes else {})
        return found

    def get_threads(self, threads: Iterable[str]) -> dict[str, StoredDocument]:
        """Read the documents of several threads that exist, by the digests of their ids."""
        return self.get_each((thread, thread) for thread in threads)

    def _get(self, body: Json, params: dict[str, Any]) -> dict[str, StoredDocument]:
        documents: dict[str, StoredDocument] = {}
        for doc in self.send("POST", f"{self.index}/_mget", body, **params)["docs"]:
            if "error" in doc:
                raise _item_failure(doc.get("status", 0), doc["error"])
            if doc["found"]:
                documents[doc["_id"]] = StoredDocument(
                    doc["_id"], doc.get("_source", {}), doc["_seq_no"], doc["_primary_term"]
                )
        return documents

    def write(self, routing: str, items: Sequence[BulkItem]) -> list[bool]:
        """Write documents of one thread, in this order. False for those whose condition did not hold.

        Any other reason why one was not written is raised.
        """
        return [_written(answer) for answer in self._bulks([(routing, item) for item in items])]

    def write_each(self, items: Sequence[tuple[str, BulkItem]]) -> list[bool | None]:
        """Write documents of several threads, each with its routing.

        False for those whose condition did not hold, and None for those that were not written for any other reason.
        """
        return [_written(answer) if _is_settled(answer) else None for answer in self._bulks(items)]

    def _bulks(self, items: Sequence[tuple[str, BulkItem]]) -> list[Json]:
        """Send items in bulk requests, and return the answer to each."""
        return [answer for text in _bulk_bodies(items) for answer in self._bulk(text)]

    def _bulk(self, text: str) -> list[Json]:
        least = self._config.wait_for_active_shards
        copies = {} if least is None else {"wait_for_active_shards": least}
        for attempt in range(_ATTEMPTS):
            seconds = f"{max(1, int(self._config.timeout * 0.8))}s"
            params: Json = {"timeout": seconds, **({"require_alias": "true"} if self.needs_alias else {}), **copies}
            answer = self.send("POST", f"{self.index}/_bulk", text, **params)
            items = [next(iter(item.values())) for item in answer["items"]]
            if attempt == _ATTEMPTS - 1 or not items or any(item["status"] != _REFUSED for item in items):
                break
            BUSY.block(attempt)
        return items

    def refresh(self) -> None:
        """Make everything that was acknowledged until now visible to searches."""
        shards = self.send("POST", f"{self.index}/_refresh")["_shards"]
        if shards.get("failed"):
            raise _item_failure(503, shards.get("failures", [{}])[0].get("reason", {}))

    def search(self, body: Json, routing: str | None = None) -> list[StoredDocument]:
        """One page of hits."""
        return [
            StoredDocument(hit["_id"], hit.get("_source", {}), hit["_seq_no"], hit["_primary_term"],
                hit.get("sort", ()), hit.get("_score") or 0.0)
            for hit in self._searched(body, routing)["hits"]["hits"]
        ]  # fmt: skip

    def _searched(self, body: Json, routing: str | None = None) -> Json:
        """Check the answer to a search. An incomplete one is a failure."""
        params: Json = {"allow_partial_search_results": "false"}
        if routing is not None:
            params["routing"] = routing
        # The server gives up before this side does, and stops searching; then `timed_out` is true.
        limits = {"timeout": f"{max(1, int(self._config.timeout * 800))}ms", "seq_no_primary_term": True}
        answer: Json = self.send("POST", f"{self.index}/_search", {**body, **limits}, **params)
        shards = answer["_shards"]
        if answer["timed_out"] or shards["failed"]:
            late = " within `timeout`" if answer["timed_out"] else ""
            raise Failure(503, f"search not finished{late}", f"{shards['failed']} of {shards['total']} shards failed")
        return answer

    def server_time(self) -> int:
        """The time by the clock of the cluster, in microseconds.

        It is the end of a range up to now, over a field that no document has: whoever may search may ask for that.
        """
        up_to_now = {"date_range": {"field": "no_field", "ranges": [{"to": "now"}]}}
        body: Json = {"size": 0, "track_total_hits": False, "terminate_after": 1, "aggs": {"time": up_to_now}}
        (found,) = self._searched(body)["aggregations"]["time"]["buckets"]
        return int(found["to"]) * 1_000

    def pages(self, body: Json, routing: str | None = None, size: int | None = None) -> Iterator[list[StoredDocument]]:
        """Yield all hits, page by page. No two hits may have the same values of `sort`."""
        size = size or self.page_size
        last: Sequence[Any] | None = None
        while True:
            query = {**body, "size": size, "track_total_hits": False}
            if last is not None:
                query["search_after"] = list(last)
            hits = self.search(query, routing)
            if hits:
                yield hits
            if len(hits) < size:
                return
            last = hits[-1].sort


class MoreNeeded(Exception):
    """A document is needed that was not read beforehand."""


class ReadClient(Client):
    """Documents that were read beforehand. It sends nothing."""

    def __init__(self, client: Client, ids: Sequence[tuple[str, str]], *, excludes: str) -> None:
        self.index = client.index
        self.may_write = False
        found = client.get_each(ids, excludes=excludes)
        self._documents = {doc_id: found.get(doc_id) for _, doc_id in ids}

    def send(self, method: str, path: str, body: Any = None, *, expected: Sequence[int] = (), **params: Any) -> Any:
        raise MoreNeeded

    def get_many(
        self, routing: str, ids: Iterable[str], *, excludes: str = "", without_source: Collection[str] = ()
    ) -> dict[str, StoredDocument]:
        wanted = list(ids)
        if any(doc_id not in self._documents for doc_id in wanted):
            raise MoreNeeded
        return {doc_id: document for doc_id in wanted if (document := self._documents[doc_id]) is not None}


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _bulk_bodies(items: Sequence[tuple[str, BulkItem]]) -> Iterator[str]:
    """The bodies of bulk requests. None is too large for a server, unless a single document is."""
    texts: list[str] = []
    size = 0
    for routing, item in items:
        text = item.lines(routing)
        if texts and size + len(text) > BULK_BYTES:
            yield "".join(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        yield "".join(texts)


def _written(item: Json) -> bool:
    """Whether an item of a bulk request was carried out. False if its condition did not hold; else raises."""
    if not _is_settled(item):
        raise _item_failure(item["status"], item["error"])
    return bool(item["status"] < 300)


def _is_settled(item: Json) -> bool:
    """Whether an item of a bulk request has a final answer: it was carried out, or its condition did not hold.

    404 is the answer to the deletion of a document that does not exist.
    """
    status = item["status"]
    return status < 300 or status == _CONFLICT or (status == 404 and "error" not in item)


def _item_failure(status: int, error: Any) -> Failure:
    if not isinstance(error, dict):
        return Failure(status, str(error)[:200])
    kind = str(error.get("type", "error"))
    return Failure(404 if kind == "index_not_found_exception" else status, kind, _shown(error))


def _reason(info: Any) -> str:
    error = info.get("error", {}) if isinstance(info, dict) else {}
    return _shown(error) if isinstance(error, dict) else ""


def _shown(error: Json) -> str:
    """The reason of an error, cut off before the stored text that some errors quote at the end."""
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
    """Make an error of Locus from a `Failure`."""
    if not isinstance(error, Failure):
        return BackendUnavailableError(f"OpenSearch cannot be used now: {type(error).__name__}")
    text = str(error)
    if error.kind == "cluster_block_exception":
        return BackendUnavailableError(f"the index does not accept this now (is the disk nearly full?): {text}")
    if error.status == 413 or error.kind in ("mapper_parsing_exception", "x_content_parse_exception"):
        return SerializationError(f"OpenSearch cannot hold this: {text}")
    hint = _HINTS.get(error.status) if isinstance(error.status, int) else None
    return BackendUnavailableError(f"OpenSearch cannot be used now: {f'{hint} ({text})' if hint else text}")
