"""The options of the OCI backend, and its URLs: what can work, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from locus.errors import BackendUnavailableError, CapabilityError, CheckpointError, ConfigurationError
from locus.memory import get_checkpointer, list_checkpointers
from locus.memory.backends import OCIBucketBackend, oci_bucket_checkpointer
from locus.memory.backends.objects.client import checked_prefix
from locus.memory.backends.oci_bucket.client import refused, unreached
from locus.memory.backends.oci_bucket.config import checked_endpoint, checked_timeout
from locus.memory.checkpointer import BaseCheckpointer
from locus.memory.engine import CheckpointerCapabilities
from tests.servers.oci.keys import write_config


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile, and none of this machine's."""
    for name in ("OCI_CONFIG_PROFILE", "OCI_REGION", "OCI_RESOURCE_PRINCIPAL_VERSION"):
        monkeypatch.delenv(name, raising=False)
    written = write_config(tmp_path)
    monkeypatch.setenv("OCI_CONFIG_FILE", str(written))
    return written


def test_it_is_a_checkpointer_as_it_is() -> None:
    backend = OCIBucketBackend("bucket", "namespace")
    assert isinstance(backend, BaseCheckpointer)
    assert backend.prefix == "locus/checkpoints/"
    assert backend.capabilities == CheckpointerCapabilities(
        metadata_query=True,
        vacuum=True,
        branching=True,
        list_threads=True,
        list_with_metadata=True,
        persistent_checkpoint_ids=True,
        windows=True,
    )
    assert repr(backend) == "OCIBucketBackend('bucket', 'namespace', 'locus/checkpoints/')"


def test_the_factory_makes_the_same() -> None:
    made = oci_bucket_checkpointer("bucket", "namespace", "mine", region="us-ashburn-1", auth_type="api_key")
    assert isinstance(made, OCIBucketBackend)
    assert (made.bucket_name, made.namespace, made.prefix) == ("bucket", "namespace", "mine/")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("oci://ns/bucket", ("ns", "bucket", "locus/checkpoints/")),
        ("oci://ns/bucket/", ("ns", "bucket", "locus/checkpoints/")),
        ("oci://ns/bucket/a/b", ("ns", "bucket", "a/b/")),
        ("oci://NS/Bucket/a%20b/", ("NS", "Bucket", "a b/")),
        ("oci://ns/bucket/p?region=us-ashburn-1&profile_name=DEFAULT", ("ns", "bucket", "p/")),
    ],
)
def test_a_url_names_namespace_bucket_and_prefix(url: str, place: tuple[str, str, str]) -> None:
    backend = get_checkpointer(url)
    assert isinstance(backend, OCIBucketBackend)
    assert (backend.namespace, backend.bucket_name, backend.prefix) == place
    assert "oci" in list_checkpointers()


def test_options_come_by_keyword_or_in_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    monkeypatch.setenv("OCI_CONFIG_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        get_checkpointer("oci://ns/bucket")
    by_keyword = get_checkpointer("oci://ns/bucket", config_file=config, timeout=5, max_connections=2)
    in_url = get_checkpointer(f"oci://ns/bucket?config_file={config}&auth_type=api_key")
    assert isinstance(by_keyword, OCIBucketBackend)
    assert isinstance(in_url, OCIBucketBackend)
    assert by_keyword.store.engine.identity == in_url.store.engine.identity


@pytest.mark.parametrize("url", ["oci", "oci:", "oci:bucket", "oci://", "oci://ns", "oci://ns/", "oci:///bucket/p"])
def test_a_url_without_bucket_or_namespace_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="oci://namespace/bucket"):
        get_checkpointer(url)


def test_a_url_with_an_option_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="but not pass_phrase"):
        get_checkpointer("oci://ns/bucket?pass_phrase=secret&region=x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bucket_name": ""}, "bucket_name is text"),
        ({"namespace": None}, "namespace is text"),
        ({"profile_name": ""}, "profile_name is text"),
        ({"profile_name": "OTHER"}, "OTHER"),
        ({"auth_type": "password"}, "there is no auth_type 'password'.*instance_principal"),
        ({"retry_strategy": 3}, "retry_strategy"),
        ({"max_connections": 0}, "max_connections"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": (1, 2, 3)}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"service_endpoint": "127.0.0.1:80"}, "service_endpoint"),
        ({"service_endpoint": "https://host/path"}, "service_endpoint"),
        ({"service_endpoint": "https://user:secret@host"}, "service_endpoint"),
        ({"prefix": "x" * 1024}, "prefix may have [0-9]+ bytes, got 1024"),
        ({"prefix": "a/../b"}, "path like"),
        ({"prefix": "a//b"}, "path like"),
        ({"prefix": "a\nb"}, "path like"),
        ({"prefix": "\ud800"}, "path like"),
        ({"prefix": 3}, "text"),
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        OCIBucketBackend(**{"bucket_name": "bucket", "namespace": "ns", **options})
    assert "secret" not in str(caught.value)


def test_threads_that_end_by_themselves_are_refused() -> None:
    with pytest.raises(CapabilityError, match="ttl_seconds"):
        OCIBucketBackend("bucket", "ns", ttl_seconds=60)


def test_prefixes_end_with_a_slash() -> None:
    kept = {"": "", "/": "", "a": "a/", "a/b/": "a/b/", "é": "é/"}
    assert {prefix: checked_prefix(prefix, "like/this") for prefix in kept} == kept


def test_endpoints_and_timeouts_are_made_what_the_sdk_wants() -> None:
    assert checked_endpoint(None) is None
    assert checked_endpoint("https://host.example/") == "https://host.example"
    assert checked_timeout(5) == (5.0, 5.0)
    assert checked_timeout((1, 2.5)) == (1.0, 2.5)


class Refusal(Exception):
    """As the SDK's errors are."""

    def __init__(self, status: int, code: str, message: str | None = "why", request_id: str | None = "id") -> None:
        self.status, self.code, self.message, self.request_id = status, code, message, request_id


@pytest.mark.parametrize(
    ("refusal", "kind", "said"),
    [
        (
            Refusal(401, "NotAuthenticated"),
            BackendUnavailableError,
            "signature: 401 NotAuth[a-z]+, why.*clock",
        ),
        (Refusal(404, "BucketNotFound"), BackendUnavailableError, "bucket 'b' in the namespace 'n' is not there"),
        (Refusal(403, "NotAllowed"), BackendUnavailableError, "may not be used"),
        (Refusal(413, "RequestEntityTooLarge"), CheckpointError, "too large"),
        (Refusal(429, "TooManyRequests"), BackendUnavailableError, "limits the requests"),
        (Refusal(500, "InternalServerError", None, None), BackendUnavailableError, "failed: 500 InternalServerError$"),
    ],
)
def test_what_the_service_says_becomes_an_error_of_ours(refusal: Refusal, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        raise refused(refusal, "n", "b")


def test_what_was_wrong_with_the_network_is_named() -> None:
    assert "at https://host did not answer: TimeoutError" in str(
        unreached(OSError(OSError(TimeoutError())), "https://host")
    )
