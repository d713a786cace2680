"""`FileCheckpointer`, and the factory that `file:` URLs call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locus.memory.backends.file.config import FileConfig
from locus.memory.backends.file.engine import FileEngine
from locus.memory.backends.file.schema import SUFFIX, file_name
from locus.memory.checkpointer import Checkpointer
from locus.memory.model.arguments import taking
from locus.memory.model.ids import check_id
from locus.memory.store import CheckpointStore


class FileCheckpointer(Checkpointer):
    """Keeps every thread in a file of its own, as JSON that you can read.

    `pretty=False` writes a record on one line, which is smaller but harder to read. The folder is made if it does
    not exist. `create_folder=True` makes the folders above an absolute path, too.
    """

    @taking(FileConfig.checked)
    def __init__(self, config: FileConfig) -> None:
        self.base_dir = config.base_dir
        self.pretty = config.pretty
        self.ttl_seconds = config.ttl_seconds
        engine = FileEngine(
            config.base_dir, config.pretty, within=None if config.makes_parents else config.base_dir.parent
        )
        super().__init__(CheckpointStore(engine, ttl_seconds=config.ttl_seconds, cache_mb=config.cache_mb))

    def get_storage_path(self) -> Path:
        """The folder that holds everything."""
        return self.base_dir

    async def get_disk_usage(self, thread_id: str | None = None) -> int:
        """Measure the bytes that one thread, or all of them, take on the disk."""
        base = self.base_dir
        paths = [base / file_name(check_id(thread_id))] if thread_id is not None else base.glob(f"*{SUFFIX}")
        return sum(path.stat().st_size for path in paths if path.exists())

    def __repr__(self) -> str:
        return f"FileCheckpointer({str(self.base_dir)!r})"


def from_location(location: str = "", **options: Any) -> FileCheckpointer:
    """`"file:./dir"`, `"file:///srv/dir?ttl_seconds=3600"`, with further options by keyword."""
    return FileCheckpointer(**FileConfig.options_in(f"file:{location}", **options))
