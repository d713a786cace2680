"""What all servers have in common: they are started, asked whether they answer, stopped, killed and paused."""

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil

from tests.servers.errors import ServerError
from tests.servers.ordinary_user import as_ordinary_user, give_to_ordinary_user
from tests.servers.ports import free_port
from tests.servers.watchdog import Watchdog

POLL = 0.02


class Server(ABC):
    """One server on loopback. Its data and its log stay in `folder`, also when it is killed.

    Not durable means: nothing waits for the disk. What was acknowledged survives the death of the process in
    any case, though not that of the machine.
    """

    name: ClassVar[str]
    start_seconds: ClassVar[float] = 180
    stop_seconds: ClassVar[float] = 20
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    refuses_root: ClassVar[bool] = False
    """Runs as `nobody` if we are root."""

    def __init__(self, folder: Path, durable: bool = False) -> None:
        self.folder = folder.absolute()
        self.durable = durable
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._paused = False

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect to, with the credentials if there are any."""

    @classmethod
    @abstractmethod
    def install(cls) -> Path:
        """Install the server into the cache unless it is there, and return its folder."""

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The server's command line, for a process in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether a request gets its answer, right now."""

    def prepare(self) -> None:
        """Create what the first start needs."""

    def clean_up(self) -> None:
        """Remove what an ended process leaves outside of its folder."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_paused(self) -> bool:
        return self._paused

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self.port}, folder={str(self.folder)!r})"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it answers. The first start creates the data."""
        if self.is_running:
            raise ServerError(f"{self.name} is running already")
        self.stop()
        self.install()
        if not self.data.exists():
            self._create_data()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._as_user(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=self.environment(),
                start_new_session=True,
            )
        watchdog.watch(self._process.pid)
        _running.add(self)
        try:
            self._wait_for_answer()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, and insist after a while. Does nothing if it does not run."""
        if self._process is None:
            return
        processes = self._tree()
        if processes:
            _send(processes[0], self.stop_signal)
            for process in processes if self._paused else ():
                _send(process, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self.stop_seconds)
        self._end(processes)

    def kill(self) -> None:
        """SIGKILL, for all its processes at once. The data stay as they are."""
        if self._process is not None:
            self._end(self._frozen_tree())

    def restart(self) -> None:
        """On the same port and with the same data, after a kill or a stop or right out of its work."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nobody answers."""
        tree = self._frozen_tree()
        self._paused = True
        deadline = time.monotonic() + self.stop_seconds
        while not all(map(_stands_still, tree)):  # a process that is busy stops a moment later
            if time.monotonic() > deadline:
                raise RuntimeError(f"{type(self).__name__} did not stop")
            time.sleep(POLL)

    def resume(self) -> None:
        self._paused = False
        for process in reversed(self._tree()):
            process.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 40) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def run(self, *command: str | Path) -> None:
        """Run one of the server's own tools to its end, as the server's user."""
        done = subprocess.run(
            self._as_user(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env=self.environment(),
        )
        with self.log.open("a", encoding="utf-8") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode != 0:
            tool = Path(command[0]).name
            raise ServerError(f"{self.name}: {tool} ended with {done.returncode}:\n{self.log_tail()}")

    def secret(self, name: str) -> str:
        """A password that stays the same for the same data."""
        file = self.folder / name
        if not file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(secrets.token_hex(12), encoding="ascii")
            self.own(file)
        return file.read_text(encoding="ascii")

    def own(self, path: Path) -> None:
        """Hand a folder or file to the user that the server runs as."""
        if self.refuses_root:
            give_to_ordinary_user(path)

    def _create_data(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(mode=0o700)
        try:
            self.own(self.data)
            self.prepare()
        except BaseException:
            # Half a database would be taken for a whole one by the next start.
            shutil.rmtree(self.data, ignore_errors=True)
            raise

    def _as_user(self, command: Sequence[str | Path]) -> list[str]:
        words = [str(word) for word in command]
        return as_ordinary_user(words, self.folder, Path(words[0])) if self.refuses_root else words

    def _wait_for_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.start_seconds
        while not self.answers():
            if self._process.poll() is not None:
                raise ServerError(f"{self.name} ended with {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} does not answer after {self.start_seconds} s:\n{self.log_tail()}")
            time.sleep(POLL)

    def _tree(self) -> list[psutil.Process]:
        """The main process, and all below it: PostgreSQL's are in groups of their own."""
        try:
            main = psutil.Process(self.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _frozen_tree(self) -> list[psutil.Process]:
        """Stops the main process first, so that no child is born unseen."""
        for main in self._tree()[:1]:
            _send(main, signal.SIGSTOP)
        tree = self._tree()
        for child in tree[1:]:
            _send(child, signal.SIGSTOP)
        return tree

    def _end(self, processes: list[psutil.Process]) -> None:
        assert self._process is not None
        for process in processes:
            _send(process, signal.SIGKILL)
        self._process.wait(self.stop_seconds)
        # Orphans have to be gone, too: PostgreSQL does not start beside its own remains.
        deadline = time.monotonic() + self.stop_seconds
        while any(_lives(process) for process in processes) and time.monotonic() < deadline:
            time.sleep(POLL)
        watchdog.forget(self._process.pid)
        _running.discard(self)
        self._process = None
        self._paused = False
        self.clean_up()


def _send(process: psutil.Process, what: signal.Signals) -> None:
    """A process that is gone meanwhile needs no signal."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(what)


def _stands_still(process: psutil.Process) -> bool:
    return not _lives(process) or process.status() == psutil.STATUS_STOPPED


def _lives(process: psutil.Process) -> bool:
    """A zombie has let go of everything but its number, which it keeps until its parent looks."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


watchdog = Watchdog()
_running: "weakref.WeakSet[Server]" = weakref.WeakSet()


def _stop_all() -> None:
    for server in list(_running):
        if server._owner == os.getpid():
            server.stop()
    watchdog.close()


atexit.register(_stop_all)
