"""Worker processes, which run jobs such as those in `jobs`. A process starts in milliseconds.

The suite and its workers exchange JSON lines over a socket. Received data is never executed.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Concatenate, ParamSpec, Self

JSONMessage = dict[str, Any]


class Channel:
    """One end of a connection that carries JSON messages. Sent messages stay readable after the sender was killed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""
        self._ended = False

    def send(self, **facts: Any) -> None:
        self._connection.settimeout(None)
        self._connection.sendall(json.dumps(facts).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> JSONMessage | None:
        """Wait for the next message. Returns None if the other end is gone, and raises TimeoutError after `timeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._unread and not self._ended:
            # A timeout of 0 would make the socket non-blocking, which raises other errors.
            self._connection.settimeout(None if deadline is None else max(0.0001, deadline - time.monotonic()))
            try:
                chunk = self._connection.recv(65_536)
            except ConnectionResetError:
                chunk = b""
            self._ended = not chunk
            self._unread += chunk
        line, newline, self._unread = self._unread.partition(b"\n")
        if not newline:
            return None
        message: JSONMessage = json.loads(line)
        return message

    def close(self) -> None:
        self._connection.close()


PATIENCE = 120.0
"""The seconds after which a silent worker counts as failed."""

P = ParamSpec("P")
Job = Callable[Concatenate[Channel, P], Coroutine[Any, Any, object]]


class WorkerFailed(AssertionError):
    """A worker process raised an error, died or fell silent. The text has its traceback and its output."""


class Server:
    """The fork server process, and its output."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "locus.testing.processes.forkserver", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        self._channel = Channel(ours)
        self._prepared: set[tuple[tuple[str, ...], str]] = set()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *, pass_on: Sequence[int] = (), **request: Any) -> JSONMessage:
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], list(pass_on))
            answer = self._channel.receive(PATIENCE)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise WorkerFailed(f"the fork server is gone\n{self.errors()}")
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer

    def prepare(self, modules: tuple[str, ...], url: str) -> None:
        """Import the modules that jobs on a kind of store need, once for all jobs."""
        kind = (modules, url.partition(":")[0])
        if kind not in self._prepared:
            self.ask(op="prepare", path=sys.path, modules=modules, url=url)
            self._prepared.add(kind)

    @property
    def printed(self) -> int:
        """The number of bytes that the server and its children have written to stdout and stderr."""
        return os.fstat(self._errors.fileno()).st_size

    def errors(self, since: int = 0) -> str:
        """The end of what the server and its children have printed as errors: 4,000 bytes, and none before `since`."""
        # The processes write at the position that the file's descriptors share, so reading must not move it.
        start = max(since, self.printed - 4_000)
        return os.pread(self._errors.fileno(), 4_000, start).decode(errors="replace")

    def close(self) -> None:
        self._channel.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


@functools.cache
def shared_server() -> Server:
    """The fork server of this process, started at first use, and ended with the process."""
    server = Server()
    atexit.register(server.close)
    return server


class Worker:
    """A job in a process of its own."""

    def __init__(self, server: Server, module: str, job: str, arguments: JSONMessage) -> None:
        self._server = server
        self._job = job
        self._printed_before = server.printed
        ours, theirs = socket.socketpair()
        with theirs:
            # The server outlives tests, so the environment that a test has set is passed on with the request.
            request = {"module": module, "job": job, "arguments": arguments, "environment": dict(os.environ)}
            answer = server.ask(op="fork", **request, pass_on=[theirs.fileno()])
        self.pid: int = answer["pid"]
        self.status: int | None = None
        self.result: Any = None
        self._channel = Channel(ours)

    def tell(self, **facts: Any) -> None:
        try:
            self._channel.send(**facts)
        except BrokenPipeError:
            self.hear_out()
            raise self._failed("had ended before it could be told") from None

    def hear(self, timeout: float = PATIENCE) -> JSONMessage:
        """Wait for the next message of the worker. Raises WorkerFailed if it ends without one."""
        message = self._next(timeout)
        if message is None:
            raise self._failed("ended without a word")
        return message

    def finish(self, timeout: float = PATIENCE) -> Any:
        """Wait for the job's end, and return its result. Raises WorkerFailed if the worker sends another message."""
        message = self._next(timeout)
        if message is not None:
            raise self._failed(f"said {message} and not its result")
        if self.status != 0:
            raise self._failed("died")
        return self.result

    def hear_out(self, timeout: float = PATIENCE) -> list[JSONMessage]:
        """Wait for the worker's end, and return all its messages, even if it was killed."""
        messages = []
        while (message := self._next(timeout)) is not None:
            messages.append(message)
        return messages

    def hear_until(self, deadline: float) -> Iterator[JSONMessage]:
        """Yield the worker's messages until a time of `time.monotonic`, or until its end."""
        while self.status is None and (left := deadline - time.monotonic()) > 0:
            try:
                message = self._channel.receive(left)
            except TimeoutError:
                return
            if (heard := self._understood(message)) is not None:
                yield heard

    def kill(self) -> list[JSONMessage]:
        """End the process with SIGKILL, and return its messages that were not received yet."""
        self._end()
        messages = []
        while (message := self._channel.receive(PATIENCE)) is not None:
            if (last := self._understood(message)) is not None:
                messages.append(last)
        return messages

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def close(self) -> None:
        """End the process, if it has not ended. Its unread messages are lost."""
        self._channel.close()
        self._end()

    def _end(self) -> None:
        if self.status is None:
            self.status = self._server.ask(op="kill", pid=self.pid)["status"]

    def _next(self, timeout: float) -> JSONMessage | None:
        while self.status is None:
            try:
                message = self._channel.receive(timeout)
            except TimeoutError:
                self.kill()
                raise self._failed(f"said nothing for {timeout:g} seconds") from None
            if (heard := self._understood(message)) is not None:
                return heard
        return None

    def _understood(self, message: JSONMessage | None) -> JSONMessage | None:
        """Handle a result, a failure or the end of the worker. Any other message is returned, for the caller."""
        if self.status is None and (message is None or "error" in message):
            self.status = self._server.ask(op="reap", pid=self.pid)["status"]
        if message is None:
            return None
        if "error" in message:
            raise self._failed(f"raised\n{message['error']}")
        if "done" in message:
            self.result = message["done"]
            return None
        return message

    def _failed(self, how: str) -> WorkerFailed:
        return WorkerFailed(f"{self._job} (status {self.status}) {how}\n{self._server.errors(self._printed_before)}")


class Crew:
    """The workers of one test, which all use one store."""

    def __init__(self, url: str, modules: Sequence[str] = ()) -> None:
        self.url = url
        self._server = shared_server()
        self._server.prepare(tuple(modules), url)
        self._workers: list[Worker] = []

    def start(self, job: Job[P], *_none: P.args, **arguments: P.kwargs) -> Worker:
        """Run a job in a new process. Its arguments are keywords, and JSON."""
        worker = Worker(self._server, job.__module__, job.__name__, dict(arguments))
        self._workers.append(worker)
        return worker

    def together(self, workers: Sequence[Worker], head_start: float = 0.02) -> None:
        """Wait until all workers are ready, and let them go on at the same instant."""
        for worker in workers:
            assert worker.hear() == {"ready": True}
        instant = time.time() + head_start
        for worker in workers:
            worker.tell(at=instant)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        with ExitStack() as every_one:
            for worker in self._workers:
                every_one.callback(worker.close)
