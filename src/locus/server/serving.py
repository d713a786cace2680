"""Runs the server with uvicorn: in one process or several, with bounds for slow clients and a graceful shutdown."""

from __future__ import annotations

import os
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from locus.memory.registry import get_checkpointer
from locus.server.app import create_app
from locus.server.bodies import Limits
from locus.server.config import ServerConfig
from locus.server.connections import KEEP_ALIVE_SECONDS, BoundedProtocol, Bounds
from locus.server.logs import log_failures, set_up
from locus.server.middleware import ServerMiddleware


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished first."""
    set_up(config.log_level)
    if config.workers == 1:
        app = app_of(config)
        log_failures()
        uvicorn.run(**_arguments(config, app))
        return
    get_checkpointer(config.store)  # so that an invalid URL is reported once, not by every worker
    with TemporaryDirectory(prefix="locus-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _run_workers(config)


def _run_workers(config: ServerConfig) -> None:
    """Start the workers. `uvicorn.run` takes only the name of an app, and would leave secrets to the environment.

    The configuration is part of the app here, and a worker gets that through the pipe that it is started with.
    """
    given = uvicorn.Config(**_arguments(config, partial(worker_app, config)), factory=True, workers=config.workers)
    listening = given.bind_socket()
    supervisor: Any = Multiprocess
    try:
        workers = supervisor(given, sockets=[listening])
    except TypeError:  # older versions of uvicorn want to be told what each of them runs
        workers = supervisor(given, target=uvicorn.Server(given).run, sockets=[listening])
    workers.run()


def worker_app(config: ServerConfig) -> ServerMiddleware:
    """The app of one of several workers. Each opens the store by itself."""
    set_up(config.log_level)
    log_failures()
    return app_of(config)


def app_of(config: ServerConfig) -> ServerMiddleware:
    BoundedProtocol.bounds = Bounds(
        header_seconds=config.header_seconds,
        body_seconds=config.body_seconds,
        send_seconds=config.send_seconds,
        connections=config.max_connections,
    )
    limits = Limits(
        body_bytes=config.max_body_bytes,
        body_seconds=config.body_seconds,
        body_values=config.max_values,
        query_seconds=config.query_seconds,
    )
    return create_app(
        get_checkpointer(config.store),
        config.auth,
        limits=limits,
        hosts=config.hosts,
        rate=config.rate,
        audit=config.audit,
        log_key=config.log_key,
    )


def _arguments(config: ServerConfig, app: Any) -> dict[str, Any]:
    return uvicorn_config(app, host=config.host, port=config.port, grace_seconds=config.grace_seconds)


def uvicorn_config(app: Any, *, host: str, port: int, grace_seconds: float) -> dict[str, Any]:
    """The arguments of `uvicorn.run` for every Locus server."""
    return {
        "app": app,
        "host": host,
        "port": port,
        "http": BoundedProtocol,
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
