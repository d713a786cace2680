"""The schemas of what passes over the wire."""

from __future__ import annotations

from typing import Any

from locus.server.fields import MOST

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
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
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
            "checkpoint_id": _ID,
            "rev": _REV,
            "created_at": _TIME,
            "metadata": OBJECT,
            "head": OBJECT,
            "manifest": array(row(_PATH, {"anyOf": [_VALUE, _EXTENTS]})),
            "runs": array(row(_BRANCH, NUMBER, NUMBER, {"type": "array", "minItems": 1})),
            "values": array(row(_VALUE, TEXT)),
            "base": nullable(row(_ID, _ID)),
            "parent_id": nullable(_ID),
            "parent_required": FLAG,
            "parent_as_named": FLAG,
            "replaces": nullable(TEXT),
            "expires_at": nullable(_TIME),
        },
        *("checkpoint_id", "rev", "created_at", "metadata", "head", "manifest"),
        closed=True,
    ),
}
