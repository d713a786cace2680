"""Options and URLs of the S3 backend, and what its errors tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from locus.errors import BackendUnavailableError, CapabilityError, ConfigurationError, SerializationError
from locus.memory import get_checkpointer
from locus.memory.backends import S3Backend, StorageBackendAdapter
from locus.memory.backends.s3.client import error_from, translated

SECRET = "wJalrXUtnFEMI"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the machine has of its own does not count."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "config").write_text("[profile work]\nregion = eu-west-3\n", encoding="utf-8")


def identity(backend: Any) -> str:
    return str(backend.store.engine.identity)


def test_where_a_bucket_is() -> None:
    assert identity(S3Backend("b")) == "s3:https://b.s3.us-east-1.amazonaws.com/locus/checkpoints/"
    assert identity(S3Backend("b", region_name="eu-west-1")).startswith("s3:https://b.s3.eu-west-1.amazonaws.com/")
    assert identity(S3Backend("b", profile_name="work")).startswith("s3:https://b.s3.eu-west-3.amazonaws.com/")
    assert identity(S3Backend("b.c")).startswith("s3:https://s3.us-east-1.amazonaws.com/b.c/")
    local = S3Backend("b", "/x//".rstrip("/"), endpoint_url="http://127.0.0.1:9000/")
    assert identity(local) == "s3:http://127.0.0.1:9000/b/x/"
    virtual = S3Backend("b", "", endpoint_url="https://r2.example", addressing_style="virtual")
    assert identity(virtual) == "s3:https://b.r2.example/"


def test_the_environment_names_endpoint_and_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert identity(S3Backend("b", "p")) == "s3:http://general:1/b/p/"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://special:2")
    assert identity(S3Backend("b", "p")) == "s3:http://special:2/b/p/"
    assert identity(S3Backend("b", "p", endpoint_url="http://given:3")) == "s3:http://given:3/b/p/"


def test_urls() -> None:
    opened = get_checkpointer("s3://bucket/some/prefix?endpoint_url=http%3A%2F%2F127.0.0.1%3A9000&region_name=x")
    assert isinstance(opened, StorageBackendAdapter)
    assert repr(opened.backend) == "S3Backend('bucket', 'some/prefix/')"
    assert identity(opened) == "s3:http://127.0.0.1:9000/bucket/some/prefix/"
    assert identity(get_checkpointer("s3://bucket", endpoint_url="http://h:1")).endswith("bucket/locus/checkpoints/")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3", "s3://bucket"),
        ("s3:bucket", "s3://bucket"),
        (f"s3://key:{SECRET}@bucket/p", "do not belong"),
        ("s3://bucket/p?colour=red", "colour"),
        ("s3://bucket/a/../b", "prefix"),
    ],
)
def test_urls_that_cannot_work(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        get_checkpointer(url)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bucket": ""}, "bucket"),
        ({"bucket": "a/b"}, "bucket"),
        ({"prefix": "a//b"}, "prefix"),
        ({"prefix": "x" * 512}, "511"),
        ({"prefix": 7}, "prefix"),
        ({"endpoint_url": "localhost:9000"}, "http://"),
        ({"endpoint_url": f"http://key:{SECRET}@h"}, "credentials"),
        ({"aws_access_key_id": "a"}, "together"),
        ({"aws_secret_access_key": SECRET}, "together"),
        ({"profile_name": "none"}, "profile"),
        ({"addressing_style": "other"}, "addressing_style"),
        ({"timeout": 0}, "timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_connections": 0}, "max_connections"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        S3Backend(**{"bucket": "b", **options})
    assert SECRET not in str(error.value)


def test_threads_cannot_expire() -> None:
    with pytest.raises(CapabilityError, match="expire"):
        S3Backend("b", ttl_seconds=60)


def test_secrets_are_not_shown() -> None:
    for secret in (SECRET, SecretStr(SECRET)):
        backend = S3Backend("b", aws_access_key_id="key", aws_secret_access_key=secret, aws_session_token=secret)
        assert SECRET not in f"{backend!r} {identity(backend)} {vars(backend.store.engine)}"


async def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with S3Backend("b", endpoint_url="http://127.0.0.1:9") as backend:
        with pytest.raises(BackendUnavailableError, match="credentials"):
            await backend.load("t")


def test_what_errors_mean() -> None:
    def told(status: int, body: str) -> Exception:
        return translated(error_from(status, body.encode(), "PUT x"), "b", "http://h")

    unknown = told(404, "<Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>")
    assert isinstance(unknown, BackendUnavailableError)
    assert "create it" in str(unknown)
    spaced = '<Error xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Code>AccessDenied</Code></Error>'
    assert "may not do that" in str(told(403, spaced))
    assert isinstance(told(400, "<Error><Code>EntityTooLarge</Code></Error>"), SerializationError)
    assert "502" in str(told(502, "<html><h1>Bad gateway"))
    assert "in time" in str(translated(TimeoutError(), "b", "http://h"))


def test_what_may_pass() -> None:
    for status, code in ((500, ""), (503, "SlowDown"), (429, ""), (409, "ConditionalRequestConflict")):
        assert error_from(status, f"<Error><Code>{code}</Code></Error>".encode(), "PUT x").is_passing
    for status, code in ((403, "AccessDenied"), (404, "NoSuchKey"), (412, "PreconditionFailed"), (501, "")):
        assert not error_from(status, f"<Error><Code>{code}</Code></Error>".encode(), "PUT x").is_passing
