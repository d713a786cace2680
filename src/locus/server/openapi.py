"""The operations of the server, and the OpenAPI document that describes them.

The decorator `operation` describes the method that handles a route: its path and answer. The parameters of the method
say the rest: `query` and `body` by their models, `if_latest` for the conditions in headers. `Routes` makes the routes
from these descriptions, and `document` the OpenAPI document, with a schema for each model.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

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
from locus.server.requests import CONDITIONS, Body, Query, if_latest
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
so it can be repeated. Below `/spaces/memory`, the same paths are those of the items of long-term memory."""


@dataclass(frozen=True)
class RouteSpec:
    """The description of a route.

    `takes` has the type of each parameter of its method. `body` is the model of a body that the method itself reads.
    Routes that are `writing` need a token that may write; `public` ones need none. `probed` ones ignore unknown
    parameters, because monitoring adds some.
    """

    name: str
    takes: dict[str, Any]
    method: str
    path: str
    summary: str
    answers: dict[str, Schema]
    body: type[Body] | None = None
    writing: bool = False
    public: bool = False
    probed: bool = False

    @property
    def query(self) -> type[Query] | None:
        return self.takes.get("query")


def operation(
    method: str, path: str, summary: str, answers: dict[str, Schema], **more: Any
) -> Callable[[Handler], Handler]:
    """Make a route of the decorated method. `more` are further fields of `RouteSpec`."""

    def describe(handler: Handler) -> Handler:
        spec = RouteSpec(handler.__name__, get_type_hints(handler), method, path, summary, answers, **more)
        setattr(handler, _DESCRIBED, spec)
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

    def routes(self, below: str = "") -> list[Route]:
        return [Route(below + spec.path, self._handler(spec), methods=[spec.method]) for spec in self.operations()]

    def _handler(self, spec: RouteSpec) -> Callable[[Request], Awaitable[Response]]:
        """A function that reads the parameters of a route's method from a request, and calls it.

        The rights of the sender are checked first. If the route takes no query, a request with one is refused.
        """
        handler: Callable[..., Awaitable[Response]] = getattr(self, spec.name)
        authorized = self._authorized

        @wraps(handler)
        async def handled(request: Request) -> Response:
            given: dict[str, Any] = {}
            if spec.query is None and not spec.probed and request.scope["query_string"]:
                Query.of(request)
            if "thread_id" in spec.takes:
                given["thread_id"] = authorized.thread(request, writing=spec.writing)
            elif spec.writing:
                authorized.grant(request).check_writing()
            if "checkpoint_id" in spec.takes:
                given["checkpoint_id"] = authorized.checkpoint(request)
            if spec.query is not None:
                given["query"] = spec.query.of(request)
            if "if_latest" in spec.takes:
                given["if_latest"] = if_latest(request)
            if "body" in spec.takes:
                given["body"] = await authorized.body(request, spec.takes["body"])
            return await handler(request, **given)

        return handled


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
    if "if_latest" in spec.takes:
        parameters += CONDITIONS
    if parameters:
        described["parameters"] = parameters
    if body := spec.body or spec.takes.get("body"):
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
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
