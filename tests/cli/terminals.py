"""Runs commands as a user does: in a process of their own, on a pseudo-terminal or through pipes.

Each is a fork of one process that has imported the command line already, so that a command costs milliseconds. As a
program, this module is that process: it takes requests on its standard input, a line of JSON each.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Said:
    """What a command printed, and what it ended with. On a terminal all of it is in `out`."""

    code: int
    out: str
    err: str = ""

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Commands:
    """Runs commands, one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.environment: dict[str, str] = {}

    def piped(self, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Said:
        return self._run(arguments, None, cwd, env)

    def on_terminal(
        self, *arguments: str, columns: int = 80, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Said:
        return self._run(arguments, columns, cwd, env)

    def _run(
        self, arguments: tuple[str, ...], columns: int | None, cwd: Path | None, env: Mapping[str, str] | None
    ) -> Said:
        request = {
            "arguments": arguments,
            "columns": columns,
            "cwd": str(cwd or ROOT),
            "env": {"TERM": "xterm", "LOCUS_PAGER": "cat", **self.environment, **(env or {})},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that runs commands has ended"
        return Said(**json.loads(answer))


@contextmanager
def commands() -> Iterator[Commands]:
    """A process that runs commands."""
    # The width of a terminal is that of the terminal, and not what the runner of the tests has.
    ours = ("LOCUS_", "NO_COLOR", "COLUMNS", "LINES")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.terminals"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": path},
    )
    try:
        yield Commands(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def _serve() -> None:
    import asyncio  # noqa: F401  (what every command needs is imported once)

    import locus.cli
    import locus.looking.revisions
    import locus.memory.backends

    locus.cli.parser()
    for line in sys.stdin:
        request = json.loads(line)
        answer = _on_terminal(request) if request["columns"] else _through_pipes(request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _command(request: Mapping[str, Any]) -> None:
    """Run a command in this process, which is a fork for nothing else, and end it."""
    code = 70
    try:
        os.environ.update(request["env"])
        time.tzset()
        os.chdir(request["cwd"])
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(0, "r", closefd=False),
            os.fdopen(1, "w", closefd=False, errors="backslashreplace"),
            os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace"),
        )
        from locus.cli import main

        code = main(request["arguments"])
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception:  # noqa: BLE001  (a test that sees it fails)
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _on_terminal(request: Mapping[str, Any]) -> dict[str, Any]:
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, request["columns"], 0, 0))
        _command(request)
    found = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # Linux says so when the other side is gone
            break
        if not piece:
            break
        found += piece
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    return {"code": os.waitstatus_to_exitcode(status), "out": found.decode(errors="replace").replace("\r\n", "\n")}


def _through_pipes(request: Mapping[str, Any]) -> dict[str, Any]:
    out, err = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, place in ((nothing, 0), (out[1], 1), (err[1], 2)):
            os.dup2(descriptor, place)
        for descriptor in (*out, *err):
            os.close(descriptor)
        _command(request)
    os.close(out[1])
    os.close(err[1])
    read: dict[str, str] = {}

    def drain(name: str, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as file:
            read[name] = file.read().decode(errors="replace")

    other = threading.Thread(target=drain, args=("err", err[0]))
    other.start()
    drain("out", out[0])
    other.join()
    _, status = os.waitpid(process, 0)
    return {"code": os.waitstatus_to_exitcode(status), **read}


if __name__ == "__main__":
    _serve()
