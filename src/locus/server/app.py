"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Router

from locus.errors import ConfigurationError
from locus.memory.checkpointer import StoreVerbs
from locus.memory.registry import as_checkpointer
from locus.server.auth import Guard, Token
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.metrics import Metrics
from locus.server.middleware import ServerMiddleware
from locus.server.routes import all_routes


def create_app(
    checkpointer: Any,
    auth: Iterable[Token] | None = None,
    *,
    limits: Limits | None = None,
    hosts: Collection[str] | None = None,
) -> ServerMiddleware:
    """Serve the threads of a checkpointer, of a storage backend, or of the store that a URL names.

    `auth` lists the tokens that are accepted. Without it every request is accepted, so use that only where nobody else
    can reach the server. `hosts` lists the host names that requests may use (`None`: any). The checkpointer is closed
    when the server shuts down.
    """
    opened = checkpointer if isinstance(checkpointer, StoreVerbs) else as_checkpointer(checkpointer)
    if not isinstance(opened, StoreVerbs):
        raise ConfigurationError(f"a server needs a Locus store, and {type(opened).__name__} is not one")
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        yield
        await opened.close()

    routes = all_routes(AuthorizedStore(opened.store, limits or Limits()), metrics)
    router = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return ServerMiddleware(router, Guard(auth), metrics, hosts)
