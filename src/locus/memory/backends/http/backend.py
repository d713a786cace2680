"""`HTTPCheckpointer`, its store, and the factories that `http://` and `https://` URLs call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from locus.errors import BackendUnavailableError, CheckpointError, CorruptCheckpointError
from locus.extras import require
from locus.hints import check_options
from locus.memory.checkpointer import Checkpointer
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.arguments import CACHE_MB, check_vacuum, days_before
from locus.memory.model.plan import Payload
from locus.memory.model.records import DEFAULT_NAMESPACE
from locus.memory.model.retention import VacuumProgress
from locus.memory.model.sizes import ThreadSizes
from locus.memory.runtime.url import split_options
from locus.memory.store import CheckpointStore, Saved, check_measuring

if TYPE_CHECKING:
    from locus.memory.backends.http.engine import HTTPEngine


class HTTPStore(CheckpointStore):
    """A `CheckpointStore` over a server. It asks the server what it can do before it plans a save."""

    engine: HTTPEngine

    @property
    def capabilities(self) -> CheckpointerCapabilities:
        server = self.engine.server
        return super().capabilities if server is None else server.capabilities

    @property
    def keeps_writes(self) -> bool:
        server = self.engine.server
        return server is None or server.keeps_writes

    async def save(self, thread_id: str, payload: Payload, **options: Any) -> Saved:
        if self.engine.server is None:
            async with self.using():
                pass  # asks the server what it can do, on which the plan of a save depends
        return await super().save(thread_id, payload, **options)

    async def vacuum(
        self,
        older_than_days: float | None,
        keep_last: int | None,
        dry_run: bool,
        progress: Callable[[VacuumProgress], None] | None = None,
    ) -> int:
        """Let the server do the vacuum: from here, every thread would take a request or two."""
        check_vacuum(older_than_days, keep_last)
        cutoff = None if older_than_days is None else days_before(datetime.now(UTC), older_than_days)
        done = VacuumProgress()
        async with self.using(), aclosing(self.engine.vacuum(cutoff, keep_last, dry_run)) as portions:
            async for portion in portions:
                done += portion
                if progress is not None:
                    progress(done)
        if done.damaged:
            raise CorruptCheckpointError(f"{done.damaged} threads on the server are damaged; all others were vacuumed")
        return done.checkpoints

    async def sizes(
        self,
        thread_id: str,
        older_than_days: float | None = None,
        keep_last: int | None = None,
        deleting: Collection[str] = (),
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ThreadSizes | None:
        """Let the server measure the thread, if it can; else everything is read."""
        check_measuring(thread_id, older_than_days, keep_last, deleting, namespace)
        async with self.using():
            if self.engine.has("sizes"):
                return await self.engine.sizes(thread_id, older_than_days, keep_last, deleting, namespace)
        return await super().sizes(thread_id, older_than_days, keep_last, deleting, namespace)


class HTTPCheckpointer(Checkpointer):
    """Keeps threads on a server.

    `base_url` is where the server is, with the path under which it serves, if it has one. `headers` go with
    every request; `auth` is a user and a password, `token` a bearer token; `timeout` is in seconds.
    `ttl_seconds` lets a thread end that long after its last save, on a server that can do that.

    What the server can do is known after the first request (`health_check` is one); until then `capabilities`
    says what a Locus server can do at best.
    """

    def __init__(
        self,
        base_url: str,
        headers: dict[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float = 30.0,
        *,
        token: str | None = None,
        ttl_seconds: float | None = None,
        cache_mb: float = CACHE_MB,
    ) -> None:
        require("httpx", "http")
        from locus.memory.backends.http.client import HTTPClient
        from locus.memory.backends.http.config import HTTPConfig
        from locus.memory.backends.http.engine import HTTPEngine

        self._client = HTTPClient(HTTPConfig.from_url(base_url, headers, auth, token, timeout))
        self.headers = dict(headers or {})
        self.auth = auth
        self.timeout = timeout
        self.ttl_seconds = ttl_seconds
        super().__init__(HTTPStore(HTTPEngine(self._client), ttl_seconds=ttl_seconds, cache_mb=cache_mb))

    @property
    def base_url(self) -> str:
        """The URL of the server, without credentials and without a slash at the end."""
        return self._client.config.address

    async def health_check(self) -> bool:
        """Tell whether the server answers and says that it is healthy. Credentials are not tried."""
        try:
            response = await self._client.request("GET", "/health", retry=True)
        except BackendUnavailableError:
            return False
        with contextlib.suppress(CheckpointError):
            await self.store.engine.setup()
        return response.is_success

    def __repr__(self) -> str:
        return f"HTTPCheckpointer({self._client.config.address!r})"


def _from_url(scheme: str, location: str = "", **options: Any) -> HTTPCheckpointer:
    check_options(options, HTTPCheckpointer, "HTTPCheckpointer", but=("base_url",))
    url = f"{scheme}:{location}"
    base_url, _, query = url.partition("?")
    if query.startswith("cache_mb=") and "&" not in query and "@" not in query:  # anything else is refused as it is
        return HTTPCheckpointer(base_url, **(split_options(f"?{query}", {"cache_mb": float}, "")[1] | options))
    return HTTPCheckpointer(url, **options)


from_http = partial(_from_url, "http")
"""`http://host:8700`"""
from_https = partial(_from_url, "https")
"""`https://host`"""
