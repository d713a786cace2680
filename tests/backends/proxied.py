"""Which laws need a proxy between the handles and the server."""

from __future__ import annotations

import pytest

from locus.testing.laws.durability.crash import CrashLaws
from locus.testing.laws.durability.outage import OutageLaws
from tests.servers.proxy import NoProxy, Proxy

BEHIND_THE_PROXY = {
    "test_a_saver_answers_nothing_that_could_not_be_found_out",
    "test_an_outage_is_an_error_in_every_process",
    *(name for laws in (OutageLaws, CrashLaws) for name in vars(laws) if name.startswith("test")),
}
"""Those that cut connections, or wait for those of the dead; it would only slow down the others."""


def is_behind_the_proxy(request: pytest.FixtureRequest) -> bool:
    return request.node.originalname in BEHIND_THE_PROXY


def proxy_for(request: pytest.FixtureRequest, port: int) -> Proxy:
    """To enter, as a proxy is; the port of the server itself, where the test does not need one."""
    return Proxy(port) if is_behind_the_proxy(request) else NoProxy(port)
