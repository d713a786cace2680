"""A small disk of its own: it can be filled and emptied, refuse whatever would change it, and lose its power.

It is a file system (ext4) in an image file. A tmpfs would not do: on it, a file that is open goes on taking what is
written, and it holds what it is filled with in memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.base import watchdog
from tests.servers.errors import ServerError

MEGABYTE = 1 << 20
READ_ONLY, REMOUNT, BIND = 1, 32, 4096
"""Flags of mount(2)."""
SHUT_DOWN, WITHOUT_FLUSH = 0x8004587D, 2
"""EXT4_IOC_SHUTDOWN: nothing is written to the disk from then on, whatever the system still has in its memory."""
PATIENCE = 10.0
BETWEEN_TRIES = 0.001


class Disk:
    """Mounted on `place`. Needs root, and a machine that lets it mount."""

    def __init__(self, place: Path, megabytes: int = 1024) -> None:
        self.place = place
        self._megabytes = megabytes

    @property
    def _image(self) -> Path:
        return self.place.with_suffix(".image")

    @property
    def _ballast(self) -> Path:
        return self.place / "ballast"

    def mount(self) -> None:
        """With nothing on it. `ServerError` if that is not allowed here."""
        self.unmount()
        self.place.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._megabytes * MEGABYTE)  # takes no space until it is written to
        try:
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", self._image)
            # While the disk is away, its place must not take what is meant for the disk.
            set_immutable([self.place], True)
            watchdog.unmount_at_the_end(self.place)
            self._mount()
        except BaseException:
            self.unmount()
            raise

    def _mount(self) -> None:
        _run("mount", "-o", "loop,noatime", self._image, self.place)

    def unmount(self) -> None:
        """Does nothing if it is not mounted."""
        if self.is_mounted():
            # If somebody still has a file open, it goes with the last one.
            _run("umount", "--lazy", self.place)
        if self._image.exists():
            set_immutable([self.place], False)
            self._image.unlink()

    def cut_power(self) -> None:
        """From now on nothing is written to it: what had not been flushed is lost. Who has a file open gets errors."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """With what was left on it. All who had used it have to be gone: they would still see the old one."""
        copy = self._image.with_suffix(".copy")
        _run("cp", "--sparse=always", self._image, copy)
        _run("umount", "--lazy", self.place)
        copy.replace(self._image)
        self._mount()

    def is_mounted(self) -> bool:
        return self.place.is_mount()

    def fill(self) -> None:
        """Leave no block free."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            piece = 64 * MEGABYTE
            while piece >= self._block():
                try:
                    os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, piece)
                except OSError:
                    piece //= 2
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        space = os.statvfs(self.place)
        return space.f_bavail * space.f_frsize

    def _block(self) -> int:
        return os.statvfs(self.place).f_frsize

    def empty(self) -> None:
        """Take away what `fill` has put there."""
        self._ballast.unlink(missing_ok=True)

    def make_read_only(self, seconds: float = PATIENCE) -> bool:
        """As `mount -o remount,ro`, which is refused while a file is open for writing: tried for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._remount(READ_ONLY):
                return True
            time.sleep(BETWEEN_TRIES)
        return False

    def make_writable(self) -> None:
        if not self._remount(0):
            raise ServerError(f"{self.place} stays read-only")

    def _remount(self, flags: int) -> bool:
        # By the call itself: a moment without an open file is over before a program has been started.
        mount = ctypes.CDLL(None, use_errno=True).mount
        return bool(mount(b"none", os.fsencode(self.place), None, REMOUNT | BIND | flags, None) == 0)

    def takes_data(self) -> bool:
        """Whether something can be written to it, right now."""
        probe = self.place / "probe"
        try:
            descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT)
            try:
                os.write(descriptor, bytes(MEGABYTE))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            return False
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return True


def set_immutable(files: Sequence[Path], immutable: bool) -> None:
    """Whether the files refuse all that would change them, open or not.

    By a program: to open a file of SQLite here and to close it again would take the locks of this process away.
    """
    if files:
        _run("chattr", "+i" if immutable else "-i", *files)


def _run(*command: str | Path) -> None:
    if shutil.which(str(command[0])) is None:
        raise ServerError(f"there is no {command[0]} on this machine")
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
