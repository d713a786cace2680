"""The server as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Router

from locus.errors import ConfigurationError
from locus.extras import require
from locus.memory.checkpointer import StoreVerbs
from locus.memory.registry import as_checkpointer
from locus.server.audit import AuditLog
from locus.server.auth import Guard, Token
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.hosts import LOCAL
from locus.server.logs import LOGGER, Digests, error_facts
from locus.server.memory_budget import MemoryBudget
from locus.server.metrics import Metrics
from locus.server.middleware import ServerMiddleware
from locus.server.quotas import Ledger, Quota
from locus.server.rates import Rate
from locus.server.routes import all_routes


def create_app(
    checkpointer: Any,
    auth: Iterable[Token] | None = None,
    *,
    limits: Limits | None = None,
    hosts: Collection[str] | None = None,
    rate: str | None = None,
    audit: str | None = None,
    log_key: str = "",
    quota: Quota | None = None,
    quota_file: str | None = None,
    inspector: bool = False,
    inspector_writes: bool = False,
    inspector_hosts: Collection[str] = LOCAL,
) -> ServerMiddleware:
    """Serve the threads of a checkpointer, of a storage backend, or of the store that a URL names.

    `auth` lists the tokens that are accepted. Without it every request is accepted, so use that only where nobody else
    can reach the server. `hosts` lists the host names that requests may use (`None`: any). `rate` limits the requests
    of each token: "50" per second, or "50/200" with bursts of 200. `audit` is the file that says which token did what
    ("-": standard output). `log_key` is the key of the digests that stand for threads in logs; without it a new one is
    made. `quota` is what each token may save in a day, unless the token has a quota of its own; it is counted in
    `quota_file`, which several processes may share, or else in memory. `inspector` adds the pages of the inspector
    under `/ui`, for those who call the server by one of `inspector_hosts`; with `inspector_writes` they can also fork,
    delete and vacuum, with a token that may write. The checkpointer is closed when the server shuts down.
    """
    opened = checkpointer if isinstance(checkpointer, StoreVerbs) else as_checkpointer(checkpointer)
    if not isinstance(opened, StoreVerbs):
        raise ConfigurationError(f"a server needs a Locus store, and {type(opened).__name__} is not one")
    # Texts are passed on as the store has them. What tenants save would only take up memory here.
    opened.store.hold_nothing()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        yield
        try:
            await opened.close()
        except Exception as error:  # noqa: BLE001 - an ASGI server would log its text
            LOGGER.error("the store could not be closed", extra={"facts": error_facts(error)})
        if audit_log is not None:
            audit_log.close()
        ledger.close()

    limits = limits or Limits()
    audit_log = None if audit is None else AuditLog(audit)
    ledger = Ledger(quota_file)
    authorized = AuthorizedStore(opened.store, limits, quota or Quota(), ledger)
    guard, pages = Guard(auth), None
    if inspector:
        require("jinja2", "inspect")
        from locus.server.inspector.app import BASE, Inspector

        pages = Inspector(authorized, guard, base=BASE, writes=inspector_writes, hosts=inspector_hosts)
    routes = [*all_routes(authorized, metrics), *(pages.routes if pages else ())]
    router = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return ServerMiddleware(
        router,
        guard,
        metrics,
        hosts,
        memory=MemoryBudget(limits.memory_bytes),
        rate=None if rate is None else Rate.parse(rate),
        audit=audit_log,
        digests=Digests(log_key),
        inspector=pages,
    )
