"""The contract, kept by MySQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from locus.testing import REQUIRED
from locus.testing.contract import DurableContract, StallLaws
from tests.backends.effort import FewerRepetitions
from tests.backends.mysql.stores import MySQLStore, drop_tables, new_name
from tests.backends.proxied import proxy_for
from tests.servers.mysql import MySQLServer
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.mysql


@pytest.fixture
def proxy(mysql_server: MySQLServer, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    with proxy_for(request, mysql_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def used_tables(mysql_server: MySQLServer) -> Iterator[str]:
    """Made once: creating tables takes MySQL longer than most of these tests."""
    name = new_name()
    yield name
    drop_tables(mysql_server.url, name)


class TestMySQL(FewerRepetitions, DurableContract, StallLaws):
    required = REQUIRED["mysql"]
    commits_together = True

    @pytest.fixture
    def store(
        self, mysql_server: MySQLServer, proxy: Proxy, used_tables: str, request: pytest.FixtureRequest
    ) -> Iterator[MySQLStore]:
        # Those that are about a store that is not there yet get one.
        is_new = "new_store" in request.node.name or "first_uses" in request.node.name
        store = MySQLStore(mysql_server.url, proxy, new_name() if is_new else used_tables)
        yield store
        store.proxy.accept()
        if is_new:
            drop_tables(mysql_server.url, store.table_name)
        else:
            store.empty()
