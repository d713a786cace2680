"""SQLite and files, each on a small disk of its own; in a plain folder where the machine allows no such disk."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tests.servers.errors import ServerError
from tests.soak.disk import Disk
from tests.soak.faults.disk import DiskFull, DiskReadOnly, FilesImmutable
from tests.soak.faults.harm import Harm
from tests.soak.faults.locks import WriterLockHeld
from tests.soak.sites.base import ThreadedSite


class EmbeddedSite(ThreadedSite):
    """A store without a server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disk = Disk(self.folder / "disk")

    def direct_url(self) -> str:
        return self.url()

    def set_up(self) -> None:
        try:
            self.disk.mount()
        except ServerError as refusal:
            (self.folder / "no disk of its own").write_text(f"{refusal}\n", encoding="utf-8")

    def take_down(self) -> None:
        self.disk.unmount()

    def is_usable(self) -> bool:
        return self.disk.takes_data()

    @property
    def file_system(self) -> str:
        kind = "ext4" if self.disk.is_mounted() else "a plain folder"
        return f"{kind}, Linux {platform.release()}" if platform.system() == "Linux" else platform.system()


class SQLiteSite(EmbeddedSite):
    name = "sqlite"

    @property
    def file(self) -> Path:
        return self.disk.place / "locus.db"

    def url(self) -> str:
        return f"sqlite:{self.file}"

    def find_versions(self) -> str:
        return f"SQLite {sqlite3.sqlite_version} on {self.file_system}"

    def harms(self) -> Sequence[Harm]:
        locked = WriterLockHeld(self.file)
        on_disk = [DiskFull(self.disk), FilesImmutable(self.files)]
        return [locked, *on_disk] if self.disk.is_mounted() else [locked]

    def files(self) -> list[Path]:
        """Without the index of the journal (-shm), which processes write as memory: they would end with SIGBUS."""
        return [path for path in (self.file, self.file.with_name(f"{self.file.name}-wal")) if path.exists()]


class FileSite(EmbeddedSite):
    name = "file"

    def url(self) -> str:
        return f"file:{self.disk.place / 'checkpoints'}"

    def find_versions(self) -> str:
        return f"files on {self.file_system}"

    def harms(self) -> Sequence[Harm]:
        on_disk = [DiskFull(self.disk), DiskReadOnly(self.disk)]
        return on_disk if self.disk.is_mounted() else []
