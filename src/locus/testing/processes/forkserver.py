"""The fork server: a process that forks a child for each job.

`python -m locus.testing.processes.forkserver <descriptor>` starts it, with the descriptor of its socket. It imports
Locus once, and has neither threads nor connections. A job therefore costs milliseconds, rather than the start of an
interpreter. Requests are JSON lines, one at a time:

    {"op": "prepare", "path": […], "modules": […], "url": "sqlite:a.db"}    import modules that jobs need
    {"op": "fork", "module": "…", "job": "save_many", "arguments": {…}, "environment": {…}}
                                    start a job; its socket comes with the request
    {"op": "kill", "pid": 1}        send SIGKILL, and wait for the end
    {"op": "reap", "pid": 1}        wait for the end of a job that is about to end by itself

Only this process waits for the children, so a process id that it signals is certainly a child's. When its own socket
closes, it kills the remaining children and ends.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from locus.errors import LocusError
from locus.memory import get_checkpointer
from locus.testing.processes.workers import Channel

Job = Callable[..., Coroutine[Any, Any, Any]]

REAP_SECONDS = 10.0


class ForkServer:
    """Answers requests until the other side closes the socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()

    def serve(self) -> None:
        try:
            while (request := self._request()) is not None:
                message, descriptors = request
                self._reply(self._answer(message, descriptors))
        finally:
            for pid in list(self._children):
                self._kill(pid)

    def _request(self) -> tuple[dict[str, Any], list[int]] | None:
        text, descriptors = b"", list[int]()
        while not text.endswith(b"\n"):
            chunk, received, _, _ = socket.recv_fds(self._control, 65_536, 1)
            if not chunk:
                return None
            text += chunk
            descriptors += received
        return json.loads(text), descriptors

    def _reply(self, answer: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        match message["op"]:
            case "prepare":
                return self._prepare(message["path"], message["modules"], message["url"])
            case "fork":
                return self._fork(message, descriptors[0])
            case "kill":
                return {"status": self._kill(message["pid"])}
            case "reap":
                return {"status": self._reap(message["pid"])}
            case unknown:
                raise ValueError(f"unknown request {unknown!r}")

    def _prepare(self, path: list[str], modules: list[str], url: str) -> dict[str, Any]:
        sys.path += [entry for entry in path if entry not in sys.path]
        try:
            for module in modules:
                importlib.import_module(module)
            # An unused handle opens nothing, but making it imports the backend's modules for all jobs.
            get_checkpointer(url)
        except (ImportError, LocusError):
            return {"error": traceback.format_exc()}
        return {}

    def _fork(self, message: dict[str, Any], descriptor: int) -> dict[str, Any]:
        function: Job = getattr(importlib.import_module(message["module"]), message["job"])
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            self._control.close()
            os.environ.clear()
            os.environ.update(message["environment"])
            run_job(function, message["arguments"], Channel(socket.socket(fileno=descriptor)))
        os.close(descriptor)
        self._children.add(pid)
        return {"pid": pid}

    def _kill(self, pid: int) -> int | None:
        if pid not in self._children:
            return None
        os.kill(pid, signal.SIGKILL)
        return self._reap(pid)

    def _reap(self, pid: int) -> int | None:
        """The exit status of a child (negative for a signal); None if it has not ended after a while."""
        deadline = time.monotonic() + REAP_SECONDS
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._children.discard(pid)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.0005)
        return None


def run_job(job: Job, arguments: dict[str, Any], channel: Channel) -> NoReturn:
    """Do a job in a child, send its result or error, and end without the parent's clean-up."""
    code = 1
    try:
        channel.send(done=asyncio.run(job(channel, **arguments)))
        code = 0
    except BaseException:
        channel.send(error=traceback.format_exc())
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
