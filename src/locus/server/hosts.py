"""Checks the host names in requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from locus.wire.problems import Problem

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""The host names by which a machine calls itself."""

Headers = Iterable[tuple[bytes, bytes]]


def check_host(headers: Headers, hosts: Collection[str]) -> None:
    """Refuse a request whose host name is not one of `hosts`: a web page may have made the name up, to get in."""
    if not _hosts(headers) <= frozenset(hosts):
        raise Problem(421, "misdirected", "this server is not called by that name")


def _hosts(headers: Headers) -> set[str]:
    """The host names in the headers of a request. An honest request has one."""
    return {_host(value) for name, value in headers if name == b"host"} or {""}


def _host(value: bytes) -> str:
    """The host name without the port."""
    text = value.decode("latin-1").lower()
    if text.startswith("["):
        return text.partition("]")[0].strip("[")
    return text.partition(":")[0]
