"""Runs the server with uvicorn, in one process or several, with bounds for slow clients and a graceful shutdown."""

from __future__ import annotations

import errno
import os
import signal
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from locus import __version__
from locus.errors import ConfigurationError
from locus.memory.checkpointer import BaseCheckpointer, StoreVerbs
from locus.memory.registry import get_checkpointer
from locus.server.app import create_app
from locus.server.bodies import Limits
from locus.server.config import ServerConfig
from locus.server.connections import KEEP_ALIVE_SECONDS, BoundedProtocol, Bounds
from locus.server.logs import LOGGER, log_failures, set_up
from locus.server.middleware import ServerMiddleware
from locus.server.reload import TokenReload, log_unread_tokens

_ON_NETWORK = frozenset({"http", "mysql", "oci", "opensearch", "oracle", "postgresql", "redis", "s3"})
"""The schemes of stores on the network, as their identities begin."""


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or Ctrl-C. Requests in progress are finished first."""
    check_free(config.host, config.port)
    checkpointer = open_store(config)  # even if workers open their own, so that an invalid URL is reported once
    if config.workers == 1:
        app = app_of(config, checkpointer)
        set_up(config.log_level)
        log_failures()
        announce(config, checkpointer)
        uvicorn.run(**_arguments(config, app))
        return
    set_up(config.log_level)
    announce(config, checkpointer)
    with TemporaryDirectory(prefix="locus-metrics-") as folder, TemporaryDirectory(prefix="locus-quotas-") as shared:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _run_workers(replace(config, quota_file=config.quota_file or str(Path(shared, "quotas.db"))))


def check_free(host: str, port: int) -> None:
    """Raise if nothing can listen at an address. uvicorn would log that, and end the process."""
    try:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(*place[:3]) as trial:
            if os.name != "nt":  # there it lets two servers listen
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place[4])
    except OSError as error:
        busy = error.errno == errno.EADDRINUSE
        raise ConfigurationError(
            f"port {port} of {host} is in use: choose another with --port"
            if busy
            else f"this server cannot listen at port {port} of {host}: {error.strerror or error}"
        ) from error


def _run_workers(config: ServerConfig) -> None:
    """Start worker processes, and wait for their end.

    `uvicorn.run` takes only the name of an app, so secrets would have to be in the environment. Here the configuration
    is part of the app, which a worker gets through the pipe that it is started with.
    """
    given = uvicorn.Config(**_arguments(config, partial(worker_app, config)), factory=True, workers=config.workers)
    listening = given.bind_socket()
    supervisor: Any = Multiprocess if config.token_file is None else partial(ReloadingWorkers, config)
    try:
        workers = supervisor(given, sockets=[listening])
    except TypeError:  # older versions of uvicorn need a target for the workers
        workers = supervisor(given, target=uvicorn.Server(given).run, sockets=[listening])
    workers.run()


class ReloadingWorkers(Multiprocess):
    """Workers that read the token file again on SIGHUP. (uvicorn would restart them with the old tokens.)"""

    def __init__(self, settings: ServerConfig, config: uvicorn.Config, **options: Any) -> None:
        super().__init__(config, **options)
        self._settings = settings

    def handle_hup(self) -> None:
        """Let each worker read the file. A worker that is started later gets the tokens that were read here."""
        try:
            self._settings = self._settings.with_tokens_read_again()
        except ConfigurationError as error:
            log_unread_tokens(error)
            return
        self.config.app = partial(worker_app, self._settings)
        for process in self.processes:
            if process.pid is not None and process.process.is_alive():
                os.kill(process.pid, signal.SIGHUP)


def worker_app(config: ServerConfig) -> ServerMiddleware | TokenReload:
    """Make the app of one of several workers, with a store of its own."""
    set_up(config.log_level)
    log_failures()
    return app_of(config, open_store(config))


def open_store(config: ServerConfig) -> BaseCheckpointer:
    if config.store_token is None:
        return get_checkpointer(config.store)
    return get_checkpointer(config.store, token=config.store_token)


def announce(config: ServerConfig, checkpointer: BaseCheckpointer) -> None:
    """Log the first line: the store, the version and the address."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    facts = {
        "store": store_name(checkpointer),
        "version": __version__,
        "address": f"http://{host}:{config.port}",
        "workers": config.workers,
        "tokens": len(config.auth or ()),
    }
    LOGGER.info("serving", extra={"facts": facts})


def store_name(checkpointer: BaseCheckpointer) -> str:
    """The name of a store in logs: its address on the network, which holds no password, or else only its scheme."""
    identity = checkpointer.store.engine.identity if isinstance(checkpointer, StoreVerbs) else ""
    scheme = identity.partition(":")[0]
    return identity if scheme in _ON_NETWORK else scheme


def app_of(config: ServerConfig, checkpointer: BaseCheckpointer) -> ServerMiddleware | TokenReload:
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
    app = create_app(
        checkpointer,
        config.auth,
        limits=limits,
        hosts=config.hosts,
        rate=config.rate,
        audit=config.audit,
        log_key=config.log_key,
        quota=config.quota,
        quota_file=config.quota_file,
        inspector=config.inspector,
        inspector_writes=config.inspector_writes,
        inspector_hosts=config.names,
    )
    return app if config.token_file is None else TokenReload(app, config)


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
