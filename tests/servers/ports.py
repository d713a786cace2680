"""Free ports, outside of the range that the kernel takes the ports of outgoing connections from.

A server that is down for a moment can so not lose its port to a client; and a client that calls a closed port
again and again can't be connected to itself, which happens inside that range.

A port that was given out belongs to the process that asked, until that ends: its server takes a while to start, and
other workers, and other runs of the tests, look for ports meanwhile.
"""

import os
import random
import socket
import tempfile
from pathlib import Path

import psutil

LOWEST = 11_000
COMPANION = 10_000
"""Some servers take a second port, this much higher."""


def free_port() -> int:
    """A port on loopback that nobody uses; nor does anybody use its companion."""
    for _ in range(1_000):
        port = random.SystemRandom().randrange(LOWEST, highest())
        if is_free(port) and is_free(port + COMPANION) and reserve(port):
            return port
    raise RuntimeError(f"no free port between {LOWEST} and {highest()}")


def reserve(port: int) -> bool:
    """Note that this process has a port. False if another one has it, or if this one was given it before."""
    note = _notes() / str(port)
    try:
        with note.open("x", encoding="ascii") as new:
            new.write(str(os.getpid()))
    except FileExistsError:
        owner = note.read_text(encoding="ascii")
        if not owner or psutil.pid_exists(int(owner)):  # it is empty while somebody writes it
            return False
        note.write_text(str(os.getpid()), encoding="ascii")
    return True


def _notes() -> Path:
    """A file for each port that was given out, with the process that has it."""
    folder = Path(tempfile.gettempdir()) / f"locus-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def highest() -> int:
    try:
        first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except OSError:  # no Linux; 32768 is where most begin
        first_outgoing = 32_768
    return max(first_outgoing - COMPANION, LOWEST + 5_000)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
