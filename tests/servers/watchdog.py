"""Ends servers whose owner is gone, however it went: SIGKILL leaves no time to stop them.

The owner runs this file with a pipe as its input, and writes lines: `+N` for the process group of a server that
it started, `-N` for one that it stopped, the path of a folder that is to go as well, and `*` with the path of one on
which it has mounted a disk. The end of the input is the end of the owner.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


class Watchdog:
    """The owner's side. The process is started with the first server, and once only."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def remove_at_the_end(self, folder: Path) -> None:
        self._tell(f"{folder.absolute()}\n")

    def unmount_at_the_end(self, folder: Path) -> None:
        """Unless that has happened by then."""
        self._tell(f"*{folder.absolute()}\n")

    def _tell(self, line: str) -> None:
        with self._lock:  # servers may be started on several threads
            # A forked child has the owner's pipe, but is not the owner.
            if self._process is None or self._owner != os.getpid():
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def _start(self) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(Path(__file__).resolve())], stdin=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.communicate()
            self._process = None


def main() -> None:
    groups: set[int] = set()
    folders: list[str] = []
    disks: list[str] = []
    for line in sys.stdin:
        if line[0] == "/":
            folders.append(line.rstrip("\n"))
        elif line[0] == "*":
            disks.append(line[1:].rstrip("\n"))
        else:
            (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for disk in filter(os.path.ismount, disks):
        subprocess.run(["umount", "--lazy", disk], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if groups and folders:
        time.sleep(1)  # until the dying have stopped writing
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
