"""OpenSearch, one node, whose log of changes is on its disk before it answers."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.servers.opensearch import OpenSearchServer
from tests.soak.sites.base import ServerSite, require

PROBE = "probe-of-durability"


class OpenSearchSite(ServerSite[OpenSearchServer]):
    name = "opensearch"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, OpenSearchServer(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return f"opensearch://127.0.0.1:{port}/locus-soak?replicas=0"

    def check_durability(self) -> None:
        """What an index has that is created without a word about it."""
        self._ask("PUT", PROBE)
        said = self._ask("GET", f"{PROBE}/_settings?include_defaults=true&flat_settings=true")[PROBE]
        self._ask("DELETE", PROBE)
        name = "index.translog.durability"
        require("OpenSearch", {name: "REQUEST"}, {name: str((said["defaults"] | said["settings"])[name]).upper()})

    def find_versions(self) -> str:
        return f"OpenSearch {self._ask('GET', '')['version']['number']}"

    def _ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(f"{self.server.url}/{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
