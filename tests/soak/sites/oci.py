"""An OCI bucket on the stand-in for OCI Object Storage, in a process of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.servers.oci.faults import Fault, Kind
from tests.servers.oci.server import OCIServer
from tests.soak.faults.harm import Duration, Harm, Seconds
from tests.soak.sites.base import ServerSite

NAMES: dict[Kind, str] = {
    "answer": "service answers 503, 500 or 429",
    "late": "service answers 503 after the commit",
    "lost": "service hangs up after the commit",
    "half": "service hangs up in the middle of its answer",
    "unread": "service resets in the middle of a request",
}
STATUSES = ((503, "ServiceUnavailable"), (500, "InternalServerError"), (429, "TooManyRequests"))

LASTING = Seconds(0.2, 1.0)


class ServiceFails(Harm):
    """The service fails by itself, as a large one does at times."""

    def __init__(self, server: OCIServer, kind: Kind, lasting: Duration = LASTING) -> None:
        self._server = server
        self._kind = kind
        self._lasting = lasting
        self.name = NAMES[kind]

    def do(self, rng: random.Random) -> int:
        times = rng.randint(1, 5)
        status, code = rng.choice(STATUSES) if self._kind == "answer" else STATUSES[0]
        self._server.counts(reset=True)
        self._server.fail(Fault(self._kind, times, status=status, code=code))
        try:
            time.sleep(self._lasting.choose(rng))
        finally:
            self._server.fail()
        # Every request was met by a fault, as long as there were any left.
        return min(times, sum(self._server.counts().values()))


class OCISite(ServerSite[OCIServer]):
    name = "oci"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, OCIServer(folder / "server", durable=True))

    def url_at(self, port: int) -> str:
        return self.server.url_of("soak/", port)

    def harms(self) -> Sequence[Harm]:
        return [*super().harms(), *(ServiceFails(self.server, kind) for kind in NAMES)]

    def find_versions(self) -> str:
        return "a stand-in for OCI Object Storage"
