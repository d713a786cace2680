"""What happens on the way really happens, and the way is free afterwards."""

from __future__ import annotations

import random
import socket
import time
from typing import Any, Literal

import pytest

from locus.errors import BackendUnavailableError
from tests.soak.faults.conversing import conversing, greeting, opened
from tests.soak.faults.during import During
from tests.soak.faults.harm import Harm, Seconds
from tests.soak.faults.network import (
    AnswersDropped,
    ConnectionsRefused,
    ConnectionsReset,
    CutAfterBytes,
    Delayed,
)
from tests.soak.sites.base import ServerSite, Strike

ONCE = {"postgresql": "retry_seconds=0", "redis": "retries=0"}
"""What makes a client say at once that it has lost its connection."""


async def struck(site: ServerSite[Any], harm: Harm, rng: random.Random) -> int:
    """While a client saves: nothing that it was told is lost."""
    async with conversing(site.url()) as client:
        count = await Strike(site, harm).strike(rng)
    await client.check(site.direct_url())
    return count


@pytest.mark.parametrize("direction", ["to_server", "from_server"])
async def test_connections_are_cut_in_the_middle(
    server_site: ServerSite[Any], rng: random.Random, direction: Literal["to_server", "from_server"]
) -> None:
    assert await struck(server_site, CutAfterBytes(server_site.proxy, direction), rng) > 0


async def test_connections_are_reset(server_site: ServerSite[Any], rng: random.Random) -> None:
    assert await struck(server_site, ConnectionsReset(server_site.proxy, Seconds(0.01, 0.02)), rng) > 0


async def test_new_connections_are_refused(server_site: ServerSite[Any], rng: random.Random) -> None:
    proxy = server_site.proxy

    def is_refused() -> bool:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port))
        return True

    lasting = During(is_refused)
    assert await struck(server_site, ConnectionsRefused(proxy, lasting), rng) == 1
    assert lasting.seen == [True]


@pytest.mark.redis("sites")
async def test_data_are_held_back(redis_site: ServerSite[Any], rng: random.Random) -> None:
    def ask() -> float:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", redis_site.proxy.port)) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b"+PONG\r\n"
        return time.monotonic() - began

    lasting = During(ask)
    assert await struck(redis_site, Delayed(redis_site.proxy, Seconds(0.1, 0.1), lasting), rng) == 1
    assert isinstance(lasting.seen[0], float)
    assert lasting.seen[0] >= 0.2


async def test_the_answer_is_lost_and_the_save_is_stored(server_site: ServerSite[Any], rng: random.Random) -> None:
    """To a client that does not ask again, a save failed that is there."""
    url = server_site.url()
    impatient = f"{url}{'&' if '?' in url else '?'}{ONCE[server_site.name]}"
    thread_id = f"unanswered {rng.random()}"
    state = greeting("unanswered")
    async with opened(impatient) as checkpointer:
        await checkpointer.save(greeting("answered"), thread_id, "answered")
        server_site.proxy.drop_answers(1, server_site.saves)
        with pytest.raises(BackendUnavailableError):
            await checkpointer.save(state, thread_id, "unanswered")
        assert server_site.proxy.wait_for_dropped_answers(0) == 1
        server_site.proxy.accept()
    async with opened(server_site.direct_url()) as reader:
        assert await reader.load(thread_id, "unanswered") == state


async def test_answers_are_lost_and_no_save_is(server_site: ServerSite[Any], rng: random.Random) -> None:
    assert await struck(server_site, AnswersDropped(server_site.proxy, server_site.saves), rng) > 0


@pytest.mark.redis("sites")
async def test_without_traffic_nothing_happens(
    redis_site: ServerSite[Any], rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is counted."""
    monkeypatch.setattr("tests.soak.faults.network.PATIENCE", 0.01)
    proxy = redis_site.proxy
    harms: list[Harm] = [AnswersDropped(proxy), CutAfterBytes(proxy, "to_server"), ConnectionsReset(proxy)]
    assert [harm.do(rng) for harm in harms] == [0, 0, 0]
