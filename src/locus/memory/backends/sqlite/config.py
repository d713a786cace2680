"""The options of `SQLiteBackend`, and URLs that name a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from locus.errors import ConfigurationError
from locus.memory.model.arguments import checked_seconds, possible_path
from locus.memory.runtime.url import path_of

Durability = Literal["full", "normal"]
IN_MEMORY = ":memory:"


@dataclass(frozen=True)
class SQLiteConfig:
    """Which file, and how to use it."""

    path: str
    """An absolute path, or `":memory:"`."""
    durability: Durability
    timeout: float
    """Seconds to wait for locks of other processes."""
    query_timeout: float
    """Seconds that one read may take."""

    @classmethod
    def checked(
        cls, path: str | Path, durability: Durability, timeout: float, query_timeout: float = 60.0
    ) -> SQLiteConfig:
        """From what a user gave."""
        if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
            raise ConfigurationError(f"path must be the path of a file, got {path!r:.80}")
        if durability not in get_args(Durability):
            raise ConfigurationError(f'durability is "full" or "normal", got {durability!r}')
        checked_seconds(timeout, "timeout")
        checked_seconds(query_timeout, "query_timeout")
        return cls(_absolute(path), durability, timeout, query_timeout)


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


def options_of(location: str) -> dict[str, Any]:
    """The options in what follows `sqlite:`, as in `agents.db`, `///agents.db` (relative) or `////srv/agents.db`."""
    path = path_of(location)
    return {"path": path} if path else {}
