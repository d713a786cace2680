"""Which pages of the documentation need a server, and what their blocks find in the environment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.servers.base import Server
from tests.servers.fixtures import FIXTURES
from tests.servers.oci.server import OCIServer
from tests.servers.oracle.server import ADMIN, OracleServer
from tests.servers.seaweedfs import SeaweedServer


def url_as(name: str) -> Callable[[Server], dict[str, str]]:
    return lambda server: {name: server.url}


def s3_settings(server: SeaweedServer) -> dict[str, str]:
    return {
        "S3_ENDPOINT_URL": server.url,
        "S3_BUCKET": server.bucket,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": server.region,
    }


def oci_settings(server: OCIServer) -> dict[str, str]:
    return {
        "OCI_CONFIG_FILE": str(server.config_file),
        "OCI_SERVICE_ENDPOINT": server.endpoint,
        "OCI_NAMESPACE": server.namespace,
        "OCI_BUCKET": server.bucket,
    }


def oracle_settings(server: OracleServer) -> dict[str, str]:
    return {"ORACLE_DSN": server.dsn, "ORACLE_USER": ADMIN, "ORACLE_PASSWORD": server.password}


NEEDS: dict[str, dict[str, Callable[[Any], dict[str, str]]]] = {
    "docs/backends/postgresql.md": {"postgresql_server": url_as("POSTGRESQL_URL")},
    "docs/backends/mysql.md": {"mysql_server": url_as("MYSQL_URL")},
    "docs/backends/redis.md": {
        "redis_server": url_as("REDIS_URL"),
        "redis_stack_server": url_as("REDIS_STACK_URL"),
        "valkey_server": url_as("VALKEY_URL"),
    },
    "docs/backends/opensearch.md": {"opensearch_server": url_as("OPENSEARCH_URL")},
    "docs/backends/s3.md": {"s3_server": s3_settings},
    "docs/backends/oci.md": {"oci_server": oci_settings},
    "docs/backends/oracle.md": {"postgresql_server": lambda server: {}, "oracle_server": oracle_settings},
}
"""By page, the fixtures that it needs, and the variables that each of them sets."""

WITH_CREWAI = "docs/integrations/crewai.md"
"""The page whose blocks need CrewAI, which is not in `.venv`."""

ELSEWHERE = {"docs/backup.md": "tests/backends/test_backup.py", WITH_CREWAI: "tests/integrations/crewai/test_page.py"}
"""Pages whose blocks need several servers and programs, or another environment, and the test that runs them."""

SERVING = ("README.md", "docs/server.md", "docs/backends/http.md")
"""Pages that start `locus serve`, on a port that only one of them can have at a time."""


def with_needs(document: str) -> Any:
    """The page as a parameter of a test, with the servers that it needs: they choose its group."""
    servers = [FIXTURES[fixture] for fixture in NEEDS.get(document, {}) if fixture in FIXTURES]
    marks = [pytest.mark.server(server) for server in servers]
    if document in SERVING:
        marks.append(pytest.mark.http("serve"))
    return pytest.param(document, marks=marks)


@contextmanager
def environment_of(document: str, request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for fixture, settings in NEEDS.get(document, {}).items():
            for name, value in settings(request.getfixturevalue(fixture)).items():
                patch.setenv(name, value)
        yield
