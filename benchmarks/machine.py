"""Where the run takes place."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import psutil

from locus import __version__


def describe(folder: Path) -> dict[str, str]:
    return {
        "Locus": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "file system": file_system(folder),
        "load at the start": load(),
    }


def load() -> str:
    """How many processes wanted to run in the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def file_system(folder: Path) -> str:
    """The type of the file system: an fsync means little on one that is in memory."""
    place = folder.resolve()
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[path] for path in (place, *place.parents) if path in mounts), "unknown")
