"""The routes of the server.

    threads     threads and checkpoints as whole states, for any HTTP client
    engine      commits and stored records, for `HTTPCheckpointer`
    queries     search, metadata queries and vacuum over the whole store
    operations  discovery, health, metrics and the OpenAPI document

To add a route, add a method to the class of its module, and describe it with `operation`. Its parameters say what it
takes from a request, once the sender may have it: `thread_id`, `checkpoint_id`, `query`, `if_latest`, `body`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from starlette.routing import Route

from locus import __version__
from locus.errors import CapabilityError
from locus.memory.model.spaces import DATA_KEYS, KEY_SPACES
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.metrics import Metrics
from locus.server.openapi import Schema, document
from locus.server.routes.engine import EngineRoutes
from locus.server.routes.operations import OperationsRoutes
from locus.server.routes.queries import QueryRoutes
from locus.server.routes.threads import ThreadRoutes
from locus.wire.format import SPACES


def all_routes(authorized: AuthorizedStore, metrics: Metrics) -> list[Route]:
    routes = _routes_of(authorized, metrics)
    for name in (*KEY_SPACES, DATA_KEYS):
        with suppress(CapabilityError):  # then there is nothing under these paths
            routes += _routes_of(authorized.key_space(name), metrics, f"{SPACES}/{name}")
    return routes


def _routes_of(authorized: AuthorizedStore, metrics: Metrics, below: str = "") -> list[Route]:
    return [
        *EngineRoutes(authorized).routes(below),
        *ThreadRoutes(authorized).routes(below),
        *QueryRoutes(authorized).routes(below),
        *OperationsRoutes(authorized, metrics, __version__, _openapi(authorized.limits)).routes(below),
    ]


@lru_cache(maxsize=8)
def _openapi(limits: Limits) -> Schema:
    """The OpenAPI document for these limits. It is cached, because making it takes longer than the rest of an app."""
    classes = (OperationsRoutes, ThreadRoutes, EngineRoutes, QueryRoutes)
    return document(__version__, limits, (spec for routes in classes for spec in routes.operations()))
