"""The options of `SQLiteBackend`, and its URLs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from locus.errors import ConfigurationError
from locus.hints import check_options
from locus.memory.model.arguments import CACHE_MB, checked_seconds, possible_path
from locus.memory.runtime.url import flag, path_of, refuse_url, split_options

Durability = Literal["full", "normal"]
IN_MEMORY = ":memory:"
_URL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "durability": str,
    "ttl_seconds": float,
    "timeout": float,
    "query_timeout": float,
    "create_folder": flag,
    "cache_mb": float,
}
_UNKNOWN = "an sqlite: URL has no option '{name}'; there are: {known}"


@dataclass(frozen=True)
class SQLiteConfig:
    """The file and how to use it."""

    path: str
    """An absolute path, or `":memory:"`."""
    durability: Durability = "full"
    timeout: float = 30.0
    """The seconds to wait for locks of other processes."""
    query_timeout: float = 60.0
    """The seconds that one read may take."""
    ttl_seconds: float | None = None
    makes_folder: bool = True
    """True if the folder of the file may be made."""
    cache_mb: float = CACHE_MB

    @classmethod
    def checked(
        cls,
        path: str | Path = "locus.db",
        durability: Durability = "full",
        timeout: float = 30.0,
        query_timeout: float = 60.0,
        ttl_seconds: float | None = None,
        create_folder: bool = False,
        cache_mb: float = CACHE_MB,
    ) -> SQLiteConfig:
        """Make a config from a user's options, and check it."""
        if not isinstance(path, str | Path) or not str(path) or "\0" in str(path) or not _has_bytes(str(path)):
            raise ConfigurationError(f"path must be the path of a file, got {path!r:.80}")
        refuse_url(path, "sqlite")
        if durability not in get_args(Durability):
            raise ConfigurationError(f'durability is "full" or "normal", got {durability!r}')
        checked_seconds(timeout, "timeout")
        checked_seconds(query_timeout, "query_timeout")
        makes_folder = create_folder or not Path(path).is_absolute()
        return cls(_absolute(path), durability, timeout, query_timeout, ttl_seconds, makes_folder, cache_mb)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> SQLiteConfig:
        """Make a config from `sqlite:agents.db`, `sqlite:///agents.db` (relative) or `sqlite:////srv/agents.db?timeout=5`.

        Options override those in the URL.
        """
        check_options(options, cls.checked, "SQLiteBackend")
        location, in_url = split_options(url.partition(":")[2], _URL_OPTIONS, _UNKNOWN)
        if path := path_of(location):
            if location.startswith("///"):
                _check_relative(path)
            in_url["path"] = path
        return cls.checked(**(in_url | options))


def _check_relative(path: str) -> None:
    """Refuse `sqlite:///tmp/a.db` if there is a `/tmp` and no `tmp`: most likely it lacks a slash."""
    file = Path(path)
    if file.is_absolute() or len(file.parts) < 2 or "\0" in path:
        return
    with possible_path(path):
        doubtful = not Path(file.parts[0]).exists() and Path("/", file.parts[0]).is_dir()
    if doubtful:
        raise ConfigurationError(
            f"after three slashes a path is relative, and there is no folder {file.parts[0]!r:.80} here, but one at "
            f"the root: write {f'sqlite:////{path}'!r:.200} for that, or {f'sqlite:{path}'!r:.200} to make one here"
        )


def _absolute(path: str | Path) -> str:
    if str(path) == IN_MEMORY:
        return IN_MEMORY
    with possible_path(path):
        file = Path(path).expanduser()
        is_folder = file.is_dir()
        absolute = str(file.absolute())
    if is_folder:
        raise ConfigurationError(f"{str(path)!r} is a directory; name a file in it: {str(Path(path) / 'agents.db')!r}")
    return absolute


def _has_bytes(path: str) -> bool:
    """Tell whether a text can be the name of a file: some lone surrogates stand for bytes that are no UTF-8."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True
