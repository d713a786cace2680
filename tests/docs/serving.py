"""`locus` in the documentation: what serves is started in the current folder, and serves the blocks behind it."""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from urllib.error import URLError
from urllib.request import urlopen

SECONDS = 60
_running: dict[str, subprocess.Popen[bytes]] = {}
"""By port: a page that serves on a port ends the server of the page before."""


def start_server(words: Sequence[str], variables: dict[str, str]) -> None:
    port = words[words.index("--port") + 1]  # a page names it, and `blocks` has put a free one in its place
    stop_server(port)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "locus", *words[1:]]
        process = _running[port] = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
        until = time.monotonic() + SECONDS
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > until:
                log.seek(0)
                raise ValueError(f"`{' '.join(words)}` does not serve:\n{log.read().decode()}")
            time.sleep(0.05)


def start_inspector(words: Sequence[str], variables: dict[str, str]) -> None:
    """`locus inspect`, on a port that nobody else uses. It prints its link when it can be opened."""
    command = [sys.executable, "-m", "locus", *words[1:], "--port", "0", "--no-open"]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    if not line.startswith("open http://127.0.0.1:"):
        raise ValueError(f"`{' '.join(words)}` does not serve:\n{line}")
    stop_server("inspector")
    _running["inspector"] = process


def stop_server(port: str) -> None:
    process = _running.pop(port, None)
    if process is not None:
        process.terminate()
        process.wait(SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def _answers(port: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except URLError:
        return False


@atexit.register
def _stop_all() -> None:
    for port in [*_running]:
        stop_server(port)
