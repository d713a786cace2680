"""OpenSearch 2.5, alone and with three nodes, from a package for npm that has the official archive, on a Java of the
machine.

The program is started without its shell scripts: these start Java three times, and write into their own folder.
"""

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.servers.base import Server
from tests.servers.install import OPENSEARCH, OPENSEARCH_SHA512, installed, npm_package
from tests.servers.java import find_java
from tests.servers.ports import free_port

JAVA_VERSIONS = range(11, 22)
JAVA_OPTIONS = [
    "-Xss1m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
    "-Djava.awt.headless=true", "-Dfile.encoding=UTF-8", "-Djna.nosys=true",
    "-Dio.netty.noUnsafe=true", "-Dio.netty.noKeySetOptimization=true", "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dio.netty.allocator.numDirectArenas=0", "-Dlog4j.shutdownHookEnabled=false", "-Dlog4j2.disable.jmx=true",
    "-Djava.locale.providers=SPI,COMPAT", "-Dopensearch.distribution.type=tar", "-Dopensearch.bundled_jdk=false",
]  # fmt: skip
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d{ISO8601}][%-5p][%-25c{1.}] %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


class OpenSearchServer(Server):
    """A single node without plugins: no TLS and no users. It waits for the disk, durable or not."""

    name = "opensearch"
    refuses_root = True
    start_seconds = 300
    heap: ClassVar[str] = "512m"

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        self.transport = free_port()

    @classmethod
    def install(cls) -> Path:
        find_java(JAVA_VERSIONS)
        return installed("opensearch-2.5.0", download)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        for folder in (self._settings, self._scratch, self.snapshots):
            folder.mkdir()
            self.own(folder)
        # JSON is YAML, too.
        (self._settings / "opensearch.yml").write_text(json.dumps(self.settings(), indent=2), encoding="utf-8")
        (self._settings / "log4j2.properties").write_text(LOGGING, encoding="utf-8")

    def settings(self) -> dict[str, Any]:
        return {
            "cluster.name": "locus",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": self.transport,
            "discovery.type": "single-node",
            "path.data": str(self.data / "nodes"),
            "path.logs": str(self._scratch),
            "path.repo": [str(self.snapshots)],
            # A full disk of the machine is not what is tested.
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }

    @property
    def _settings(self) -> Path:
        return self.data / "config"

    @property
    def snapshots(self) -> Path:
        """Where repositories of snapshots may be."""
        return self.data / "snapshots"

    @property
    def _scratch(self) -> Path:
        return self.data / "scratch"

    def command(self) -> list[str | Path]:
        home = self.install() / "package" / "target"
        places = [f"-Dopensearch.path.home={home}", f"-Dopensearch.path.conf={self._settings}"]
        java, version = find_java(JAVA_VERSIONS)
        allowed = ["-Djava.security.manager=allow"] if version >= 18 else []
        scratch = [f"-Djava.io.tmpdir={self._scratch}", f"-XX:ErrorFile={self._scratch}/java-error.log"]
        return [
            java, f"-Xms{self.heap}", f"-Xmx{self.heap}", *JAVA_OPTIONS, *allowed, *scratch, *places,
            "-cp", f"{home}/lib/*", "org.opensearch.bootstrap.OpenSearch",
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._scratch), "OPENSEARCH_TMPDIR": str(self._scratch)}

    def answers(self) -> bool:
        question = f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s"
        try:
            with urllib.request.urlopen(question, timeout=3) as response:
                return json.load(response)["status"] in ("yellow", "green")
        except (urllib.error.URLError, OSError):
            return False


class OpenSearchNode(OpenSearchServer):
    """One of several. It answers when most of them run."""

    name = "opensearch-node"
    heap = "384m"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.peers: Sequence[OpenSearchNode] = ()

    @property
    def node_name(self) -> str:
        return self.folder.name

    def settings(self) -> dict[str, Any]:
        alone = super().settings()
        del alone["discovery.type"]
        return {
            **alone,
            "node.name": self.node_name,
            "discovery.seed_hosts": [f"127.0.0.1:{node.transport}" for node in self.peers],
            "cluster.initial_cluster_manager_nodes": [node.node_name for node in self.peers],
        }


class OpenSearchCluster:
    """Three nodes, each of which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [OpenSearchNode(folder / f"node-{number}") for number in range(3)]
        for node in self.nodes:
            node.peers = self.nodes

    def __enter__(self) -> Self:
        with ThreadPoolExecutor() as threads:
            list(threads.map(OpenSearchNode.start, self.nodes))
        return self

    def __exit__(self, *failure: object) -> None:
        for node in self.nodes:
            node.kill()

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def node(self, name: str) -> OpenSearchNode:
        return next(node for node in self.nodes if node.node_name == name)


def download(part: Path) -> None:
    npm_package(OPENSEARCH, OPENSEARCH_SHA512, part)
    # The security plugin would ask for certificates; nothing needs the others.
    plugins = part / "package" / "target" / "plugins"
    shutil.rmtree(plugins)
    plugins.mkdir()
