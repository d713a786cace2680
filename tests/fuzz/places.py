"""Where cases that are files lie while they are read."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def scratch() -> Path:
    """A folder of this process: in memory where there is such a place, because a long run would wear out a disk."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="locus-fuzz-", dir=shared if shared.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
