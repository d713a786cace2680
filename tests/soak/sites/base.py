"""What all sites have in common: a thread in which everything happens to them, one thing after the other."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from locus.testing.campaign.site import Fault
from tests.servers.base import POLL, Server
from tests.servers.errors import ServerError
from tests.servers.proxy import Proxy
from tests.soak.faults.harm import Harm
from tests.soak.faults.network import SAVES, on_the_way
from tests.soak.faults.process import ServerKilled, ServerPaused

T = TypeVar("T")
S = TypeVar("S", bound=Server)

PATIENCE = 120.0
"""Seconds after which a store that was hurt has to be usable again."""


class ThreadedSite(ABC):
    """A store, and what happens to it. A campaign that stops waiting for a fault leaves nothing half done by it."""

    name: str

    def __init__(self, folder: Path) -> None:
        """What is in the folder is removed when the site is started."""
        self.folder = folder.absolute()
        self._hands: ThreadPoolExecutor | None = None
        self._versions = ""

    @abstractmethod
    def url(self) -> str:
        """What clients open."""

    @abstractmethod
    def direct_url(self) -> str:
        """What the checker opens."""

    @abstractmethod
    def harms(self) -> Sequence[Harm]:
        """What may be done to it, once it has been started."""

    @abstractmethod
    def set_up(self) -> None:
        """Start what the store needs."""

    @abstractmethod
    def take_down(self) -> None:
        """Stop it, in whatever state it is."""

    @abstractmethod
    def is_usable(self) -> bool:
        """Whether it can be used, right now."""

    @abstractmethod
    def find_versions(self) -> str:
        """What it runs, once it has been started."""

    def versions(self) -> str:
        return self._versions

    def faults(self) -> Sequence[Fault]:
        return [Strike(self, harm) for harm in self.harms()]

    async def start(self) -> None:
        self._hands = ThreadPoolExecutor(1, thread_name_prefix=f"site {self.name}")
        try:
            await self.carry_out(self._start)
        except BaseException:
            await self.stop()
            raise

    def _start(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.set_up()
        self.wait_until_usable()
        self._versions = self.find_versions()

    async def stop(self) -> None:
        if self._hands is not None:
            await self.carry_out(self.take_down)
            self._hands.shutdown()
            self._hands = None

    async def carry_out(self, action: Callable[[], T]) -> T:
        """In the thread of the site, after all that is under way there."""
        if self._hands is None:
            raise ServerError(f"{self.name} is not started")
        return await asyncio.get_running_loop().run_in_executor(self._hands, action)

    def wait_until_usable(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.is_usable():
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} is not usable after {PATIENCE:g} s\n{self.said()}")
            time.sleep(POLL)

    def said(self) -> str:
        """What helps to find out why it is not usable."""
        return ""


@dataclass(frozen=True)
class Strike:
    """One kind of harm to a site, as a campaign knows it."""

    site: ThreadedSite
    harm: Harm

    @property
    def name(self) -> str:
        return self.harm.name

    async def strike(self, rng: random.Random) -> int:
        return await self.site.carry_out(lambda: self._strike(rng))

    def _strike(self, rng: random.Random) -> int:
        count = self.harm.do(rng)
        self.site.wait_until_usable()
        return count


class ServerSite(ThreadedSite, Generic[S]):
    """A store on a server of its own, which clients reach through a proxy."""

    saves: Sequence[bytes] = SAVES
    """What a request contains that commits a save."""

    def __init__(self, folder: Path, server: S) -> None:
        super().__init__(folder)
        self.server = server
        self._proxy: Proxy | None = None

    @abstractmethod
    def url_at(self, port: int) -> str:
        """What opens the store, if the server is reached at this port."""

    @property
    def proxy(self) -> Proxy:
        if self._proxy is None:
            raise ServerError(f"{self.name} is not started")
        return self._proxy

    def url(self) -> str:
        return self.url_at(self.proxy.port)

    def direct_url(self) -> str:
        return self.url_at(self.server.port)

    def harms(self) -> Sequence[Harm]:
        return [
            ServerKilled([self.server], self.proxy),
            ServerPaused([self.server]),
            *on_the_way(self.proxy, self.saves),
        ]

    def set_up(self) -> None:
        self.server.start()
        self.check_durability()
        self._proxy = Proxy(self.server.port)
        self._proxy.start()

    def check_durability(self) -> None:
        """`ServerError` if the server acknowledges what is not on its disk."""

    def take_down(self) -> None:
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None
        self.server.stop()

    def is_usable(self) -> bool:
        return self.server.answers()

    def said(self) -> str:
        return self.server.log_tail()


def require(server: str, wanted: dict[str, str], found: dict[str, str]) -> None:
    """The settings that a server has to have."""
    wrong = {name: found.get(name) for name, value in wanted.items() if found.get(name) != value}
    if wrong:
        raise ServerError(f"{server} is not durable: {wrong}")


def at_port(url: str, port: int) -> str:
    """The same server, through another port of this machine."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{account}{at}127.0.0.1:{port}").geturl()
