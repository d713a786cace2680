"""Runs an app: one process or several, with time-outs for slow clients, and an end that loses nothing."""

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
from locus.server.config import ServeOptions
from locus.server.logs import set_up
from locus.server.middleware import Edge

KEEP_ALIVE_SECONDS = 75
"""Longer than our client keeps an idle connection, so that it is always the client who ends one."""


class PatientProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, whose patience ends: a client that never finishes its headers is cut off."""

    header_seconds: ClassVar[float] = 15.0
    """How long headers may take, from their first byte to the last, and a new connection to its first request."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def settings(app: Any, *, host: str, port: int, grace_seconds: float) -> dict[str, Any]:
    """How every server of ours is run, as uvicorn wants to know it."""
    return {
        "app": app,
        "host": host,
        "port": port,
        "http": PatientProtocol,
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


def serve(options: ServeOptions) -> None:
    """Serve until a signal ends it: SIGTERM or Ctrl-C finish what was begun."""
    set_up(options.log_level)
    if options.workers == 1:
        uvicorn.run(**_settings(app_of(options), options))
        return
    get_checkpointer(options.store)  # a URL that cannot work is told here, once
    options.hand_on()
    with TemporaryDirectory(prefix="locus-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        app = "locus.server.serving:worker_app"
        uvicorn.run(**_settings(app, options), factory=True, workers=options.workers)


def worker_app() -> Edge:
    """The app of one of several workers: each has a handle of its own."""
    options = ServeOptions.handed_on()
    set_up(options.log_level)
    return app_of(options)


def app_of(options: ServeOptions) -> Edge:
    PatientProtocol.header_seconds = options.header_seconds
    limits = Limits(body_bytes=options.max_body_bytes, body_seconds=options.body_seconds)
    return create_app(get_checkpointer(options.store), options.auth, limits=limits, hosts=options.hosts)


def _settings(app: Any, options: ServeOptions) -> dict[str, Any]:
    return settings(app, host=options.host, port=options.port, grace_seconds=options.grace_seconds)
