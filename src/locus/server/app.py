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
from locus.server.quotas import Quota, QuotaLedger
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
    """Make an ASGI app that serves the threads of a checkpointer, a storage backend, or the store at a URL.

    - `auth`: the accepted tokens. Without it every request is accepted, so leave it out only where nobody else can
      reach the server.
    - `limits`: how large requests and states may be, and how long requests and queries may take.
    - `hosts`: the host names that requests may use; `None` for any.
    - `rate`: the requests per second of each token: "50", or "50/200" with bursts of 200.
    - `audit`: a file that records which token did what; "-" for standard output.
    - `log_key`: the key of the digests that stand for threads in logs; a new one if it is left out.
    - `quota`: how much each token may save in a day, unless the token has a quota of its own.
    - `quota_file`: a file that counts quotas, which several processes may share; without it they are counted in memory.
    - `inspector`: add the pages of the inspector under `/ui`, for requests to one of `inspector_hosts`. With
      `inspector_writes`, a token that may write can also fork, delete and vacuum there.

    The checkpointer is closed when the server shuts down.
    """
    opened = checkpointer if isinstance(checkpointer, StoreVerbs) else as_checkpointer(checkpointer)
    if not isinstance(opened, StoreVerbs):
        raise ConfigurationError(f"a server needs a Locus store, and {type(opened).__name__} is not one")
    # The server passes on stored texts unparsed, so a cache of states would only take up memory.
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
    ledger = QuotaLedger(quota_file)
    authorized = AuthorizedStore(opened.store, limits, quota or Quota(), ledger)
    guard, pages = Guard(auth), None
    if inspector:
        for module in ("jinja2", "markdown_it", "pygments"):
            require(module, "inspect")
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
