"""Creates files and folders that only their owner can open.

If the folder around them is writable for its group, somebody has chosen that, and they are open to the group, too.
Existing files and folders keep their rights.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from locus.errors import ConfigurationError

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""A flag for `os.open` that makes a symbolic link in the place of the file an error."""
BYTES = getattr(os, "O_BINARY", 0)
"""A flag for `os.open` that keeps Windows from changing line ends."""


def make_folder(folder: Path, *, within: Path | None = None) -> None:
    """Make a folder and the missing ones above it.

    `within` is a folder that must exist. Pass it for an absolute path that the user did not ask to create: a missing
    folder there is more likely mistyped.
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
    for new_folder in reversed(missing):
        new_folder.mkdir(0o700, exist_ok=True)
        if _is_shared(new_folder.parent):
            new_folder.chmod(0o770)


def create_file(path: str | Path) -> int:
    """Create a file, and open it for reading and writing. Raises FileExistsError for an existing file or link."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | BYTES, 0o600)
    if _is_shared(Path(path).parent):
        os.fchmod(fd, 0o660)
    return fd


def _is_shared(folder: Path) -> bool:
    return os.name != "nt" and bool(folder.stat().st_mode & stat.S_IWGRP)


def keep_rights(fd: int, old: Path) -> None:
    """Give a new file the rights of the old one that it will replace, if that exists."""
    try:
        old_status = old.lstat()
    except FileNotFoundError:
        return
    if os.name == "nt" or not stat.S_ISREG(old_status.st_mode):
        return
    if (old_status.st_uid, old_status.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):  # only root can give a file away
            os.fchown(fd, old_status.st_uid, old_status.st_gid)
    os.fchmod(fd, stat.S_IMODE(old_status.st_mode))


def hide_from_readers(fd: int) -> None:
    """Take the right to read a file from all who may not write to it, since opening it is enough to lock it."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    only_readers = mode & 0o444 & ~((mode & 0o222) << 1)
    if only_readers:
        with suppress(PermissionError):  # its owner will do it
            os.fchmod(fd, mode & ~only_readers)
