"""Redis that writes to its disk before it answers: alone, and three masters that share the slots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redis import Redis

from tests.servers.redis import RedisCluster, RedisServer
from tests.soak.faults.harm import Harm
from tests.soak.faults.process import ServerKilled, ServerPaused
from tests.soak.faults.sessions import SessionsEnded
from tests.soak.sites.base import ServerSite, at_port, require


def end_sessions(server: RedisServer) -> int:
    return int(server.ask("CLIENT KILL TYPE normal SKIPME yes"))


def check_durability(server: RedisServer) -> None:
    wanted = {"appendonly": "yes", "appendfsync": "always"}
    with Redis(port=server.port, decode_responses=True) as client:
        require("Redis", wanted, client.config_get(*wanted))


def version(server: RedisServer) -> str:
    said = server.ask("INFO server").decode().splitlines()
    return next(line.partition(":")[2] for line in said if line.startswith("redis_version:"))


class RedisSite(ServerSite[RedisServer]):
    name = "redis"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, RedisServer(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return at_port(self.server.url, port)

    def harms(self) -> Sequence[Harm]:
        return [*super().harms(), SessionsEnded(lambda: end_sessions(self.server))]

    def check_durability(self) -> None:
        check_durability(self.server)

    def find_versions(self) -> str:
        return f"Redis {version(self.server)}, appendfsync always"


class RedisClusterSite(ServerSite[RedisCluster]):
    """Its nodes name each other, so no proxy can stand between; one of them at a time is hurt."""

    name = "redis-cluster"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, RedisCluster(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return f"{at_port(self.server.url, port)}?cluster=true&buckets=32"

    def url(self) -> str:
        return self.direct_url()

    def set_up(self) -> None:
        self.server.start()
        for node in self.server.nodes:
            check_durability(node)

    def harms(self) -> Sequence[Harm]:
        nodes = self.server.nodes
        return [ServerKilled(nodes), ServerPaused(nodes), SessionsEnded(self.end_sessions)]

    def end_sessions(self) -> int:
        return sum(end_sessions(node) for node in self.server.nodes)

    def find_versions(self) -> str:
        return f"Redis {version(self.server.nodes[0])}, three masters, appendfsync always"
