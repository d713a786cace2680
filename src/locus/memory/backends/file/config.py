"""The options of `FileCheckpointer`, and its URLs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locus.errors import ConfigurationError
from locus.hints import check_options
from locus.memory.model.arguments import CACHE_MB, possible_path
from locus.memory.runtime.url import flag, folder_of, refuse_url, split_options

DEFAULT_FOLDER = ".locus_checkpoints"
_URL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "pretty": flag,
    "ttl_seconds": float,
    "create_folder": flag,
    "cache_mb": float,
}
_UNKNOWN = "a file: URL has no option '{name}'; there are: {known}"


@dataclass(frozen=True)
class FileConfig:
    """The folder and how to write into it."""

    base_dir: Path
    """An absolute path."""
    pretty: bool = True
    ttl_seconds: float | None = None
    makes_parents: bool = False
    """True if the folders above it may be made, too."""
    cache_mb: float = CACHE_MB

    @classmethod
    def checked(
        cls,
        base_dir: str | Path = DEFAULT_FOLDER,
        pretty: bool = True,
        *,
        ttl_seconds: float | None = None,
        create_folder: bool = False,
        cache_mb: float = CACHE_MB,
    ) -> FileConfig:
        """Make a config from the options of `FileCheckpointer`, and check it."""
        if not isinstance(base_dir, str | Path) or not str(base_dir) or "\0" in str(base_dir):
            raise ConfigurationError(f"base_dir must be the path of a folder, got {base_dir!r:.80}")
        refuse_url(base_dir, "file")
        with possible_path(base_dir):
            base = Path(base_dir).expanduser()
            is_file = base.exists() and not base.is_dir()
        if is_file:
            raise ConfigurationError(f"{str(base_dir)!r} is a file; name a folder")
        makes_parents = create_folder or not Path(base_dir).is_absolute()
        return cls(base.absolute(), pretty, ttl_seconds, makes_parents, cache_mb)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> FileConfig:
        """Make a config from a URL and options, which override those in the URL."""
        return cls.checked(**cls.options_in(url, **options))

    @classmethod
    def options_in(cls, url: str, **options: Any) -> dict[str, Any]:
        """Read the options in `file:./dir` or `file:///srv/dir?ttl_seconds=3600`, and add others, which override them.

        Unlike those of databases, the path in a file URL is absolute.
        """
        check_options(options, cls.checked, "FileCheckpointer")
        location, found = split_options(url.partition(":")[2], _URL_OPTIONS, _UNKNOWN)
        if path := folder_of(location):
            found["base_dir"] = path
        return found | options
