"""The stand-in for OCI Object Storage, for tests: one a session, and a prefix of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.servers.oci.server import OCIServer


def quick_retries() -> Any:
    """A second try at once: what an outage is need not be found out for seconds, again and again."""
    from oci.retry import RetryStrategyBuilder  # type: ignore[import-untyped]

    return RetryStrategyBuilder(
        max_attempts=2, retry_base_sleep_time_seconds=0.01, decorrelated_jitter=0.01
    ).get_retry_strategy()


@pytest.fixture(scope="session")
def oci_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OCIServer]:
    """A server that is there for the whole session. Whoever makes it fail sets it right again."""
    with OCIServer(tmp_path_factory.mktemp("oci") / "server") as server:
        yield server


@pytest.fixture
def oci_faulty(oci_server: OCIServer) -> Iterator[OCIServer]:
    """The same server, for a test that makes it fail."""
    yield oci_server
    oci_server.fail()


@pytest.fixture
def oci_prefix() -> str:
    """A prefix that nothing is under yet."""
    return f"test-{uuid4().hex}/"
