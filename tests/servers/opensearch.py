"""OpenSearch 2.5, from a package for npm that has the official archive, on a Java of the machine.

The program is started without its shell scripts: these start Java three times, and write into their own folder.
"""

import json
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.base import Server
from tests.servers.install import OPENSEARCH, OPENSEARCH_SHA512, installed, npm_package
from tests.servers.java import find_java
from tests.servers.ports import free_port

JAVA_VERSIONS = range(11, 22)
JAVA_OPTIONS = [
    "-Xms512m", "-Xmx512m", "-Xss1m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
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
    start_seconds = 120

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        self._transport = free_port()

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
        settings = {
            "cluster.name": "locus",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": self._transport,
            "discovery.type": "single-node",
            "path.data": str(self.data / "nodes"),
            "path.logs": str(self._scratch),
            "path.repo": [str(self.snapshots)],
            # A full disk of the machine is not what is tested.
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
        # JSON is YAML, too.
        (self._settings / "opensearch.yml").write_text(json.dumps(settings, indent=2), encoding="utf-8")
        (self._settings / "log4j2.properties").write_text(LOGGING, encoding="utf-8")

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
            java, *JAVA_OPTIONS, *allowed, *scratch, *places,
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


def download(part: Path) -> None:
    npm_package(OPENSEARCH, OPENSEARCH_SHA512, part)
    # The security plugin would ask for certificates; nothing needs the others.
    plugins = part / "package" / "target" / "plugins"
    shutil.rmtree(plugins)
    plugins.mkdir()
