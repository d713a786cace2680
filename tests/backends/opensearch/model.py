"""A model of an OpenSearch index, as far as the backend uses one: documents, conditions, searches as of a refresh.

It stands behind `Client`, below everything that the backend does, so that what writers do at the same time can be
tried in any order, and a server that dies in the middle of a bulk request at any item. What the real server does
is tried elsewhere.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from locus.memory.backends.opensearch.client import Client
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.backends.opensearch.engine import OpenSearchEngine
from locus.memory.backends.opensearch.schema import MAPPING
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore

Json = dict[str, Any]
Hook = Callable[[], None]


class Died(BaseException):
    """The program and its server have died."""


@dataclass
class Kept:
    source: Json
    seq_no: int
    version: int
    routing: str


@dataclass
class ModelIndex:
    """The documents, and what a search sees of them."""

    docs: dict[str, Kept] = field(default_factory=dict)
    searched: dict[str, Kept] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    operations: int = 0
    requests: int = 0
    die_at: int | None = None
    """The number of the write before which everything dies, once."""
    ahead: float = 0.0
    """How many seconds the clock of the server is ahead of this machine."""
    times_told: int = 0

    def write(self, action: str, about: Json, source: Json | None) -> int:
        """One item; the status."""
        self.operations += 1
        if self.operations == self.die_at:
            raise Died
        name, old = about["_id"], self.docs.get(about["_id"])
        if action == "create" and old is not None:
            return 409
        if "if_seq_no" in about and (old is None or old.seq_no != about["if_seq_no"]):
            return 409
        if "version" in about and old is not None and old.version >= about["version"]:
            return 409
        if action == "delete":
            return 200 if self.docs.pop(name, None) else 404
        assert source is not None
        assert source.keys() <= MAPPING["properties"].keys(), f"the mapping is strict: {sorted(source)}"
        assert len(name.encode()) <= 512
        version = about.get("version", old.version + 1 if old else 1)
        self.docs[name] = Kept(copy.deepcopy(source), self.operations, version, about["routing"])
        return 201

    def refresh(self) -> None:
        self.searched = dict(self.docs)


class ModelClient(Client):
    """The requests of the backend, answered by a model."""

    def __init__(self, config: OpenSearchConfig, index: ModelIndex, before: Hook | None) -> None:
        self._config = config
        self._model = index
        self._before = before
        self.index = config.index
        self.needs_alias = True

    def close(self) -> None:
        """There is nothing to close."""

    def _send(self, method: str, path: str, body: Any, params: Mapping[str, Any], expected: Sequence[int]) -> Any:
        if self._before is not None:
            self._before()
        with self._model.lock:
            self._model.requests += 1
            verb = path.partition("/")[2]
            answers: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
                "_mapping": lambda _body, _params: {f"{self.index}-v1": {"mappings": MAPPING}},
                "_mget": self._mget,
                "_bulk": self._bulk_request,
                "_refresh": self._refresh,
                "_search": self._search_request,
                "_delete_by_query": self._delete_by_query,
            }
            return json.loads(json.dumps(answers[verb](body, params)))

    def _mget(self, body: Json, params: Mapping[str, Any]) -> Json:
        docs = []
        for asked in body["docs"]:
            kept = self._model.docs.get(asked["_id"])
            found: Json = {"_id": asked["_id"], "found": kept is not None}
            if kept is not None:
                assert kept.routing == asked["routing"]
                excludes = params.get("_source_excludes", "").split(",")
                found |= {"_seq_no": kept.seq_no, "_primary_term": 1}
                if asked.get("_source", True):
                    found["_source"] = _without(kept.source, excludes)
            docs.append(found)
        return {"docs": docs}

    def _bulk_request(self, body: str, params: Mapping[str, Any]) -> Json:
        assert params["require_alias"] == "true"
        lines = [json.loads(line) for line in body.split("\n") if line]
        items = []
        while lines:
            ((action, about),) = lines.pop(0).items()
            status = self._model.write(action, about, None if action == "delete" else lines.pop(0))
            item: Json = {"_id": about["_id"], "status": status}
            if status == 409:
                item["error"] = {"type": "version_conflict_engine_exception"}
            elif status not in (200, 201, 404):
                item["error"] = {"type": "refused"}
            items.append({action: item})
        return {"items": items}

    def _refresh(self, _body: Any, _params: Mapping[str, Any]) -> Json:
        self._model.refresh()
        return {"_shards": {"failed": 0}}

    def _search_request(self, body: Json, params: Mapping[str, Any]) -> Json:
        hits: list[Json] = []
        for name, kept in self._model.searched.items():
            points = _points(body.get("query", {"bool": {}}), kept.source)
            if points is None or params.get("routing", kept.routing) != kept.routing:
                continue
            hits.append({"_id": name, "_seq_no": kept.seq_no, "_primary_term": 1, "_score": points, "kept": kept})
        for hit in hits:
            hit["sort"] = [_sort_value(key, hit) for key in body.get("sort", [])]
        orders = [_order(next(iter(key.values()))) for key in body.get("sort", [])]
        for at in range(len(orders) - 1, -1, -1):
            hits.sort(key=lambda hit, at=at: hit["sort"][at], reverse=orders[at] == "desc")  # type: ignore[misc]
        after = body.get("search_after")
        if after is not None:
            hits = [hit for hit in hits if _is_after(hit["sort"], after, orders)]
        chosen = hits[: body.get("size", 10)]
        wanted = body.get("_source", {})
        for hit in chosen:
            source = hit.pop("kept").source
            if isinstance(wanted, list):
                hit["_source"] = {key: value for key, value in source.items() if key in wanted}
            elif wanted is not False:
                hit["_source"] = _without(source, [*wanted.get("excludes", []), "words"])
        answer: Json = {"timed_out": False, "_shards": {"failed": 0, "total": 1}, "hits": {"hits": chosen}}
        if "aggs" in body:
            ((name, asked),) = body["aggs"].items()
            assert asked["date_range"]["field"] not in MAPPING["properties"]
            assert asked["date_range"]["ranges"] == [{"to": "now"}]
            self._model.times_told += 1
            millis = int((time.time() + self._model.ahead) * 1_000)
            answer["aggregations"] = {name: {"buckets": [{"to": float(millis), "doc_count": 0}]}}
        return answer

    def _delete_by_query(self, body: Json, _params: Mapping[str, Any]) -> Json:
        found = [name for name, kept in self._model.searched.items() if _points(body["query"], kept.source) is not None]
        for name in found:
            self._model.docs.pop(name, None)
        self._model.refresh()
        return {"deleted": len(found)}


def _without(source: Json, excludes: Sequence[str]) -> Json:
    left = copy.deepcopy(source)
    left.pop("words", None)
    for path in excludes:
        if path:
            _drop(left, path.split("."))
    return left


def _drop(value: Any, path: Sequence[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _drop(item, path)
    elif isinstance(value, dict) and len(path) == 1:
        value.pop(path[0], None)
    elif isinstance(value, dict) and path[0] in value:
        _drop(value[path[0]], path[1:])


def _sort_value(key: Json, hit: Json) -> Any:
    ((name, how),) = key.items()
    if name == "_score":
        return hit["_score"]
    source = hit["kept"].source
    if isinstance(how, str):
        return source[name]
    assert how["missing"] == "_first"
    return source.get(name, "")


def _order(how: str | Json) -> str:
    return how if isinstance(how, str) else str(how["order"])


def _is_after(values: Sequence[Any], last: Sequence[Any], orders: Sequence[str]) -> bool:
    for value, other, order in zip(values, last, orders, strict=True):
        if value != other:
            return bool(value < other) if order == "desc" else bool(value > other)
    return False


def _points(query: Json, source: Json) -> float | None:
    """How well a document answers; None if it does not."""
    ((kind, what),) = query.items()
    if kind == "bool":
        clauses = [*_listed(what.get("filter")), *_listed(what.get("must"))]
        if any(_points(clause, source) is None for clause in clauses):
            return None
        if any(_points(clause, source) is not None for clause in _listed(what.get("must_not"))):
            return None
        choices = _listed(what.get("should"))
        if choices and not clauses and all(_points(choice, source) is None for choice in choices):
            return None
        return sum(_points(clause, source) or 0.0 for clause in _listed(what.get("must"))) + 0.0
    ((name, asked),) = what.items()
    if kind == "exists":
        return 1.0 if asked in source else None
    found = source.get(name)
    if kind == "range":
        tests: dict[str, Callable[[Any, Any], bool]] = {
            "gt": lambda a, b: a > b, "gte": lambda a, b: a >= b, "lt": lambda a, b: a < b, "lte": lambda a, b: a <= b,
        }  # fmt: skip
        fits = found is not None and all(tests[test](found, bound) for test, bound in asked.items())
        return 1.0 if fits else None
    wanted = _listed(asked["value"] if isinstance(asked, dict) else asked)
    if name == "words":
        words = (found or "").split()
        return sum(words.count(word) for word in wanted) / (len(words) + 10) or None
    return 1.0 if set(wanted) & set(_listed(found)) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


class ModelEngine(OpenSearchEngine):
    """The backend's engine over a model; `before` is called before each request."""

    def __init__(self, index: ModelIndex, before: Hook | None = None) -> None:
        config = OpenSearchConfig([{"host": "model", "port": 0}], "model", 1.0)
        super().__init__(config, lambda _: ModelClient(config, index, before), connections=8)


def open_model(index: ModelIndex, before: Hook | None = None, **options: Any) -> Checkpointer:
    return Checkpointer(CheckpointStore(ModelEngine(index, before), **options))
