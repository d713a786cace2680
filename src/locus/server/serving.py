"""Runs the server with uvicorn: in one process or several, with timeouts for slow clients and a graceful shutdown."""

from __future__ import annotations

import asyncio
import os
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from locus.memory.registry import get_checkpointer
from locus.server.app import create_app
from locus.server.bodies import Limits
from locus.server.config import ServerConfig
from locus.server.logs import set_up
from locus.server.middleware import ServerMiddleware


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished first."""
    set_up(config.log_level)
    if config.workers == 1:
        _run(config, app_of(config))
        return
    get_checkpointer(config.store)  # so that an invalid URL is reported once, not by every worker
    config.to_environment()
    with TemporaryDirectory(prefix="locus-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _run(config, "locus.server.serving:worker_app", factory=True, workers=config.workers)


def worker_app() -> ServerMiddleware:
    """The app of one of several workers. Each opens the store by itself."""
    config = ServerConfig.from_environment()
    set_up(config.log_level)
    return app_of(config)


def app_of(config: ServerConfig) -> ServerMiddleware:
    HeaderTimeoutProtocol.header_seconds = config.header_seconds
    limits = Limits(
        body_bytes=config.max_body_bytes, body_seconds=config.body_seconds, query_seconds=config.query_seconds
    )
    return create_app(get_checkpointer(config.store), config.auth, limits=limits, hosts=config.hosts)


def _run(config: ServerConfig, app: Any, **options: Any) -> None:
    given = uvicorn_config(app, host=config.host, port=config.port, grace_seconds=config.grace_seconds)
    uvicorn.run(**given, **options)


KEEP_ALIVE_SECONDS = 75
"""Longer than `HTTPCheckpointer` keeps an idle connection, so that the client is always the one to close it."""


def uvicorn_config(app: Any, *, host: str, port: int, grace_seconds: float) -> dict[str, Any]:
    """The arguments of `uvicorn.run` for every Locus server."""
    return {
        "app": app,
        "host": host,
        "port": port,
        "http": HeaderTimeoutProtocol,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        # uvicorn counts whole seconds
        "timeout_graceful_shutdown": max(1, round(grace_seconds)),
    }


class HeaderTimeoutProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which disconnects a client that does not finish its headers in time."""

    header_seconds: ClassVar[float] = 15.0
    """The most time for headers, from first to last byte, and for a new connection to send its first request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
