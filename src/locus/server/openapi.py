"""The operations of the server, and the OpenAPI document that describes them.

The decorator `operation` describes the method that handles a route: its path, query, body and answer. `Routes` makes
the routes from these descriptions, and `document` the OpenAPI document, with a schema for each model.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from locus.memory.model.ids import MAX_ID_LENGTH
from locus.server.answers import Problem
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.requests import CONDITIONS, Body, Query
from locus.wire.problems import MEDIA_TYPE

Schema = dict[str, Any]
Handler = TypeVar("Handler", bound=Callable[..., Any])

THREAD = "/threads/{thread_id}"
CHECKPOINT = f"{THREAD}/checkpoints/{{checkpoint_id}}"
_DESCRIBED = "locus_operation"

DESCRIPTION = """\
Threads of checkpoints over HTTP. An id in a path is percent-encoded; one that begins with `~`, or that a proxy \
might change, is written as `~` and its UTF-8 in base64url. Errors are problem details (RFC 9457); their `code` \
says which. Ids of checkpoints are entity tags: `If-Match: "c7"` saves only if `c7` is the latest, and \
`If-None-Match: *` only if there is none. A save under an id that exists changes nothing if the state is equal, \
so it can be repeated."""


@dataclass(frozen=True)
class RouteSpec:
    """The description of a route.

    `public` routes need no token. `conditional` ones read `If-Match` and `If-None-Match`. `probed` ones ignore unknown
    parameters, because monitoring adds some.
    """

    method: str
    path: str
    summary: str
    answers: dict[str, Schema]
    query: type[Query] | None = None
    body: type[Body] | None = None
    conditional: bool = False
    public: bool = False
    probed: bool = False
    name: str = ""


def operation(
    method: str, path: str, summary: str, answers: dict[str, Schema], **more: Any
) -> Callable[[Handler], Handler]:
    """Make a route of the decorated method. `more` are further fields of `RouteSpec`."""

    def describe(handler: Handler) -> Handler:
        described = RouteSpec(method, path, summary, answers, **more)
        setattr(handler, _DESCRIBED, replace(described, name=handler.__name__))
        return handler

    return describe


def answer(model: type[BaseModel] | Schema, text: str, status: str = "200", **headers: str) -> dict[str, Schema]:
    """Describe a JSON answer. `headers` maps names to descriptions."""
    described: Schema = {"description": text, "content": {"application/json": {"schema": model}}}
    if headers:
        described["headers"] = {
            name: {"description": about, "schema": {"type": "string"}} for name, about in headers.items()
        }
    return {status: described}


def text_answer(media_type: str, text: str) -> dict[str, Schema]:
    return {"200": {"description": text, "content": {media_type: {"schema": {"type": "string"}}}}}


NO_CONTENT: dict[str, Schema] = {"204": {"description": "Done"}}


class Routes:
    """A group of routes over one store: one for each method that `operation` decorates."""

    def __init__(self, authorized: AuthorizedStore) -> None:
        self._authorized = authorized
        self._store = authorized.store

    @classmethod
    def operations(cls) -> list[RouteSpec]:
        return [getattr(method, _DESCRIBED) for method in vars(cls).values() if hasattr(method, _DESCRIBED)]

    def routes(self) -> list[Route]:
        return [Route(spec.path, self._handler(spec), methods=[spec.method]) for spec in self.operations()]

    def _handler(self, spec: RouteSpec) -> Callable[[Request], Awaitable[Response]]:
        """The method that handles a route. If the route takes no query, a request with one is refused."""
        handler: Callable[[Request], Awaitable[Response]] = getattr(self, spec.name)
        if spec.query is not None or spec.probed:
            return handler

        @wraps(handler)
        async def without_query(request: Request) -> Response:
            if request.scope["query_string"]:
                Query.of(request)
            return await handler(request)

        return without_query


def document(version: str, limits: Limits, operations: Iterable[RouteSpec]) -> Schema:
    """Make the OpenAPI document."""
    paths: dict[str, Schema] = {}
    for spec in operations:
        paths.setdefault(spec.path, {})[spec.method.lower()] = _described(spec)
    problem = {
        "description": f"A problem. A body is at most {limits.body_bytes} bytes.",
        "content": {MEDIA_TYPE: {"schema": Problem}},
    }
    described = {
        "openapi": "3.1.0",
        "info": {"title": "Locus", "version": version, "description": DESCRIPTION, "license": {"name": "MIT"}},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Problem": problem},
        },
        "security": [{"token": []}, {}],
    }
    refs, schemas = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(_models(described))],
        schema_generator=_SchemaGenerator,
        ref_template="#/components/schemas/{model}",
    )
    whole: Schema = _with_schemas(described, {model: schema for (model, _), schema in refs.items()})
    whole["components"]["schemas"] = schemas["$defs"]
    return whole


def _described(spec: RouteSpec) -> Schema:
    described: Schema = {
        "operationId": spec.name,
        "summary": spec.summary,
        "responses": {**spec.answers, "default": {"$ref": "#/components/responses/Problem"}},
    }
    parameters = [_path_parameter(name) for name in re.findall(r"{(\w+)}", spec.path)]
    if spec.query is not None:
        parameters += _query_parameters(spec.query)
    if spec.conditional:
        parameters += CONDITIONS
    if parameters:
        described["parameters"] = parameters
    if spec.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": spec.body}}}
    if spec.public:
        described["security"] = []
    return described


def _path_parameter(name: str) -> Schema:
    """Describe an id in a path. The `~` form of ids is left out: only clients whose ids need it have to know it."""
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH, "pattern": "^[^~]"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(query: type[Query]) -> Iterator[Schema]:
    for name, schema in query.model_json_schema(schema_generator=_SchemaGenerator)["properties"].items():
        about = {"description": schema.pop("description")} if "description" in schema else {}
        if {"type": "null"} in schema.get("anyOf", ()):  # null means that the parameter is left out
            schema = schema["anyOf"][0]
        said: Schema = {"schema": schema}
        if schema.get("type") == "array":  # the list is one JSON text, not a repeated parameter
            said = {"content": {"application/json": said}}
        yield {"name": name, "in": "query", **said, **about}


def _models(node: Any) -> Iterator[type[BaseModel]]:
    if isinstance(node, type):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _models(child)


def _with_schemas(node: Any, schemas: dict[Any, JsonSchemaValue]) -> Any:
    if isinstance(node, dict):
        return {name: _with_schemas(child, schemas) for name, child in node.items()}
    if isinstance(node, list):
        return [_with_schemas(child, schemas) for child in node]
    return schemas[node] if isinstance(node, type) else node


class _SchemaGenerator(GenerateJsonSchema):
    """JSON schema without titles, which only repeat names, and without defaults that mean "not given"."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default") in (None, "", []):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)
