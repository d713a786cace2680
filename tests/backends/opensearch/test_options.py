"""The options of the OpenSearch backend: what is refused, what URLs mean, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.backends import OpenSearchBackend, StorageBackendAdapter, opensearch_checkpointer
from locus.memory.backends.opensearch.client import Failure, translated
from locus.memory.backends.opensearch.config import OpenSearchConfig, connection_options, parse_hosts, url_options


@pytest.mark.parametrize(
    "options",
    [
        {"hosts": []},
        {"hosts": "localhost:9200"},
        {"hosts": [""]},
        {"hosts": [7]},
        {"hosts": ["ftp://localhost"]},
        {"hosts": ["localhost:port"]},
        {"index_name": ""},
        {"index_name": "Upper"},
        {"index_name": "a/b"},
        {"index_name": "../_all"},
        {"index_name": "*"},
        {"index_name": "a,b"},
        {"index_name": "_all"},
        {"username": "eve"},
        {"password": "secret"},
        {"timeout": 0},
        {"connections": 0},
        {"shards": 0},
        {"replicas": -1},
        {"ttl_seconds": -1},
        {"client": object()},
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        OpenSearchBackend(**options)


def test_hosts_are_names_with_ports_or_urls() -> None:
    hosts, user, password = parse_hosts(None, None)
    assert hosts == [{"host": "localhost", "port": 9200, "use_ssl": False}]
    assert (user, password) == (None, None)
    hosts, user, password = parse_hosts(["https://eve:p%40ss@search.example/prefix", "[::1]:9201"], None)
    assert hosts == [
        {"host": "search.example", "port": 443, "use_ssl": True, "url_prefix": "prefix"},
        {"host": "::1", "port": 9201, "use_ssl": False},
    ]
    assert (user, password) == ("eve", "p@ss")
    hosts, _, _ = parse_hosts(["one:1", "https://two:2"], True)
    assert [host["use_ssl"] for host in hosts] == [True, True]


def test_a_location_has_hosts_credentials_an_index_and_options() -> None:
    assert url_options("") == {}
    assert url_options("//one:9200,two:9201/agents") == {"hosts": ["one:9200", "two:9201"], "index_name": "agents"}
    assert url_options("//e%40e:p%2Fw@host/agents?ssl=true&verify_certs=false&timeout=2.5&replicas=0") == {
        "hosts": ["host"],
        "username": "e@e",
        "password": "p/w",
        "index_name": "agents",
        "use_ssl": True,
        "verify_certs": False,
        "timeout": 2.5,
        "replicas": 0,
    }


@pytest.mark.parametrize("location", ["host:9200/x", "//h/x?ssl=perhaps", "//h/x?timeout=soon", "//h/x?refresh=true"])
def test_a_location_that_says_nothing_sensible_is_refused(location: str) -> None:
    with pytest.raises(ConfigurationError):
        url_options(location)


def test_the_registry_opens_it() -> None:
    checkpointer = get_checkpointer("opensearchs://eve:secret@search.example:9200/agents")
    assert isinstance(checkpointer, StorageBackendAdapter)
    assert isinstance(checkpointer.backend, OpenSearchBackend)
    assert checkpointer.backend.index_name == "agents"
    assert get_checkpointer("opensearch").capabilities.search


@pytest.mark.parametrize("password", ["hush-hush", SecretStr("hush-hush")])
def test_no_secret_is_shown(password: Any) -> None:
    backend = OpenSearchBackend(["https://search.example"], username="eve", password=password)
    adapter = opensearch_checkpointer(["https://eve:hush-hush@search.example"])
    options = connection_options("eve", password, verify_certs=True, ca_certs=None, client_cert=None, client_key=None)
    config = OpenSearchConfig([], "i", 1.0, options)
    for shown in (repr(backend), repr(adapter), repr(adapter.backend), repr(config), backend.store.engine.identity):
        assert "hush" not in shown
    assert "search.example:443" in repr(backend)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Failure("N/A", "no connection"), "BackendUnavailableError"),
        (Failure("TIMEOUT", "no answer"), "BackendUnavailableError"),
        (Failure(401, "security_exception"), "BackendUnavailableError"),
        (Failure(403, "cluster_block_exception", "index [x] blocked"), "BackendUnavailableError"),
        (Failure(404, "index_not_found_exception"), "BackendUnavailableError"),
        (Failure(429, "circuit_breaking_exception"), "BackendUnavailableError"),
        (Failure(503, "unavailable_shards_exception"), "BackendUnavailableError"),
        (Failure(413, "Request Entity Too Large"), "SerializationError"),
    ],
)
def test_every_failure_is_an_error_of_ours(failure: Failure, told: str) -> None:
    error = translated(failure)
    assert type(error).__name__ == told
    assert failure.kind in str(error)
