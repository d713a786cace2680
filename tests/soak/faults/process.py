"""Harm to the process of a server: it is killed and started again, or stopped for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from tests.servers.base import Server
from tests.servers.proxy import Proxy
from tests.soak.faults.harm import Duration, Harm, Seconds

DOWN, STILL = Seconds(0.0, 0.5, 3.0), Seconds(1.0, 3.0, 30.0)


class ServerKilled(Harm):
    """SIGKILL for all its processes, and a new start on the same data and the same port."""

    name = "server killed"

    def __init__(self, servers: Sequence[Server], proxy: Proxy | None = None, down: Duration = DOWN) -> None:
        self._servers = servers
        self._proxy = proxy
        self._down = down

    def do(self, rng: random.Random) -> int:
        server = rng.choice(self._servers)
        # To its clients a proxy before a dead server looks like one that resets; a dead server refuses.
        refused = self._proxy if rng.random() < 0.5 else None
        try:
            server.kill()
            if refused is not None:
                refused.refuse()
            time.sleep(self._down.choose(rng))
        finally:
            server.start()
            if refused is not None:
                refused.accept()
        return 1


class ServerPaused(Harm):
    """SIGSTOP for all its processes, and SIGCONT: connections stay open, and nobody answers meanwhile."""

    name = "server stopped for a while"

    def __init__(self, servers: Sequence[Server], still: Duration = STILL) -> None:
        self._servers = servers
        self._still = still

    def do(self, rng: random.Random) -> int:
        server = rng.choice(self._servers)
        server.pause()
        try:
            time.sleep(self._still.choose(rng))
        finally:
            server.resume()
        return 1
