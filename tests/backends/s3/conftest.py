"""S3 servers for these tests: SeaweedFS, and moto, which knows S3's own corners and error bodies."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from locus.extras import require
from locus.memory.backends.s3.backend import S3Backend
from tests.servers.ports import free_port


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def moto_backend(moto_url: str) -> S3Backend:
    """A fresh bucket of moto's, which takes any credentials."""
    bucket = f"locus-{secrets.token_hex(6)}"
    client = (
        require("botocore.session", "s3")
        .get_session()
        .create_client(
            "s3", endpoint_url=moto_url, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s"
        )
    )
    client.create_bucket(Bucket=bucket)
    client.close()
    return moto_backend_of(moto_url, bucket)


def moto_backend_of(url: str, bucket: str) -> S3Backend:
    return S3Backend(
        bucket, endpoint_url=url, region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s"
    )
