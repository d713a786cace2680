"""`FileCheckpointer`, and what a `file:` URL opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locus.errors import ConfigurationError
from locus.memory.backends.file.engine import FileEngine
from locus.memory.backends.file.schema import SUFFIX, file_name
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import possible_path
from locus.memory.model.ids import check_id
from locus.memory.runtime.url import path_of
from locus.memory.store import CheckpointStore


class FileCheckpointer(Checkpointer):
    """Keeps every thread in a file of its own, as JSON that you can read.

    `pretty=False` writes a record on one line, which is smaller but harder to read.
    """

    def __init__(
        self,
        base_dir: str | Path = ".locus_checkpoints",
        pretty: bool = True,
        *,
        ttl_seconds: float | None = None,
    ) -> None:
        if not isinstance(base_dir, str | Path) or not str(base_dir) or "\0" in str(base_dir):
            raise ConfigurationError(f"base_dir must be the path of a folder, got {base_dir!r:.80}")
        with possible_path(base_dir):
            self._base = Path(base_dir).expanduser().absolute()
            is_file = self._base.exists() and not self._base.is_dir()
        if is_file:
            raise ConfigurationError(f"{str(base_dir)!r} is a file; name a folder")
        super().__init__(CheckpointStore(FileEngine(self._base, pretty), ttl_seconds=ttl_seconds))

    def get_storage_path(self) -> Path:
        """The folder that holds everything."""
        return self._base

    async def get_disk_usage(self, thread_id: str | None = None) -> int:
        """How many bytes one thread, or all of them, take on the disk."""
        paths = (
            [self._base / file_name(check_id(thread_id))] if thread_id is not None else self._base.glob(f"*{SUFFIX}")
        )
        return sum(path.stat().st_size for path in paths if path.exists())

    def __repr__(self) -> str:
        return f"FileCheckpointer({str(self._base)!r})"


def from_location(location: str = "", **options: Any) -> FileCheckpointer:
    """`"file:./dir"`, `"file:///srv/dir"`: unlike those of databases, the path in a file URL is absolute."""
    path = f"/{path_of(location)}" if location.startswith("///") else path_of(location)
    return FileCheckpointer(path, **options) if path else FileCheckpointer(**options)
