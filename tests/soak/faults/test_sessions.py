"""The server ends the sessions of its clients, and takes new ones."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.soak.faults.conversing import conversing
from tests.soak.faults.sessions import SessionsEnded
from tests.soak.sites.base import ServerSite, Strike
from tests.soak.sites.postgresql import PostgreSQLSite
from tests.soak.sites.redis import RedisSite, end_sessions


@pytest.mark.postgresql("sites")
def test_postgresql_ends_a_session(postgresql_site: PostgreSQLSite) -> None:
    with psycopg.connect(postgresql_site.server.url, autocommit=True) as connection:
        assert postgresql_site.end_sessions() >= 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


@pytest.mark.redis("sites")
def test_redis_ends_a_session(redis_site: RedisSite) -> None:
    with Redis(port=redis_site.server.port) as client:
        connection = client.connection_pool.get_connection()
        connection.connect()
        assert end_sessions(redis_site.server) >= 1
        with pytest.raises(RedisConnectionError):
            connection.read_response()
        connection.disconnect()


async def test_nothing_acknowledged_is_lost(server_site: ServerSite[Any], rng: random.Random) -> None:
    (ended,) = [harm for harm in server_site.harms() if isinstance(harm, SessionsEnded)]
    async with conversing(server_site.url()) as client:
        assert await Strike(server_site, ended).strike(rng) > 0
    await client.check(server_site.direct_url())
