"""Reads the token file again on SIGHUP, while the server goes on. An unusable file changes nothing."""

from __future__ import annotations

import asyncio
import signal

from starlette.types import Receive, Scope, Send

from locus.errors import ConfigurationError
from locus.server.config import ServerConfig
from locus.server.logs import LOGGER, error_facts
from locus.server.middleware import ServerMiddleware


class TokenReload:
    """An app that accepts the tokens in a file, and reads the file again on SIGHUP."""

    def __init__(self, app: ServerMiddleware, config: ServerConfig) -> None:
        self._app = app
        self._config = config
        self._reading: asyncio.Task[None] | None = None
        self._asked_again = False
        if hasattr(signal, "SIGHUP"):  # Windows has none
            signal.signal(signal.SIGHUP, self._note)  # until the event loop runs, which is soon

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._begin)
            if self._asked_again:
                self._begin()
        await self._app(scope, receive, send)

    def _note(self, _signal: int, _frame: object) -> None:
        self._asked_again = True

    def _begin(self) -> None:
        """Read the file. If it is being read now, read it once more after that: it may have changed meanwhile."""
        if self._reading is not None and not self._reading.done():
            self._asked_again = True
        else:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        again = True
        while again:
            self._asked_again = False
            try:
                self._config = await asyncio.to_thread(self._config.with_tokens_read_again)
            except ConfigurationError as error:
                log_unread_tokens(error)
            else:
                tokens = self._config.auth or ()
                self._app.use_tokens(tokens)
                LOGGER.info("the tokens were read again", extra={"facts": {"tokens": len(tokens)}})
            again = self._asked_again


def log_unread_tokens(error: ConfigurationError) -> None:
    """Log that the token file is unusable. Such errors quote no tokens, prefixes or paths, so their text is logged."""
    facts = error_facts(error) | {"line": getattr(error, "line", None), "reason": str(error)}
    LOGGER.error("the token file cannot be used, and the tokens stay as they were", extra={"facts": facts})
