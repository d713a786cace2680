"""The server as an ASGI application, over any store of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Router

from locus.errors import ConfigurationError
from locus.memory.checkpointer import StoreVerbs
from locus.memory.registry import as_checkpointer
from locus.server.access import Access
from locus.server.auth import Guard, Token
from locus.server.bodies import Limits
from locus.server.engine_api import EngineAPI
from locus.server.metrics import Metrics
from locus.server.middleware import Edge
from locus.server.operations_api import OperationsAPI
from locus.server.queries_api import QueriesAPI
from locus.server.threads_api import ThreadsAPI


def create_app(
    checkpointer: Any,
    auth: Iterable[Token] | None = None,
    *,
    limits: Limits | None = None,
    hosts: Collection[str] | None = None,
) -> Edge:
    """A server of the threads of a checkpointer (or of a storage backend, or of what a URL names).

    `auth` are the tokens of those who may use it. Without them everybody may, so that is for a server that
    nobody else can reach. `hosts` are the names that it may be called by (`None`: any). The checkpointer is
    closed when the server ends.
    """
    face = checkpointer if isinstance(checkpointer, StoreVerbs) else as_checkpointer(checkpointer)
    if not isinstance(face, StoreVerbs):
        raise ConfigurationError(f"a server needs a store of ours, and {type(face).__name__} is none")
    access = Access(face.store, limits or Limits())
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        yield
        await face.close()

    routes = [
        *EngineAPI(access).routes(),
        *ThreadsAPI(access).routes(),
        *QueriesAPI(access).routes(),
        *OperationsAPI(access, metrics).routes(),
    ]
    return Edge(Router(routes, redirect_slashes=False, lifespan=lifespan), Guard(auth), metrics, hosts)
