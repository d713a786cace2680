"""The options of `FileCheckpointer`, and URLs that name a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.model.arguments import possible_path
from locus.memory.runtime.url import folder_of

DEFAULT_FOLDER = ".locus_checkpoints"


@dataclass(frozen=True)
class FileConfig:
    """Which folder, and how to write into it."""

    base_dir: Path
    """An absolute path."""
    pretty: bool = True

    @classmethod
    def checked(cls, base_dir: str | Path = DEFAULT_FOLDER, pretty: bool = True) -> FileConfig:
        """From what a user gave."""
        if not isinstance(base_dir, str | Path) or not str(base_dir) or "\0" in str(base_dir):
            raise ConfigurationError(f"base_dir must be the path of a folder, got {base_dir!r:.80}")
        with possible_path(base_dir):
            base = Path(base_dir).expanduser().absolute()
            is_file = base.exists() and not base.is_dir()
        if is_file:
            raise ConfigurationError(f"{str(base_dir)!r} is a file; name a folder")
        return cls(base, pretty)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> FileConfig:
        """From `file:./dir` or `file:///srv/dir`, and options."""
        if path := folder_of(url.partition(":")[2]):
            options = {"base_dir": path, **options}
        return cls.checked(**options)
