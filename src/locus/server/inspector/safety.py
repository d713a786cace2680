"""Keeps other web pages, other tenants and stored content out of the inspector.

- `check` refuses requests that call the server by a name of somebody else, and changes that come from another page.
- `HEADERS` make the browser run and load nothing but files of this server, and show no page in a frame.
- `hidden` makes a thread that is not there and a thread that somebody may not see the same page.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from locus.server.auth import Unreachable
from locus.server.hosts import check_host
from locus.server.inspector.pages.base import no_such_thread
from locus.wire.problems import FORBIDDEN, Problem

SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    )
)

HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: with that, a browser sends the Origin of our own forms as `null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


def check(scope: Scope, hosts: Collection[str]) -> None:
    """Refuse a request that calls the server by another name, or that a page of another server has made."""
    check_host(scope["headers"], hosts)
    if scope["method"] not in SAFE_METHODS and not _is_own(scope):
        raise Problem(403, FORBIDDEN, "This did not come from a page of the inspector. Open the page, and try again.")


def _is_own(scope: Scope) -> bool:
    """True if a request comes from a page of this server. The browser says so, and no page can make it lie."""
    sites = _values(scope, b"sec-fetch-site")
    if sites:
        return sites == [b"same-origin"]
    # Browsers leave it out where a server is reached without TLS, and is another machine.
    origins, hosts = _values(scope, b"origin"), _values(scope, b"host")
    if len(origins) != 1 or len(hosts) != 1:
        return False
    try:
        origin = urlsplit(origins[0].decode("ascii").lower())
    except ValueError:
        return False
    return origin.scheme in ("http", "https") and origin.netloc.encode() == hosts[0].lower()


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def hidden(problem: Problem) -> Problem:
    """The problem as a page may show it: the same for a thread that is not there and for one of somebody else."""
    if problem.code == "no_such_path":
        return Problem(404, problem.code, "There is no page under this address.")
    if problem.status == 404 or isinstance(problem, Unreachable):
        return no_such_thread()
    return problem
