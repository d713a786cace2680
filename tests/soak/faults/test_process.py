"""A server that is killed comes back with its data; one that is stopped does not answer, and then does."""

from __future__ import annotations

import random
from typing import Any

import psutil

from tests.servers.base import Server
from tests.soak.faults.conversing import conversing
from tests.soak.faults.during import During
from tests.soak.faults.process import ServerKilled, ServerPaused
from tests.soak.sites.base import ServerSite, Strike


async def test_a_killed_server_is_another_process_on_the_same_data(
    server_site: ServerSite[Any], rng: random.Random
) -> None:
    server: Server = server_site.server
    before, port = server.pid, server.port
    down = During(lambda: psutil.pid_exists(before))
    async with conversing(server_site.url()) as client:
        assert await Strike(server_site, ServerKilled([server], server_site.proxy, down)).strike(rng) == 1
    assert down.seen == [False]
    assert server.is_running
    assert server.pid != before
    assert server.port == port
    await client.check(server_site.direct_url())


async def test_a_stopped_server_stands_still_and_goes_on(server_site: ServerSite[Any], rng: random.Random) -> None:
    server: Server = server_site.server
    main = psutil.Process(server.pid)

    def states() -> set[str]:
        return {process.status() for process in [main, *main.children(recursive=True)]}

    still = During(states)
    async with conversing(server_site.url()) as client:
        assert await Strike(server_site, ServerPaused([server], still)).strike(rng) == 1
    assert still.seen == [{psutil.STATUS_STOPPED}]
    assert psutil.STATUS_STOPPED not in states()
    await client.check(server_site.direct_url())
