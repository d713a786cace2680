"""Builds the OpenAPI document of the server.

Every module in `routes` describes its own paths with the functions below. The schemas of what several paths send or
return are here, in `SCHEMAS`. A test compares the document with the routes that the server has.
"""

from __future__ import annotations

from typing import Any

from locus.memory.model.ids import MAX_ID_LENGTH
from locus.server.bodies import Limits
from locus.server.fields import MOST
from locus.wire.problems import MEDIA_TYPE

Schema = dict[str, Any]

THREAD = "/threads/{thread_id}"
CHECKPOINT = f"{THREAD}/checkpoints/{{checkpoint_id}}"

DESCRIPTION = """\
Threads of checkpoints over HTTP. An id in a path is percent-encoded; one that begins with `~`, or that a proxy \
might change, is written as `~` and its UTF-8 in base64url. Errors are problem details (RFC 9457); their `code` \
says which. Ids of checkpoints are entity tags: `If-Match: "c7"` saves only if `c7` is the latest, and \
`If-None-Match: *` only if there is none. A save under an id that exists changes nothing if the state is equal, \
so it can be repeated."""


def document(version: str, limits: Limits, paths: dict[str, Schema]) -> Schema:
    """The whole document. `paths` are those of all route modules."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Locus", "version": version, "description": DESCRIPTION, "license": {"name": "MIT"}},
        "paths": paths,
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


def operation(
    name: str,
    summary: str,
    responses: dict[str, Schema],
    *,
    parameters: list[Schema] | None = None,
    body: Schema | None = None,
    public: bool = False,
) -> Schema:
    """One operation. `name` is the name of the method that handles the route; `public` needs no token."""
    described: Schema = {
        "operationId": name,
        "summary": summary,
        "responses": {**responses, "default": {"$ref": "#/components/responses/Problem"}},
    }
    if parameters:
        described["parameters"] = parameters
    if body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if public:
        described["security"] = []
    return described


def response(schema: Schema, text: str, status: str = "200", **headers: str) -> dict[str, Schema]:
    """A JSON response. `headers` maps names to descriptions."""
    described: Schema = {"description": text, "content": {"application/json": {"schema": schema}}}
    if headers:
        described["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in headers.items()
        }
    return {status: described}


NO_CONTENT: dict[str, Schema] = {"204": {"description": "Done"}}

TEXT: Schema = {"type": "string"}
ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
NAME: Schema = {"type": "string", "maxLength": MAX_ID_LENGTH}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": MOST}
COUNT: Schema = {"type": "integer", "minimum": 0}
OBJECT: Schema = {"type": "object"}
ANYTHING: Schema = {}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def obj(properties: dict[str, Schema], *required: str, closed: bool = False) -> Schema:
    """An object: `closed` as a request, with the `required` properties; otherwise a response, which has all of them."""
    schema: Schema = {"type": "object", "properties": properties}
    if required or not closed:
        schema["required"] = [*(required or properties)]
    if closed:
        schema["additionalProperties"] = False
    return schema


def row(*items: Schema) -> Schema:
    """A list with exactly one item per schema, in this order."""
    return {"type": "array", "prefixItems": [*items], "items": False, "minItems": len(items)}


def several(count: int) -> Schema:
    """A list of `count` items of mixed types."""
    return {"type": "array", "minItems": count, "maxItems": count}


def query_parameter(name: str, schema: Schema, text: str = "") -> Schema:
    return {"name": name, "in": "query", "schema": schema, **({"description": text} if text else {})}


def path_parameter(name: str) -> Schema:
    """An id in a path. The `~` form of an id is left out: only clients whose ids need it have to know it."""
    schema = {**ID, "pattern": "^[^~]"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


NAMESPACE = query_parameter("namespace", {**NAME, "default": "default"})
CONDITIONS = [
    {"name": "If-Match", "in": "header", "schema": {"type": "string", "pattern": '^"[A-Za-z0-9_-]+"$'}},
    {"name": "If-None-Match", "in": "header", "schema": {"type": "string", "const": "*"}},
]


def limit_parameter(otherwise: int, most: int) -> Schema:
    return query_parameter("limit", {"type": "integer", "minimum": 0, "maximum": most, "default": otherwise})


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
