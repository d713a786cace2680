"""Every store that a campaign may use and hurt, each with a server of its own: `SITES["redis"](folder)`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from locus.testing.campaign.site import Site
from tests.soak.sites.embedded import FileSite, SQLiteSite
from tests.soak.sites.http import HTTPSite
from tests.soak.sites.mysql import MySQLSite
from tests.soak.sites.oci import OCISite
from tests.soak.sites.opensearch import OpenSearchSite
from tests.soak.sites.oracle import OracleSite
from tests.soak.sites.postgresql import PostgreSQLSite
from tests.soak.sites.redis import RedisClusterSite, RedisSite
from tests.soak.sites.s3 import S3Site

SITES: dict[str, Callable[[Path], Site]] = {
    "sqlite": SQLiteSite,
    "file": FileSite,
    "postgresql": PostgreSQLSite,
    "mysql": MySQLSite,
    "redis": RedisSite,
    "redis-cluster": RedisClusterSite,
    "opensearch": OpenSearchSite,
    "s3": S3Site,
    "oci": OCISite,
    "oracle": OracleSite,
    "http": HTTPSite,
}
