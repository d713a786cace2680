"""Fixtures for tests that need a real server: one server of each kind for the whole session.

A test that asks for such a fixture, directly or through another, gets the marker of the server, and one xdist
group with all others that use it: so only one worker starts it. A test that asks for it while it runs, by
`request.getfixturevalue`, says so with `@pytest.mark.server("valkey")`; and one that finds a server in another
way says its group with the marker: `@pytest.mark.redis("valkey")`.

`LOCUS_TEST_<NAME>_URL` names a server that is running already. A server that can't be had is a failure.
"""

import os
from collections.abc import Generator, Iterator

import pytest

from tests.servers.catalogue import SERVERS
from tests.servers.install import cache
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.pool import ServerPool, variable
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisCluster, RedisServer, ValkeyServer
from tests.servers.seaweedfs import SeaweedServer

# The slowest to start first: a test that uses several goes to the group of the first.
MARKERS = {
    "opensearch": "opensearch",
    "mysql": "mysql",
    "postgresql": "postgresql",
    "s3": "s3",
    "redis-cluster": "redis",
    "redis-stack": "redis",
    "valkey": "redis",
    "redis": "redis",
}
"""The marker of the tests of each server; their group has the server's name."""
FIXTURES = {
    "redis_cluster" if server == "redis-cluster" else f"{server.replace('-', '_')}_server": server for server in MARKERS
}
GROUPED = (*dict.fromkeys(MARKERS.values()), "oci", "http")
POOL = pytest.StashKey[ServerPool]()


@pytest.fixture(scope="session")
def server_pool(pytestconfig: pytest.Config) -> Iterator[ServerPool]:
    with pytestconfig.stash[POOL] as pool:
        yield pool


@pytest.fixture(scope="session")
def postgresql_server(server_pool: ServerPool) -> PostgreSQLServer:
    return server_pool.get("postgresql", PostgreSQLServer)


@pytest.fixture(scope="session")
def mysql_server(server_pool: ServerPool) -> MySQLServer:
    return server_pool.get("mysql", MySQLServer)


@pytest.fixture(scope="session")
def redis_server(server_pool: ServerPool) -> RedisServer:
    """Redis alone, as most have it."""
    return server_pool.get("redis", RedisServer)


@pytest.fixture(scope="session")
def redis_stack_server(server_pool: ServerPool) -> RedisServer:
    """Redis with the modules JSON and Search."""
    return server_pool.get("redis-stack", RedisServer)


@pytest.fixture(scope="session")
def valkey_server(server_pool: ServerPool) -> ValkeyServer:
    return server_pool.get("valkey", ValkeyServer)


@pytest.fixture(scope="session")
def redis_cluster(server_pool: ServerPool) -> RedisCluster:
    return server_pool.get("redis-cluster", RedisCluster)


@pytest.fixture(scope="session")
def opensearch_server(server_pool: ServerPool) -> OpenSearchServer:
    return server_pool.get("opensearch", OpenSearchServer)


@pytest.fixture(scope="session")
def s3_server(server_pool: ServerPool) -> SeaweedServer:
    return server_pool.get("s3", SeaweedServer)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[POOL] = ServerPool()
    config.addinivalue_line("markers", "server(name): asks for the fixture of this server while it runs")
    config.addinivalue_line("markers", "xdist_group(name): as xdist has it, for runs without xdist")


def pytest_report_header() -> str:
    given = [server for server in SERVERS if variable(server) in os.environ]
    told = f", given: {', '.join(given)}" if given else ""
    return f"servers: in {cache()}, where those that are missing are installed before the tests{told}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before xdist, which adds the groups to the names of the tests."""
    distributed = config.pluginmanager.hasplugin("xdist")
    for item in items:
        used = servers_of(item)
        for marker in {MARKERS[server] for server in used}:
            if item.get_closest_marker(marker) is None:
                item.add_marker(marker)
        group = group_of(item, used)
        if group and distributed and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def servers_of(item: pytest.Item) -> list[str]:
    """The servers whose fixtures a test uses, the slowest first."""
    names = getattr(item, "fixturenames", ())
    said = {mark.args[0] for mark in item.iter_markers("server")}
    return [server for fixture, server in FIXTURES.items() if fixture in names or server in said]


def group_of(item: pytest.Item, used: list[str]) -> str | None:
    marks = [mark for mark in map(item.get_closest_marker, GROUPED) if mark is not None]
    said = [str(mark.args[0]) for mark in marks if mark.args]
    return next(iter([*said, *used, *(mark.name for mark in marks)]), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Install here, where no timeout of a test is running."""
    items = getattr(session, "items", [])
    if not session.config.option.collectonly:
        used = {server for item in items for server in servers_of(item)}
        session.config.stash[POOL].install(sorted(used))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[POOL].mend()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        pool = item.config.stash[POOL]
        report.sections.extend((f"log of {server}", pool.log_tail(server)) for server in servers_of(item))
    return report
