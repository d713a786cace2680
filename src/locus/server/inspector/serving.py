"""Runs the inspector alone, for one person on this machine."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn

from locus.errors import ConfigurationError
from locus.memory.store import CheckpointStore
from locus.server.auth import Guard
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.hosts import LOCAL
from locus.server.inspector.app import create_inspector
from locus.server.inspector.sessions import Sessions
from locus.server.logs import log_failures, set_up
from locus.server.middleware import ServerMiddleware
from locus.server.serving import uvicorn_config

HOST: Final = "127.0.0.1"
"""The address to listen on, to which no other machine can connect."""
_GRACE_SECONDS: Final = 1.0


def serve(store: CheckpointStore, *, port: int, writes: bool, announce: Callable[[str], None]) -> None:
    """Serve the pages until SIGTERM or Ctrl-C. `announce` gets the address to open, once it can be opened."""
    app, sessions = app_of(store, writes=writes)
    with _listening(port) as listening:
        set_up("warning")
        log_failures()
        port = listening.getsockname()[1]
        given = uvicorn_config(app, host=HOST, port=port, grace_seconds=_GRACE_SECONDS)
        link = f"http://{HOST}:{port}/open?code={sessions.new_code()}"
        _Server(uvicorn.Config(**given), lambda: announce(link)).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that says when it has started. From then on Ctrl-C ends it in order."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._say_started()


def app_of(store: CheckpointStore, *, writes: bool) -> tuple[ServerMiddleware, Sessions]:
    """The app that `locus inspect` serves, and its sessions. The app closes the store when it shuts down."""

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        yield
        await store.close()

    store.hold_nothing()
    guard = Guard(None)
    sessions = Sessions(guard, by_code=True)
    authorized = AuthorizedStore(store, Limits())
    app = create_inspector(authorized, guard, writes=writes, hosts=LOCAL, sessions=sessions, lifespan=lifespan)
    return app, sessions


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "no such port"
        raise ConfigurationError(
            f"port {port} cannot be used ({reason}): choose another one with --port, or 0 for any that is free"
        ) from None
