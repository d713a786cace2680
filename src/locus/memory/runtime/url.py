"""Parses the URLs of stores. No error shows a URL, not even through its cause, because it may hold a password."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import PurePath
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from locus.errors import ConfigurationError
from locus.hints import did_you_mean


class StoreURL:
    """The parts of a URL. `refusal` is the text of the error if it cannot be parsed.

    Without `has_user` there is no user in it, and an @ may stand in its path.
    """

    _authority: str
    hosts: str
    """All hosts and ports, unchanged: `one:9200,two:9200`."""

    def __init__(self, url: object, refusal: str, *, has_user: bool = True) -> None:
        parts: SplitResult | None = None
        if isinstance(url, str):
            check_user(url, refusal, has_user=has_user)
        # The error of `urlsplit` may quote the password, so it is dropped before another one is raised.
        with suppress(ValueError):
            if isinstance(url, str):
                url.encode()  # a lone surrogate is no text, and no driver could send it
                self._authority, self.hosts, parts = _split(url)
        if parts is None:
            raise ConfigurationError(refusal)
        self._parts = parts
        self._refusal = refusal
        self.scheme = parts.scheme
        self.user = None if parts.username is None else unquote(parts.username)
        self.password = None if parts.password is None else unquote(parts.password)
        self.host = parts.hostname if "," not in self.hosts else self.hosts.lower()
        """A single host, in lower case."""
        self.path = parts.path
        """The path, unchanged, with its first slash."""
        self.query = parts.query
        self.fragment = parts.fragment

    @property
    def port(self) -> int | None:
        """The port; None if the URL names none. Raises if there are several hosts."""
        with suppress(ValueError):
            if "," not in self.hosts:
                return self._parts.port
        raise ConfigurationError(self._refusal)

    def changed(self, *, query: str, path: str | None = None) -> str:
        """The URL with another query or path. (`urlunsplit` would drop the slashes before an empty host.)"""
        query, fragment = query and f"?{query}", self.fragment and f"#{self.fragment}"
        return f"{self.scheme}://{self._authority}{self.path if path is None else path}{query}{fragment}"

    def options(
        self,
        readers: Mapping[str, Callable[[str], Any]],
        unknown: str = "the URL has no option '{name}'; there are: {known}",
    ) -> dict[str, Any]:
        """The options after the question mark, each converted by its reader. `unknown` is the error for others."""
        texts = dict(parse_qsl(self.query, keep_blank_values=True))
        if others := sorted(texts.keys() - readers.keys()):
            # After a question mark in a password, the rest of the password looks like an option.
            shown = [name if name.isidentifier() and "@" not in self.query else "…" for name in others]
            refusal = unknown.format(name=", ".join(shown)[:80], known=", ".join(readers))
            raise ConfigurationError(f"{refusal}{did_you_mean(shown[0], readers)}")
        options: dict[str, Any] = {}
        for name, text in texts.items():
            with suppress(ValueError):
                options[name] = readers[name](text)
            if name not in options:
                raise ConfigurationError(f"{name} in the URL is {_KINDS.get(readers[name], 'something else')}")
        return options

    def __repr__(self) -> str:
        return f"StoreURL({self.scheme!r})"


def _split(url: str) -> tuple[str, str, SplitResult]:
    """Split a URL into the text before the path, the hosts in that text, and the parts with the first host alone.

    `urlsplit` knows only one host, and some versions of Python refuse several if one is an address in brackets.
    """
    scheme, slashes, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, hosts = authority.rpartition("@")
    first, *others = hosts.split(",")
    for host in others:
        urlsplit(f"{scheme}://{host}")
    if not slashes or not others:
        parts = urlsplit(url)
        return parts.netloc, parts.netloc.rpartition("@")[2], parts
    return authority, hosts, urlsplit(f"{scheme}://{user}{at}{first}{rest[len(authority) :]}")


_NO_HOST = ("file", "unix")


def check_user(url: str, refusal: str, *, has_user: bool = True) -> None:
    """Raise unless it is clear where the password in a URL ends: a part of it would be taken for a host, and be shown.

    So one @ is allowed, before the path. Where there is no host, or no user (`has_user`), it is as good as any letter.
    """
    scheme, _, rest = url.partition("//")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if (not authority and scheme.lower().startswith(_NO_HOST)) or not (has_user or ":" in authority):
        return
    if rest.count("@") > 1 or authority.count("@") < rest.count("@"):
        raise ConfigurationError(
            f"{refusal}; a URL has one @, before its first slash: percent-encode what is special in a user or a "
            "password, such as @ (%40), / (%2F), ? (%3F) and # (%23)"
        )


def refuse_address(value: object, what: str) -> None:
    """Raise if a name, such as that of a host, is a URL or begins with a user. The error shows none of it."""
    text = str(value) if isinstance(value, str | PurePath) else ""
    if _IN_URL.search(text):
        raise ConfigurationError(f"{what} is a name, and this is a URL: get_checkpointer(…) takes URLs")
    if "@" in text[1:] and what == "host":
        raise ConfigurationError("host is the name of a host alone: give user=… and password=…")


_IN_URL = re.compile(r"://|^[A-Za-z][A-Za-z0-9+.-]+:/[^/]*@")
"""A URL, or a `Path` that was made of one and has lost a slash."""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine under a name that no other machine can reach."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def flag(text: str) -> bool:
    """Read a yes or no from a URL."""
    if text.lower() not in ("true", "1", "yes", "false", "0", "no"):
        raise ValueError
    return text.lower() in ("true", "1", "yes")


_KINDS: dict[Callable[[str], Any], str] = {flag: "true or false", int: "a whole number", float: "a number"}


def split_options(
    location: str, readers: Mapping[str, Callable[[str], Any]], unknown: str
) -> tuple[str, dict[str, Any]]:
    """Split a location of a file or folder into the path and the options after the question mark.

    A question mark in a name is written as `%3F`, in a location with slashes.
    """
    path, mark, query = location.partition("?")
    if not mark:
        return path, {}
    parts = StoreURL(f"file:?{query}", "this is no URL of a file")
    if parts.fragment:
        raise ConfigurationError("the URL of a file has no fragment: write '#' in it as %23")
    return path, parts.options(readers, unknown)


def path_of(location: str) -> str:
    """The path in a location: `dir/a.db`, `///dir/a.db` (relative), `////srv/a.db` (absolute)."""
    if not location.startswith("//"):
        return location
    host, slash, path = location[2:].partition("/")
    if host or not slash:
        raise ConfigurationError(
            "this URL names a host, and a file has none: write no slashes before a relative path (sqlite:agents.db), "
            "or three, and four before an absolute one"
        )
    return unquote(path)


def folder_of(location: str) -> str:
    """The path in a location after `file:`. Three slashes begin an absolute path, unlike in locations of databases."""
    return f"/{path_of(location)}" if location.startswith("///") else path_of(location)


def refuse_url(path: object, scheme: str) -> None:
    """Raise if a path is a URL, which would become the name of a file. `scheme` is that of the backend's URLs."""
    given, colon, location = str(path).partition(":")
    ours = colon and given.lower() in ("sqlite", "file")
    location = location.partition("?")[0]
    if _IN_URL.search(str(path)) if not ours else "@" in location:  # perhaps of something else, with a password
        raise ConfigurationError("this is a URL, and a path is wanted here: get_checkpointer(…) takes URLs")
    if not ours:
        return
    meant = location.lstrip("/")  # where two slashes would begin a host
    with suppress(ConfigurationError):
        meant = folder_of(location) if given.lower() == "file" else path_of(location)
    raise ConfigurationError(
        f"{f'{given}:{location}'!r:.200} is a URL, and this is a path: write {meant!r:.200}, or "
        f"get_checkpointer({f'{scheme}:{meant}'!r:.200}), which takes URLs"
    )
