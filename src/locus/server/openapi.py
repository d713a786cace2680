"""The OpenAPI document of the server: written beside the endpoints, and held against them by tests.

The schemas of what passes over the wire.
"""

from __future__ import annotations

from typing import Any

from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.ids import MAX_ID_LENGTH
from locus.server.bodies import Limits
from locus.server.fields import MOST
from locus.wire.problems import MEDIA_TYPE

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": MOST}
OBJECT: Schema = {"type": "object"}
ANYTHING: Schema = {}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def obj(properties: dict[str, Schema], *required: str, closed: bool = False) -> Schema:
    """An object. What is answered has all its properties; what is sent has those that are named."""
    schema: Schema = {"type": "object", "properties": properties}
    if required or not closed:
        schema["required"] = [*(required or properties)]
    if closed:
        schema["additionalProperties"] = False
    return schema


def row(*items: Schema) -> Schema:
    """A list with one item of each kind."""
    return {"type": "array", "prefixItems": [*items], "items": False, "minItems": len(items)}


def several(count: int) -> Schema:
    """A list with so many items, of several kinds."""
    return {"type": "array", "minItems": count, "maxItems": count}


_ENTRY: dict[str, Schema] = {
    "thread_id": TEXT,
    "namespace": TEXT,
    "checkpoint_id": TEXT,
    "parent_id": nullable(TEXT),
    "seq": NUMBER,
    "rev": TEXT,
    "created_at": {"type": "string", "format": "date-time"},
    "metadata": OBJECT,
}
_REV: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{8,64}$"}
_BRANCH: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{8,80}$"}
_VALUE: Schema = {"type": "string", "pattern": "^#[0-9a-f]{32}$"}
_BOUNDED_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
_EXTENTS: Schema = {**array(row(_BRANCH, NUMBER, NUMBER, NUMBER)), "minItems": 1, "maxItems": 64}
_PATH: Schema = {**array(TEXT), "minItems": 1}
_TIME: Schema = {"type": "string", "format": "date-time"}

SCHEMAS: dict[str, Schema] = {
    "Problem": obj(
        {
            "type": TEXT,
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
            "code": TEXT,
            "request_id": TEXT,
        }
    ),
    "About": obj(
        {
            "service": {"const": "locus"},
            "protocol": {"type": "integer"},
            "version": TEXT,
            "capabilities": {"type": "object", "additionalProperties": FLAG},
            "pending_writes": FLAG,
            "deltas": FLAG,
            "exports": FLAG,
            "keeps_key_order": FLAG,
            "limits": obj({"body_bytes": NUMBER}),
            "encodings": array(TEXT),
        }
    ),
    "Entry": obj(_ENTRY),
    "Checkpoint": obj({**_ENTRY, "state": OBJECT}),
    "Hit": obj({**_ENTRY, "score": {"type": "number"}, "snippet": TEXT}),
    "Pair": row({"type": "string", "maxLength": 255}, ANYTHING),
    "NumberAndRev": row(NUMBER, TEXT),
    "Write": obj({"task_id": TEXT, "task_path": TEXT, "idx": {"type": "integer"}, "channel": TEXT, "value": ANYTHING}),
    "Stored": obj(
        {
            "entry": ref("Entry"),
            "head": {"type": "string", "contentMediaType": "application/json"},
            "manifest": {"type": "string", "contentMediaType": "application/json"},
            "runs": array(several(5)),
            "passed": FLAG,
        }
    ),
    "Exported": obj(
        {"checkpoints": array(row(TEXT, TEXT, ref("Entry"))), "runs": array(several(5)), "writes": array(several(3))}
    ),
    "Outcome": obj(
        {
            "verdict": {"enum": ["committed", "exists", "stale_base", "branch_taken"]},
            "seq": NUMBER,
            "parent_id": nullable(TEXT),
            "repeated": FLAG,
            "replaced": several(4),
        },
        "verdict",
    ),
    "Commit": obj(
        {
            "checkpoint_id": _BOUNDED_ID,
            "rev": _REV,
            "created_at": _TIME,
            "metadata": OBJECT,
            "head": OBJECT,
            "manifest": array(row(_PATH, {"anyOf": [_VALUE, _EXTENTS]})),
            "runs": array(row(_BRANCH, NUMBER, NUMBER, {"type": "array", "minItems": 1})),
            "values": array(row(_VALUE, TEXT)),
            "base": nullable(row(_BOUNDED_ID, _BOUNDED_ID)),
            "parent_id": nullable(_BOUNDED_ID),
            "parent_required": FLAG,
            "parent_as_named": FLAG,
            "replaces": nullable(TEXT),
            "expires_at": nullable(_TIME),
        },
        *("checkpoint_id", "rev", "created_at", "metadata", "head", "manifest"),
        closed=True,
    ),
}

_ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
_NAME: Schema = {"type": "string", "maxLength": MAX_ID_LENGTH}
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_THREAD = "/threads/{thread_id}"
_ONE = f"{_THREAD}/checkpoints/{{checkpoint_id}}"

DESCRIPTION = """\
Threads of checkpoints over HTTP. An id in a path is percent-encoded; one that begins with `~`, or that a proxy \
might change, is written as `~` and its UTF-8 in base64url. Errors are problem details (RFC 9457); their `code` \
says which. Ids of checkpoints are entity tags: `If-Match: "c7"` saves only if `c7` is the latest, and \
`If-None-Match: *` only if there is none. A save under an id that exists changes nothing if the state is equal, \
so it can be repeated."""


def document(version: str, limits: Limits) -> Schema:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Locus", "version": version, "description": DESCRIPTION, "license": {"name": "MIT"}},
        "paths": {**_operations(), **_threads(), **_checkpoints(), **_engine(), **_queries()},
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": f"A problem. A body is at most {limits.body_bytes} bytes.",
                    "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
                }
            },
        },
        "security": [{"token": []}, {}],
    }


def _query(name: str, schema: Schema, text: str = "") -> Schema:
    return {"name": name, "in": "query", "schema": schema, **({"description": text} if text else {})}


def _segment(name: str) -> Schema:
    # The other way to write an id, with `~`, is for those whose ids need it.
    schema = {**_ID, "pattern": "^[^~]"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


_NAMESPACE = _query("namespace", {**_NAME, "default": "default"})
_CONDITIONS = [
    {"name": "If-Match", "in": "header", "schema": {"type": "string", "pattern": '^"[A-Za-z0-9_-]+"$'}},
    {"name": "If-None-Match", "in": "header", "schema": {"type": "string", "const": "*"}},
]


def _limit(otherwise: int, most: int) -> Schema:
    return _query("limit", {"type": "integer", "minimum": 0, "maximum": most, "default": otherwise})


def _operation(
    name: str,
    summary: str,
    answers: dict[str, Schema],
    *,
    parameters: list[Schema] | None = None,
    body: Schema | None = None,
    public: bool = False,
) -> Schema:
    operation: Schema = {
        "operationId": name,
        "summary": summary,
        "responses": {**answers, "default": {"$ref": "#/components/responses/Problem"}},
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if public:
        operation["security"] = []
    return operation


def _answer(schema: Schema, text: str, status: str = "200", **headers: str) -> dict[str, Schema]:
    answer: Schema = {"description": text, "content": {"application/json": {"schema": schema}}}
    if headers:
        answer["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in headers.items()
        }
    return {status: answer}


_DONE: dict[str, Schema] = {"204": {"description": "Done"}}


def _operations() -> dict[str, Schema]:
    figures = {"200": {"description": "Figures for Prometheus", "content": {"text/plain": {"schema": _TEXT}}}}
    status = obj({"status": _TEXT})
    return {
        "/": {"get": _operation("about", "What this server can do", _answer(ref("About"), "What it can do"))},
        "/health": {"get": _operation("health", "Whether this process runs", _answer(status, "It does"), public=True)},
        "/ready": {"get": _operation("ready", "Whether the store answers", _answer(status, "It does"), public=True)},
        "/metrics": {"get": _operation("metrics", "Figures", figures)},
        "/openapi.json": {
            "get": _operation("openapi", "This document", _answer({"type": "object"}, "OpenAPI"), public=True)
        },
    }


def _threads() -> dict[str, Schema]:
    limit = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 10_000}, {"const": "all"}], "default": 100}
    listing = [
        _query("pattern", {**_TEXT, "default": "*"}, "`*` stands for any text, `?` for one character"),
        _query("limit", limit),
    ]
    ids = obj({"threads": array(_ID)})
    lines = {"application/jsonl": {"schema": _TEXT}}
    return {
        "/threads": {
            "get": _operation("list_threads", "Ids of threads, in order", _answer(ids, "Ids"), parameters=listing)
        },
        _THREAD: {
            "parameters": [_segment("thread_id")],
            "delete": _operation(
                "delete_thread", "Delete a thread, or a namespace of it", _DONE, parameters=[_query("namespace", _NAME)]
            ),
        },
        f"{_THREAD}/export": {
            "parameters": [_segment("thread_id")],
            "get": _operation(
                "export",
                "All checkpoints, oldest first, one JSON object a line",
                {"200": {"description": "Lines", "content": lines}},
            ),
        },
        f"{_THREAD}/latest": {
            "parameters": [_segment("thread_id")],
            "get": _operation(
                "load_latest",
                "The latest checkpoint, with its state",
                _answer(ref("Checkpoint"), "The checkpoint", ETag="Its id"),
                parameters=[_NAMESPACE],
            ),
        },
    }


def _checkpoints() -> dict[str, Schema]:
    listing = [
        _NAMESPACE,
        _limit(10, 10_000),
        _query("before", _ID, "Only what is older than this checkpoint"),
        _query("before_seq", {"type": "integer", "minimum": 0, "maximum": MOST}),
        _query("every_namespace", {"type": "boolean", "default": False}),
    ]
    saving = obj(
        {
            "checkpoint_id": nullable(_ID),
            "thread_id": nullable(_ID),
            "created_at": nullable(_TEXT),
            "state": {"type": "object"},
            "metadata": nullable({"type": "object"}),
            "parent_id": nullable(_ID),
        },
        "state",
        closed=True,
    )
    saved = obj({"thread_id": _ID, "checkpoint_id": _ID})
    entries = obj({"checkpoints": array(ref("Entry"))})
    writing = obj(
        {"task_id": _ID, "task_path": nullable(_NAME), "writes": array(ref("Pair")), "keep_numbered": FLAG},
        *("task_id", "writes"),
        closed=True,
    )
    return {
        f"{_THREAD}/checkpoints": {
            "parameters": [_segment("thread_id")],
            "get": _operation(
                "list_checkpoints", "Newest first, without states", _answer(entries, "Entries"), parameters=listing
            ),
            "post": _operation(
                "save",
                "Save a state as the newest checkpoint",
                _answer(saved, "Saved", "201", ETag="The checkpoint's id", Location="Where it is"),
                parameters=[_NAMESPACE, *_CONDITIONS],
                body=saving,
            ),
        },
        _ONE: {
            "parameters": [_segment("thread_id"), _segment("checkpoint_id"), _NAMESPACE],
            "get": _operation(
                "load", "A checkpoint, with its state", _answer(ref("Checkpoint"), "The checkpoint", ETag="Its id")
            ),
            "delete": _operation("delete", "Delete a checkpoint", _DONE),
        },
        f"{_ONE}/writes": {
            "parameters": [_segment("thread_id"), _segment("checkpoint_id"), _NAMESPACE],
            "get": _operation(
                "get_writes",
                "What tasks wrote since a checkpoint",
                _answer(obj({"writes": array(ref("Write"))}), "Writes"),
                parameters=[_query("task_id", _ID)],
            ),
            "put": _operation("put_writes", "Replace what a task wrote", _DONE, body=writing),
        },
    }


def _engine() -> dict[str, Schema]:
    one = [_NAMESPACE, _query("checkpoint_id", _ID, "The latest, if it is not given")]
    deleting = obj({"namespace": nullable(_NAME), "seqs": nullable(array(ref("NumberAndRev")))}, closed=True)
    copying = obj(
        {
            "dest_thread_id": _ID,
            "namespace": nullable(_NAME),
            "checkpoint_id": nullable(_ID),
            "checkpoint_ids": nullable(array(_ID)),
        },
        "dest_thread_id",
        closed=True,
    )
    exporting = obj(
        {
            "after_seq": NUMBER,
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
            "known": {"type": "object", "additionalProperties": NUMBER},
        },
        "known",
        closed=True,
    )
    thread = [_segment("thread_id")]
    return {
        f"{_THREAD}/commits": {
            "parameters": thread,
            "post": _operation(
                "commit",
                "A save that was planned by the client: only what is new",
                _answer(ref("Outcome"), "Committed, or how to send it again"),
                parameters=[_NAMESPACE, *_CONDITIONS],
                body=ref("Commit"),
            ),
        },
        f"{_THREAD}/stored": {
            "parameters": thread,
            "get": _operation(
                "stored", "A checkpoint as it is stored", _answer(ref("Stored"), "Its parts"), parameters=one
            ),
        },
        f"{_THREAD}/entry": {
            "parameters": thread,
            "get": _operation(
                "entry", "A checkpoint without its state", _answer(ref("Entry"), "The entry"), parameters=one
            ),
        },
        f"{_THREAD}/records": {
            "parameters": thread,
            "post": _operation(
                "records",
                "Checkpoints as they are stored, in order, with the runs that the client does not know",
                _answer(ref("Exported"), "Some of them; send the last number as `after_seq` to go on"),
                body=exporting,
            ),
        },
        f"{_THREAD}/deletions": {
            "parameters": thread,
            "post": _operation(
                "delete_some",
                "Delete checkpoints by number, or all",
                _answer(obj({"deleted": _COUNT}), "How many"),
                body=deleting,
            ),
        },
        f"{_THREAD}/copy": {
            "parameters": thread,
            "post": _operation(
                "copy",
                "Copy a thread, or a checkpoint with its ancestors, under a new id",
                _answer(obj({"copied": _COUNT}), "How many"),
                body=copying,
            ),
        },
    }


def _queries() -> dict[str, Schema]:
    entries = _answer(obj({"checkpoints": array(ref("Entry"))}), "Entries")
    number = {"type": "integer", "minimum": 0, "maximum": UNLIMITED}
    finding = obj({"key": _TEXT, "value": {}, "limit": number}, "key", "value", closed=True)
    searching = obj({"query": _TEXT, "terms": array({"type": "string", "minLength": 1}), "limit": number}, closed=True)
    searching["oneOf"] = [{"required": ["query"]}, {"required": ["terms"]}]
    vacuum = obj(
        {
            "older_than_days": nullable({"type": "number", "minimum": 0}),
            "before": nullable({"type": "string", "format": "date-time"}),
            "keep_last": nullable({"type": "integer", "minimum": 1, "maximum": MOST}),
            "dry_run": {"type": "boolean"},
            "after": nullable(_TEXT),
            "only_expired": {"type": "boolean"},
        },
        closed=True,
    )
    removed = obj({"removed": _COUNT, "next": nullable(_TEXT)})
    return {
        "/recent": {
            "get": _operation(
                "recent", "The newest checkpoints of all threads", entries, parameters=[_limit(100, UNLIMITED)]
            )
        },
        "/find": {"post": _operation("find", "Checkpoints by metadata, newest first", entries, body=finding)},
        "/search": {
            "post": _operation(
                "search",
                "Checkpoints that contain all words, best first",
                _answer(obj({"hits": array(ref("Hit"))}), "Hits"),
                body=searching,
            )
        },
        "/vacuum": {
            "post": _operation(
                "vacuum",
                "Delete what is old, some seconds long; send `next` as `after` to go on",
                _answer(removed, "How many"),
                body=vacuum,
            )
        },
    }
