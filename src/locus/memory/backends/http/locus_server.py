"""A Locus server: what it says it can do, and the requests that `HTTPEngine` sends to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from locus.errors import CapabilityError
from locus.memory.backends.http.client import HTTPClient, HTTPUnavailableError, raise_error, says_not_found
from locus.memory.engine import CheckpointerCapabilities
from locus.memory.model.arguments import UNLIMITED
from locus.memory.model.codec import EXACT, Dialect
from locus.memory.model.parts import Ends, Part, Range
from locus.memory.model.records import Entry
from locus.wire.format import MOST_LISTS, path_text, window_text

T = TypeVar("T")

LONGEST_WINDOW = 2_000
"""The longest window in a URL, in characters: a proxy may refuse a longer URL. A larger one reads whole lists."""

_CHANGES_KEYS = Dialect(exact=False)


class LocusServer:
    """A Locus server, as its discovery document describes it."""

    def __init__(self, client: HTTPClient, about: Mapping[str, Any]) -> None:
        self._client = client
        self.capabilities = CheckpointerCapabilities(**about["capabilities"], windows=about["deltas"])
        self.keeps_writes: bool = about["pending_writes"]
        self.keeps_runs: bool = about["deltas"]
        self.dialect = EXACT if about["keeps_key_order"] else _CHANGES_KEYS
        self.features = {name for name, able in about.items() if able is True}
        """The names of what it announces that it can do. Older servers lack some."""
        self._compress = not client.config.local

    async def ask(
        self,
        read: Callable[[Any], T],
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> T:
        """Send a request, and read the data in the response, which is None if the resource does not exist."""
        response = await self._client.request(
            method,
            path,
            query,
            None if body is None else body.encode(),
            headers=headers,
            retry=retry,
            compress=self._compress,
        )
        if says_not_found(response):
            return _read(read, None)
        if not response.is_success:
            raise_error(response)
        return _read(read, response.json() if response.content else {})

    def part(self, part: Part) -> dict[str, str | int]:
        """The parameters that name a part; none, for the whole checkpoint, if the server could not read them."""
        if isinstance(part, Range):
            if "parts" not in self.features:
                return {}
            return {"path": path_text(part.path), "start": part.start, "count": part.count}
        if isinstance(part, Ends):
            return {"ends": part.last} if "ends" in self.features else {}
        text = window_text(part) if "window" in self.features and len(part.paths) <= MOST_LISTS else ""
        return {"window": text} if 0 < len(text) <= LONGEST_WINDOW else {}

    def within(self, prefix: str) -> dict[str, str | int]:
        """The parameter for a prefix of ids; an error if the server does not know it, and would answer too much."""
        if prefix and "prefixes" not in self.features:
            raise CapabilityError("this server is too old to limit a query to a prefix of thread ids: update it")
        return {"prefix": prefix} if prefix else {}

    async def of_threads(
        self, ask: Callable[[int, str], Awaitable[list[Entry]]], limit: int, prefix: str
    ) -> list[Entry]:
        """Fetch a list, and return the items of threads with a prefix.

        An older server, which knows no prefixes, is asked for all threads, and for more items until there are enough.
        """
        if "prefixes" in self.features or not prefix:
            return await ask(limit, prefix)
        most = limit
        while True:
            items = await ask(most, "")
            within = [entry for entry in items if entry.thread_id.startswith(prefix)]
            if len(within) >= limit or len(items) < most:
                return within[:limit]
            most = min(4 * most, UNLIMITED)


def _read(read: Callable[[Any], T], data: Any) -> T:
    try:
        return read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HTTPUnavailableError(f"the server's answer lacks something: {type(error).__name__}") from error
