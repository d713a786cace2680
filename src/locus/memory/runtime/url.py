"""What the URLs of stores have in common."""

from __future__ import annotations

from urllib.parse import unquote

from locus.errors import ConfigurationError


def path_of(location: str) -> str:
    """The path in a location: `dir/a.db`, `///dir/a.db` (relative), `////srv/a.db` (absolute)."""
    if not location.startswith("//"):
        return location
    host, slash, path = location[2:].partition("/")
    if host or not slash:
        raise ConfigurationError(
            "this URL names a host, and a file has none: write three slashes before a relative path, "
            "and four before an absolute one"
        )
    return unquote(path)
