"""The servers of one session of tests: installed ahead of it, started when asked for, stopped at its end."""

import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import unquote, urlsplit

import pytest

from tests.servers.base import Server, watchdog
from tests.servers.catalogue import SERVERS
from tests.servers.errors import ServerError
from tests.servers.seaweedfs import SeaweedServer

S = TypeVar("S", bound=Server)


def variable(server: str) -> str:
    """What names a server that is running already."""
    return f"LOCUS_TEST_{server.replace('-', '_').upper()}_URL"


class ServerPool:
    def __init__(self) -> None:
        self._folder: Path | None = None
        self._servers: dict[str, Server] = {}
        self._failed: dict[str, ServerError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def install(self, servers: list[str]) -> None:
        """Install these at once. What can't be installed fails the tests that use it, and no others."""
        missing = [server for server in servers if variable(server) not in os.environ]
        with ThreadPoolExecutor() as pool:
            for server, failure in zip(missing, pool.map(_try_to_install, missing), strict=True):
                if failure is not None:
                    self._failed[server] = failure

    def get(self, server: str, kind: type[S]) -> S:
        if server not in self._servers:
            self._servers[server] = self._provide(server, kind)
        found = self._servers[server]
        assert isinstance(found, kind)
        return found

    def add(self, server: str, create: Callable[[Path], S]) -> S:
        """One that stands on another of this session's: it is mended and stopped as all others are."""
        made = create(self._new_folder(server))
        made.start()
        self._servers[server] = made
        return made

    def _provide(self, server: str, kind: type[Server]) -> Server:
        if variable(server) in os.environ:
            return external(kind, os.environ[variable(server)])
        if server in self._failed:
            failure = self._failed[server]
            raise ServerError(f"{failure}\n{variable(server)} can name one that runs elsewhere.") from failure
        started = SERVERS[server].create(self._new_folder(server))
        started.start()
        return started

    def _new_folder(self, server: str) -> Path:
        """Not below pytest's own folder, which is closed to the user that some servers run as."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="locus-servers-"))
            self._folder.chmod(0o711)
            watchdog.remove_at_the_end(self._folder)
        return self._folder / server

    def mend(self) -> None:
        """Bring back what an earlier test has left paused or dead."""
        for server in self._servers.values():
            if server.is_paused:
                server.resume()
            if not server.is_running:
                server.restart()

    def log_tail(self, server: str) -> str:
        return self._servers[server].log_tail() if server in self._servers else "never started"


def _try_to_install(server: str) -> ServerError | None:
    try:
        SERVERS[server].install()
    except ServerError as error:
        return error
    return None


class External(Server):
    """A server that somebody else runs: it can be used, but not be stopped or killed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.port = urlsplit(url).port or 0

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_running(self) -> bool:
        return True

    @property
    def is_paused(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(port={self.port})"

    def stop(self) -> None:
        """It runs on."""

    def log_tail(self, lines: int = 40) -> str:
        return "kept elsewhere: the server was not started by the tests"

    def start(self) -> NoReturn:
        self._refuse()

    kill = restart = pause = resume = start

    def __getattr__(self, name: str) -> Any:
        self._refuse()

    def _refuse(self) -> NoReturn:
        pytest.skip("needs a server that the tests have started themselves")


class ExternalS3(External, SeaweedServer):
    """From `http://KEY:SECRET@host:port/bucket`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        place = parts.netloc.rpartition("@")[2]
        super().__init__(f"{parts.scheme}://{place}")
        self.access_key = unquote(parts.username or "")
        self._secret_key = unquote(parts.password or "")
        self.bucket = parts.path.strip("/")
        self.region = os.environ.get("AWS_REGION", "us-east-1")

    @property
    def secret_key(self) -> str:
        return self._secret_key


def external(kind: type[Server], url: str) -> Server:
    """An external server that is also one of this kind."""
    if kind is SeaweedServer:
        return ExternalS3(url)
    made: type[External] = type(f"External{kind.__name__}", (External, kind), {})
    return made(url)
