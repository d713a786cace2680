"""URLs and options of Redis: what they mean, what is refused, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory import get_checkpointer, list_checkpointers
from locus.memory.backends import RedisBackend, redis_checkpointer

SECRET = "s3cr3t!"
QUOTED = "s3cr3t%21"


def test_the_defaults_are_those_of_a_local_server() -> None:
    config = RedisBackend().config
    assert (config.host, config.port, config.db, config.tls) == ("localhost", 6379, 0, False)
    assert (config.prefix, config.ttl_seconds) == ("locus:state:", None)


def test_a_url_says_everything() -> None:
    url = f"rediss://user:{QUOTED}@example.org:7000/3?prefix=p:&ttl_seconds=60&timeout=2&ssl_ca_certs=/ca.pem&retries=0"
    config = RedisBackend(url).config
    assert (config.host, config.port, config.db, config.tls) == ("example.org", 7000, 3, True)
    assert (config.username, config.password) == ("user", SECRET)
    assert (config.prefix, config.ttl_seconds, config.timeout, config.retries) == ("p:", 60, 2, 0)
    assert config.ssl_ca_certs == "/ca.pem"


def test_options_say_the_same() -> None:
    backend = RedisBackend("redis://example.org", db=2, username="u", password=SecretStr(SECRET), cluster=False)
    assert (backend.config.db, backend.config.username, backend.config.password) == (2, "u", SECRET)
    assert RedisBackend("unix:///run/redis.sock", db=1).config.path == "/run/redis.sock"
    assert RedisBackend("redis://h?cluster=true").config.cluster
    assert RedisBackend("redis://[::1]:6380").config.shown == "redis://[::1]:6380/0"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_the_registry_knows_the_schemes(scheme: str) -> None:
    assert scheme in list_checkpointers()
    handle: Any = get_checkpointer(f"{scheme}://example.org:7000/2", ttl_seconds=5)
    config = handle.backend.config
    assert (config.host, config.port, config.db, config.ttl_seconds) == ("example.org", 7000, 2, 5)
    assert config.tls == (scheme in ("rediss", "valkeys"))
    local: Any = get_checkpointer(scheme)
    assert local.backend.config.host == "localhost"
    with pytest.raises(ConfigurationError, match=f"{scheme}://localhost"):
        get_checkpointer(f"{scheme}:somewhere")


def test_no_secret_is_shown() -> None:
    url = f"redis://user:{QUOTED}@example.org/1"
    for backend in (RedisBackend(url), RedisBackend("redis://example.org", username="user", password=SECRET)):
        handle = redis_checkpointer(url)
        for shown in (backend, backend.config, handle, backend.store.engine, backend.store.engine.identity):
            for text in (repr(shown), str(shown)):
                assert SECRET not in text
                assert QUOTED not in text
                assert "user:" not in text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.org", "starts with one of"),
        ("example.org:6379", "starts with one of"),
        (5, "must be text"),
        ("redis://example.org:seven", "port"),
        ("redis://example.org:99999", "port"),
        ("redis://[::1", "host or port"),
        ("redis://example.org/name", "number of a database"),
        ("redis://example.org?tiemout=3", "unknown option 'tiemout'"),
        ("redis://example.org?timeout=soon", "timeout"),
        ("redis://example.org?cluster=perhaps", "cluster"),
    ],
)
def test_a_bad_url_is_refused_without_showing_it(url: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RedisBackend(url)
    if isinstance(url, str) and "://" in url:
        with pytest.raises(ConfigurationError) as caught:
            RedisBackend(url.replace("://", f"://user:{QUOTED}@"))
        assert QUOTED not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": ""},
        {"prefix": None},
        {"prefix": "a{b}"},
        {"ttl_seconds": 0},
        {"ttl_seconds": float("nan")},
        {"timeout": 0},
        {"connect_timeout": -1},
        {"db": -1},
        {"db": "0"},
        {"max_connections": 0},
        {"retries": -1},
        {"buckets": 0},
        {"cluster": True, "db": 1},
        {"cluster": True, "search": True},
        {"db": 1, "search": True},
        {"client": "no client"},
    ],
    ids=str,
)
def test_a_bad_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RedisBackend(**options)


def test_search_is_known_only_where_it_was_said() -> None:
    assert RedisBackend(search=True).capabilities.search
    for options in ({}, {"search": False}, {"cluster": True}, {"db": 1}):
        assert not RedisBackend(**options).capabilities.search


# Sentinels, and waiting for replicas.

SENTINELS = "redis+sentinel://user:{}@one:1,Two,[::1]:3/my.master-1"


def test_a_url_names_sentinels() -> None:
    config = RedisBackend(
        f"{SENTINELS.format(QUOTED)}/2?sentinel_username=s&sentinel_password=hush%21&prefix=p:"
    ).config
    assert config.sentinels == (("one", 1), ("two", 26379), ("::1", 3))
    assert (config.service, config.db, config.tls, config.prefix) == ("my.master-1", 2, False, "p:")
    assert (config.username, config.password) == ("user", SECRET)
    assert (config.sentinel_username, config.sentinel_password) == ("s", "hush!")
    assert config.shown == "redis+sentinel://one:1,two:26379,[::1]:3/my.master-1/2"
    assert RedisBackend("rediss+sentinel://h/m", db=1).config.shown == "rediss+sentinel://h:26379/m/1"
    assert RedisBackend("redis+sentinel://h/m", sentinel_password=SecretStr("hush")).config.sentinel_password == "hush"
    assert RedisBackend("redis+sentinel://h/m", search=True).capabilities.search


def test_the_order_of_sentinels_does_not_make_another_store() -> None:
    one, two = (RedisBackend(f"redis+sentinel://{hosts}/m").store.engine.identity for hosts in ("a,b", "b,a"))
    assert one == two != RedisBackend("redis+sentinel://a,b/other").store.engine.identity


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_the_registry_knows_the_schemes_of_sentinels(scheme: str) -> None:
    assert f"{scheme}+sentinel" in list_checkpointers()
    handle: Any = get_checkpointer(f"{scheme}+sentinel://one,two/name?wait_replicas=1", ttl_seconds=5)
    config = handle.backend.config
    assert (config.service, config.wait_replicas, config.ttl_seconds) == ("name", 1, 5)
    assert config.tls == (scheme in ("rediss", "valkeys"))
    for location in ("", "somewhere"):
        with pytest.raises(ConfigurationError, match="URL"):
            get_checkpointer(f"{scheme}+sentinel{location and ':' + location}")


def test_no_secret_of_sentinels_is_shown() -> None:
    url = f"{SENTINELS.format(QUOTED)}?sentinel_username=sally&sentinel_password=hush"
    backend, handle = RedisBackend(url), redis_checkpointer(url)
    for shown in (backend, backend.config, handle, backend.store.engine, backend.store.engine.identity):
        for text in (repr(shown), str(shown)):
            assert not [secret for secret in (SECRET, QUOTED, "hush", "sally", "user:") if secret in text]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+sentinel://h", "the URL of sentinels is"),
        ("redis+sentinel://h/", "the URL of sentinels is"),
        ("redis+sentinel:///m", "the URL of sentinels is"),
        ("redis+sentinel://h,/m", "the URL of sentinels is"),
        ("redis+sentinel://h:x/m", "the URL of sentinels is"),
        ("redis+sentinel://h/a b", "letters, digits"),
        ("redis+sentinel://h/m/name", "number of a database"),
        ("unix+sentinel://h/m", "starts with one of"),
        ("redis+sentinels://h/m", "starts with one of"),
        ("redis+sentinel://h/m?cluster=true", "no sentinels"),
        ("redis://h?sentinel_password=hush", "are for sentinels"),
        ("redis+sentinel://h/m?sentinel_pasword=hush", "did you mean 'sentinel_password'"),
        ("redis://h?wait_replica=1", "did you mean 'wait_replicas'"),
        ("redis://h?wait_replicas=-1", "wait_replicas must be"),
        ("redis://h?wait_replicas=all", "wait_replicas in the URL is a whole number"),
        ("redis://h?wait_timeout=0", "wait_timeout"),
        ("redis://h?wait_timeout=10", "wait_timeout is a part of timeout"),
        ("redis://h?wait_aof=perhaps", "wait_aof"),
    ],
)
def test_a_bad_url_of_sentinels_or_with_a_bad_wait_is_refused_without_showing_it(url: str, message: str) -> None:
    for given in (url, url.replace("://", f"://user:{QUOTED}@")):
        with pytest.raises(ConfigurationError, match=message) as caught:
            RedisBackend(given)
        assert not [secret for secret in (QUOTED, "hush") if secret in str(caught.value)]


def test_replicas_have_half_of_the_time_of_a_request() -> None:
    assert RedisBackend("redis://h?timeout=4", wait_replicas=2).config.wait_timeout == 2
    assert RedisBackend("redis://h?timeout=4&wait_timeout=3&wait_aof=true").config.wait_aof
