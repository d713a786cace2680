"""The bearer token with which a command uses a store on a server, `http://…` or `https://…`.

It comes from a file or from the environment. It is no option, because other users can see command lines.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from locus.errors import ConfigurationError, LocusError

TOKEN_VARIABLE = "LOCUS_TOKEN"
FILE_VARIABLE = "LOCUS_TOKEN_FILE"
HELP = f"""\
A store at http:// or https:// is a Locus server. If it wants a token, put the token into the variable
{TOKEN_VARIABLE}, or into a file, and name that with an option or in the variable {FILE_VARIABLE}. The option counts
before the variables, and {TOKEN_VARIABLE} before {FILE_VARIABLE}."""

_SERVERS = ("http", "https")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_MOST_CHARACTERS = 65_536


def add_option(
    command: argparse.ArgumentParser, name: str = "--token-file", whose: str = "a store at http(s)://"
) -> None:
    command.add_argument(name, metavar="FILE", help=f"a file with the bearer token for {whose}")


def is_server(url: str) -> bool:
    """True if the store at a URL is on a Locus server, which may want a token."""
    return url.partition(":")[0].lower() in _SERVERS


def in_environment() -> bool:
    return any(os.environ.get(name) for name in (TOKEN_VARIABLE, FILE_VARIABLE))


def token_for(url: str, file: str | None) -> str | None:
    """The token for the store at `url`: from the file that an option has named, or from the environment.

    A URL with a user and a password has credentials of its own, so the environment does not count for it.
    """
    if not is_server(url):
        if file is not None:
            raise ConfigurationError("a token file is for a store at http:// or https://")
        return None
    if file is not None:
        return read_token(file)
    if "@" in url.partition("://")[2].partition("/")[0]:
        return None
    if given := os.environ.get(TOKEN_VARIABLE):
        return _checked(given.strip(), f"the variable {TOKEN_VARIABLE}")
    named = os.environ.get(FILE_VARIABLE)
    return read_token(named) if named else None


def read_token(path: str) -> str:
    """The token in a file. Empty lines, and lines that begin with `#`, do not count.

    Errors don't quote the path: somebody may have written the token itself in its place.
    """
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_CHARACTERS)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise ConfigurationError(
            f"the token file cannot be used: {reason}. It is a file with the token in it"
        ) from None
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    if len(lines) != 1:
        raise ConfigurationError(f"a token file has one line with a token, and this one has {len(lines)}")
    return _checked(lines[0], "the token file")


def hint(error: LocusError) -> str:
    """Advice to append to an error, if a server has refused the token or wants one; else nothing."""
    client = sys.modules.get("locus.memory.backends.http.client")  # whose driver is not for all commands
    if client is None or not isinstance(error, client.HTTPAuthenticationError):
        return ""
    return f". A command takes its token from {TOKEN_VARIABLE}, {FILE_VARIABLE} or a token file that an option names"


def _checked(token: str, what: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(f"{what} holds a token, which has no spaces and no special characters")
    return token
