"""The names that a request calls the server by."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from locus.wire.problems import Problem

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names of this machine for itself."""

Headers = Iterable[tuple[bytes, bytes]]


def check_host(headers: Headers, hosts: Collection[str]) -> None:
    """Refuse a request that calls the server by another name: a web page could have made it up, to get in."""
    if not _hosts(headers) <= frozenset(hosts):
        raise Problem(421, "misdirected", "this server is not called by that name")


def _hosts(headers: Headers) -> set[str]:
    """The names that a request uses: one, if it was not made to confuse."""
    return {_host(value) for name, value in headers if name == b"host"} or {""}


def _host(value: bytes) -> str:
    """The host name without the port."""
    text = value.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0].strip("[")
    return text.partition(":")[0]
