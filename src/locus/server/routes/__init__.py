"""The routes of the server.

    threads     threads and checkpoints as whole states, for any HTTP client
    engine      commits and stored records, for `HTTPCheckpointer`
    queries     search, metadata queries and vacuum over the whole store
    operations  discovery, health, metrics and the OpenAPI document

To add a route, add a method to the class of its module, list it in `routes`, and describe it in `openapi_paths`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from starlette.routing import Route

from locus.server.authorized_store import AuthorizedStore
from locus.server.metrics import Metrics
from locus.server.openapi import document
from locus.server.routes import engine, operations, queries, threads


def all_routes(authorized: AuthorizedStore, metrics: Metrics) -> list[Route]:
    modules = (operations, threads, engine, queries)
    paths = {path: item for module in modules for path, item in module.openapi_paths().items()}
    software = _version()
    openapi = document(software, authorized.limits, paths)
    return [
        *engine.EngineRoutes(authorized).routes(),
        *threads.ThreadRoutes(authorized).routes(),
        *queries.QueryRoutes(authorized).routes(),
        *operations.OperationsRoutes(authorized, metrics, software, openapi).routes(),
    ]


def _version() -> str:
    try:
        return version("locus-sdk")
    except PackageNotFoundError:
        return "unknown"
