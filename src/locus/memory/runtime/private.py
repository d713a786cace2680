"""Files and folders that only their owner can open.

A folder that its group may write to was opened to that group on purpose, so what is made in it is open to the group,
too. What is there already keeps its rights.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from locus.errors import ConfigurationError

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""For `os.open`: a link in the place of a file is an error."""
BYTES = getattr(os, "O_BINARY", 0)
"""For `os.open`: Windows changes line ends otherwise."""


def make_folder(folder: Path, *, within: Path | None = None) -> None:
    """Make a folder, and those above it that are missing; `within` a folder that must exist already, if one is given.

    It is given for an absolute path that nobody asked to make: a missing folder there is more likely mistyped.
    """
    if within is not None and not within.exists():
        raise ConfigurationError(
            f"the folder {str(within)!r} does not exist: make it, or have it made with create_folder=True "
            "(in a URL: ?create_folder=true)"
        )
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(0o700, exist_ok=True)
        if _is_shared(one.parent):
            one.chmod(0o770)


def create_file(path: str | Path) -> int:
    """Create a file, and open it for reading and writing. `FileExistsError` if there is one, or a link."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | BYTES, 0o600)
    if _is_shared(Path(path).parent):
        os.fchmod(fd, 0o660)
    return fd


def _is_shared(folder: Path) -> bool:
    return os.name != "nt" and bool(folder.stat().st_mode & stat.S_IWGRP)


def keep_rights(fd: int, old: Path) -> None:
    """Give a new file the rights of the one that it will replace, if there is one."""
    try:
        found = old.lstat()
    except FileNotFoundError:
        return
    if os.name == "nt" or not stat.S_ISREG(found.st_mode):
        return
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):  # only root can give a file away
            os.fchown(fd, found.st_uid, found.st_gid)
    os.fchmod(fd, stat.S_IMODE(found.st_mode))


def hide_from_readers(fd: int) -> None:
    """Take the right to read a file from all who may not write to it: whoever can open a file can hold a lock on it."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    only_readers = mode & 0o444 & ~((mode & 0o222) << 1)
    if only_readers:
        with suppress(PermissionError):  # its owner will do it
            os.fchmod(fd, mode & ~only_readers)
