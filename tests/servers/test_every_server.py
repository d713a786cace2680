"""Every server answers, keeps what it acknowledged when it is killed, and stands still when it is paused."""

import socket
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psutil
import pytest

from tests.servers import probes
from tests.servers.base import Server
from tests.servers.fixtures import FIXTURES
from tests.servers.probes import Probe
from tests.servers.redis import RedisCluster

PROBES: dict[str, Callable[[Any], Probe]] = {
    "postgresql_server": probes.postgresql,
    "mysql_server": probes.mysql,
    "redis_server": probes.redis,
    "redis_stack_server": probes.redis_stack,
    "valkey_server": probes.redis,
    "redis_cluster": probes.redis_cluster,
    "opensearch_server": probes.opensearch,
    "s3_server": probes.s3,
}
every_server = pytest.mark.parametrize(
    "fixture", [pytest.param(name, marks=pytest.mark.server(FIXTURES[name])) for name in PROBES]
)


def test_every_server_has_a_probe() -> None:
    assert set(PROBES) == set(FIXTURES)


@pytest.mark.timeout(300)  # starts the server twice
@every_server
def test_a_kill_loses_nothing(fixture: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(fixture)
    probe, value = PROBES[fixture](server), uuid4().hex
    probe.put(value)
    server.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)
    server.restart()
    assert probe.get() == value


STOPPED = {psutil.STATUS_STOPPED}


@every_server
def test_a_pause_stops_all_processes_and_ends(fixture: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(fixture)
    server.pause()
    try:
        # A process that waits for a processor stops when it gets one; one that has just ended, for a connection that
        # was closed, stays a zombie until its parent goes on.
        end = time.monotonic() + 20
        while (found := {process.status() for process in processes_of(server)} - {psutil.STATUS_ZOMBIE}) != STOPPED:
            assert time.monotonic() < end, found
            time.sleep(0.01)
    finally:
        server.resume()
    assert server.answers()


def processes_of(server: Server) -> list[psutil.Process]:
    mains = [psutil.Process(one.pid) for one in (server.nodes if isinstance(server, RedisCluster) else [server])]
    return [*mains, *(child for main in mains for child in main.children(recursive=True))]
