"""Servers that are reached over TLS: who has the authority's certificate gets in, who has not is told why.

PgBouncer speaks TLS itself, as PostgreSQL does in its protocol; Redis, OpenSearch, S3 and `locus serve` stand behind a
proxy that ends TLS for them, as they do in many places. MySQL's own TLS is tested with its connections.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import BackendUnavailableError, ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.backends import HTTPCheckpointer, S3Backend, opensearch_checkpointer, s3_checkpointer
from locus.memory.backends.http import client as http_client
from locus.memory.checkpointer import BaseCheckpointer
from tests.backends.s3.store import set_credentials
from tests.server.running import serving
from tests.servers.opensearch import OpenSearchServer
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgresql import PostgreSQLServer
from tests.servers.proxy import Proxy
from tests.servers.redis import RedisServer
from tests.servers.seaweedfs import SeaweedServer
from tests.servers.tls import server_context, write_certificate

Encrypted = Callable[[int], AbstractContextManager[Proxy]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    write_certificate(file)
    return file


@pytest.fixture
def encrypted(certificate: Path) -> Encrypted:
    return lambda port: Proxy(port, tls=server_context(certificate))


async def assert_keeps(trusting: BaseCheckpointer) -> None:
    state = AgentState(agent_id="a").with_message(Message.user("a long text " * 20_000))
    async with trusting:
        saved = await trusting.save(state, "t")
        assert await trusting.load("t", saved) == state
        assert await trusting.delete("t")


async def assert_refuses(stranger: BaseCheckpointer, *hidden: str) -> None:
    async with stranger:
        with pytest.raises(BackendUnavailableError, match=r"(?i)certificate") as told:
            await stranger.load("t")
    for secret in hidden:
        assert secret not in str(told.value)


async def test_redis(redis_server: RedisServer, encrypted: Encrypted, certificate: Path) -> None:
    prefix = f"tls-{secrets.token_hex(6)}:"
    with encrypted(redis_server.port) as proxy:
        url = urlsplit(redis_server.url)
        place = url._replace(scheme="rediss", netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}")).geturl()
        await assert_keeps(get_checkpointer(place, prefix=prefix, ssl_ca_certs=str(certificate)))
        await assert_refuses(get_checkpointer(place, prefix=prefix, retries=0), url.password or place)


async def test_opensearch(opensearch_server: OpenSearchServer, encrypted: Encrypted, certificate: Path) -> None:
    with encrypted(opensearch_server.port) as proxy:
        options: dict[str, Any] = {"hosts": [f"https://127.0.0.1:{proxy.port}"], "index_name": "locus-tls"}
        await assert_keeps(opensearch_checkpointer(**options, ca_certs=str(certificate)))
        await assert_refuses(opensearch_checkpointer(**options))


@pytest.fixture
def https_bucket(
    s3_server: SeaweedServer, encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    set_credentials(s3_server, monkeypatch)
    with encrypted(s3_server.port) as proxy:
        yield {"bucket": s3_server.bucket, "prefix": "tls", "endpoint_url": f"https://127.0.0.1:{proxy.port}"}


async def test_s3(
    https_bucket: dict[str, Any], s3_server: SeaweedServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await assert_refuses(s3_checkpointer(**https_bucket, max_retries=0), s3_server.secret_key)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    await assert_keeps(s3_checkpointer(**https_bucket))


def test_an_authority_that_is_no_file_is_told_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere/authority.pem")
    with pytest.raises(ConfigurationError, match=r"AWS_CA_BUNDLE.*'/nowhere/authority.pem'"):
        S3Backend("bucket")


@pytest.fixture
def authorities_anew() -> Iterator[None]:
    http_client.tls.cache_clear()
    yield
    http_client.tls.cache_clear()


@pytest.mark.http
@pytest.mark.usefixtures("authorities_anew")
async def test_a_server_of_ours(
    tmp_path: Path, encrypted: Encrypted, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, "memory") as server, encrypted(server.port) as proxy:
        url = f"https://127.0.0.1:{proxy.port}"
        await assert_refuses(HTTPCheckpointer(url, timeout=5.0))
        http_client.tls.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await assert_keeps(HTTPCheckpointer(url))


async def test_postgresql_behind_pgbouncer(postgresql_server: PostgreSQLServer, certificate: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="locus-tls-") as folder:
        Path(folder).chmod(0o711)
        bouncer = PgBouncerServer(
            Path(folder) / "pgbouncer", postgresql_server, certificate=certificate.read_text(encoding="ascii")
        )
        with bouncer:
            place = f"{bouncer.url}?table_name=tls&prepared_statements=off&sslmode=verify-full"
            await assert_keeps(get_checkpointer(f"{place}&sslrootcert={certificate}"))
            password = postgresql_server.secret("password")
            await assert_refuses(get_checkpointer(f"{place}&sslrootcert=system&retry_seconds=0"), password)
