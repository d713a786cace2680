"""URLs of every backend: one way to read them, and no error that repeats a password."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from locus.agent import Agent
from locus.core.state import AgentState
from locus.errors import ConfigurationError
from locus.integrations.langgraph import LocusSaver
from locus.integrations.langgraph_store import LocusStore
from locus.integrations.openai_agents import LocusSession
from locus.memory import get_checkpointer
from locus.memory.backends import (
    FileCheckpointer,
    MemoryCheckpointer,
    PostgreSQLBackend,
    SQLiteBackend,
    sqlite_checkpointer,
)
from locus.memory.backends.file.config import FileConfig
from locus.memory.backends.http.config import HTTPConfig
from locus.memory.backends.mysql.config import MySQLConfig
from locus.memory.backends.oci_bucket.config import OCIConfig
from locus.memory.backends.opensearch.config import OpenSearchConfig
from locus.memory.backends.oracle.config import OracleConfig
from locus.memory.backends.postgresql.config import PostgreSQLConfig
from locus.memory.backends.redis.config import RedisConfig
from locus.memory.backends.s3.config import S3Config
from locus.memory.backends.sqlite.config import SQLiteConfig
from locus.memory.runtime.url import StoreURL, flag
from locus.transfer.sources.locus_sdk.redis import OldRedis

SECRET = "s3cret"
SERVERS = ["mysql", "oracle", "postgresql", "postgres", "redis", "rediss", "valkey", "valkeys", "opensearch"]
SERVERS += ["opensearchs", "redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel"]
BROKEN = {
    "a slash in the password": "{scheme}://user:12/{secret}@host/name",
    "a question mark in the password": "{scheme}://user:1?{secret}@host/name",
    "an option in the password": "{scheme}://user:1?timeout={secret}@host/name",
    "a character that a host cannot have": "{scheme}://user:{secret}\u2100@host/name",
    "half an address": "{scheme}://user:{secret}@[::1/name",
    "a port that is none": "{scheme}://user:{secret}@host:{secret}/name?colour=red",
    "an option that is none": "{scheme}://user:{secret}@host/name?colour={secret}",
}


def told(error: BaseException | None) -> list[str]:
    """What an error says, and all those that hang on it, shown or not."""
    found: list[str] = []
    while error is not None:
        found.append(f"{error} {error!r}")
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("scheme", SERVERS)
def test_no_error_about_a_url_repeats_its_password(scheme: str, broken: str) -> None:
    url = broken.format(scheme=scheme, secret=SECRET)
    try:
        opened: Any = get_checkpointer(url)
        shown = [repr(opened), repr(opened.backend)]  # libpq, for one, has its own opinion of what a URL may say
    except ConfigurationError as error:
        shown = told(error)
    assert SECRET not in "".join(shown)


IN_PLAIN = ["@b/c", "\u2100@b/c", "@[::1/c"]


@pytest.mark.parametrize("rest", IN_PLAIN)
@pytest.mark.parametrize("scheme", ["s3", "oci"])
def test_nor_does_one_about_a_bucket_which_has_no_password(scheme: str, rest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_checkpointer(f"{scheme}://user:{SECRET}{rest}")
    assert SECRET not in "".join(told(caught.value))


@pytest.mark.parametrize("rest", ["user:s3cret/1@h", "user:1?s3cret@h", "user:s3cret@h:s3cret"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nor_does_one_about_a_server_over_http(scheme: str, rest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_checkpointer(f"{scheme}://{rest}")
    assert SECRET not in "".join(told(caught.value))


@pytest.mark.parametrize(
    "broken", ["redis://user:12/s3cret@host", "redis://user:s3cret\u2100@host", "redis://h:s3cret"]
)
def test_nor_does_one_about_what_is_imported(broken: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        OldRedis(broken)
    assert SECRET not in "".join(told(caught.value))


@pytest.mark.parametrize("url", ["postgresql:///app?host=/tmp", "postgresql:///app?host=%2Ftmp&table_name=agents"])
def test_a_postgresql_server_may_be_a_socket(url: str) -> None:
    opened: Any = get_checkpointer(url)
    assert opened.store.engine.identity.startswith("postgresql:/tmp")


def test_every_backend_has_a_config_that_a_url_makes(tmp_path: Path) -> None:
    assert FileConfig.from_url(f"file://{tmp_path}", pretty=False) == FileConfig(tmp_path, pretty=False)
    assert SQLiteConfig.from_url(f"sqlite:///{tmp_path}/a.db", timeout=1.0).path == str(tmp_path / "a.db")
    assert MySQLConfig.from_url("mysql://u@h:1/d", table_name="t") == MySQLConfig(
        host="h", port=1, database="d", user="u", table_name="t"
    )
    assert PostgreSQLConfig.from_url("postgresql://u@h/d?table_name=a", table_name="t").table_name == "t"
    assert OracleConfig.from_url("oracle://u@h/s").address == "h:1521/s"
    assert RedisConfig.from_url("redis://h:1/2", prefix="p:").shown == "redis://h:1/2"
    assert OpenSearchConfig.from_url("opensearchs://h:1/agents", shards=2).hosts[0]["use_ssl"]
    assert S3Config.from_url("s3://bucket/some/prefix", endpoint_url="http://h:1").prefix == "some/prefix/"
    assert OCIConfig.from_url("oci://ns/bucket/p?region=r").region == "r"
    assert HTTPConfig.from_url("http://u:p@h:1/x/", None, None, None, 1.0).address == "http://h:1/x"


def test_the_parts_of_a_url_are_decoded_and_not_shown() -> None:
    url = StoreURL("any://us%40er:pa%2Fss@One:1,Two:2/a%20b?yes=1&n=2&x=%20", "no URL")
    assert (url.scheme, url.user, url.password, url.hosts, url.path) == (
        "any",
        "us@er",
        "pa/ss",
        "One:1,Two:2",
        "/a%20b",
    )
    assert url.options({"yes": flag, "n": int, "x": str}) == {"yes": True, "n": 2, "x": " "}
    assert "pa" not in repr(url)
    with pytest.raises(ConfigurationError, match="no URL"):
        _ = url.port
    with pytest.raises(ConfigurationError, match="n in the URL is true or false"):
        url.options({"yes": flag, "n": flag, "x": str})
    with pytest.raises(ConfigurationError, match="no option 'x'; there are: yes, n"):
        url.options({"yes": flag, "n": int})


def test_files_take_options_in_their_urls(tmp_path: Path) -> None:
    found = SQLiteConfig.from_url("sqlite:x.db?ttl_seconds=3&durability=normal&timeout=5&query_timeout=7", timeout=6.0)
    assert (found.ttl_seconds, found.durability, found.timeout, found.query_timeout) == (3.0, "normal", 6.0, 7.0)
    assert Path(found.path).name == "x.db"
    assert FileConfig.from_url(f"file://{tmp_path}?pretty=no&ttl_seconds=1.5") == FileConfig(tmp_path, False, 1.5)
    for url in (f"sqlite:{tmp_path}/x.db?ttl_seconds=3", f"file:{tmp_path}?ttl_seconds=3", "memory:?ttl_seconds=3"):
        opened: Any = get_checkpointer(url)
        assert opened.store.ttl_seconds == 3.0
        assert cast(Any, get_checkpointer(url, ttl_seconds=4)).store.ttl_seconds == 4
    engine = cast(Any, get_checkpointer(f"sqlite:{tmp_path}/x.db", query_timeout=9)).store.engine
    assert engine._query_timeout == 9
    # A question mark can be part of a name where the name is written like a URL.
    assert Path(SQLiteConfig.from_url(f"sqlite:///{tmp_path}/what%3F.db").path).name == "what?.db"


@pytest.mark.parametrize("scheme", ["sqlite:x.db", "file:x", "memory:"])
def test_files_refuse_options_that_they_do_not_have(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no option 'colour'; there are: .*ttl_seconds"):
        get_checkpointer(f"{scheme}?colour=red")
    with pytest.raises(ConfigurationError, match="ttl_seconds in the URL is a number"):
        get_checkpointer(f"{scheme}?ttl_seconds=soon")
    with pytest.raises(ConfigurationError, match="no fragment"):
        get_checkpointer(f"{scheme}?ttl_seconds=3#4")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("agents.db", "did you mean 'sqlite:agents.db'"),
        ("/srv/agents.sqlite3", "did you mean 'sqlite:/srv/agents.sqlite3'"),
        ("agents.db?ttl_seconds=3", "did you mean 'sqlite:agents.db.ttl_seconds=3'"),
        ("./agents", "did you mean 'file:./agents', or 'sqlite:./agents'"),
        ("postgress://h/d", "did you mean 'postgres'"),
        ("sqllite:a.db", "did you mean 'sqlite'"),
    ],
)
def test_what_is_no_name_is_told_what_was_meant(given: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=meant):
        Agent(model="mock", checkpointer=given)


@pytest.mark.parametrize("url", ["sqlite:////{}/nowhere/a.db", "sqlite:{}/nowhere/a.db", "file://{}/nowhere/a"])
def test_no_folder_is_made_for_an_absolute_path_unless_it_is_asked_for(url: str, tmp_path: Path) -> None:
    place = url.format(str(tmp_path).lstrip("/") if "////" in url else tmp_path)
    with pytest.raises(ConfigurationError, match=r"nowhere' does not exist: make it, .*create_folder=true"):
        get_checkpointer(place).sync.load("t")
    assert list(tmp_path.iterdir()) == []
    for asked in (get_checkpointer(f"{place}?create_folder=true"), get_checkpointer(place, create_folder=True)):
        asked.sync.save(AgentState(), "t")
        asked.sync.close()
    assert (tmp_path / "nowhere").is_dir()


def test_folders_are_made_for_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("sqlite:data/a.db", "file:logs/agents", "sqlite:///more/b.db"):
        with get_checkpointer(place).sync as opened:
            opened.save(AgentState(), "t")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["data", "logs", "more"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("sqlite:agents.db", "agents.db"),
        ("sqlite:///agents.db?ttl_seconds=60", "agents.db"),
        ("SQLite:////srv/agents.db", "/srv/agents.db"),
        ("file:./agents", "./agents"),
        ("file:///srv/agents", "/srv/agents"),
        ("sqlite://data/agents.db", "data/agents.db"),
    ],
)
def test_a_url_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    makers: list[tuple[Callable[[str | Path], object], str]] = [
        (sqlite_checkpointer, "sqlite"),
        (SQLiteBackend, "sqlite"),
        (FileCheckpointer, "file"),
    ]
    for make, scheme in makers:
        for url in (given, Path(given)) if "//" not in given else (given,):
            with pytest.raises(ConfigurationError) as refused:
                make(url)
            assert repr(path) in str(refused.value)
            assert f"get_checkpointer('{scheme}:{path}')" in str(refused.value)
    assert not [*tmp_path.iterdir()]


def test_a_file_may_still_be_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SQLiteBackend("./sqlite:a.db").path == str(tmp_path / "sqlite:a.db")


MISSPELT = {
    "memory": ("ttl_second", "ttl_seconds"),
    "file:a": ("prety", "pretty"),
    "sqlite:a.db": ("durabilty", "durability"),
    "http://host": ("tokn", "token"),
    "https://host": ("headrs", "headers"),
    "redis://host": ("prefx", "prefix"),
    "valkey://host": ("max_conections", "max_connections"),
    "s3://bucket/prefix": ("region_nam", "region_name"),
    "oci://namespace/bucket": ("regio", "region"),
    "opensearch://host/index": ("index_nam", "index_name"),
    "postgresql://host/database": ("tabel_name", "table_name"),
    "mysql://host/database": ("tabel_name", "table_name"),
    "mysql": ("tabel_name", "table_name"),
    "oracle://user:password@host/service": ("tabel_name", "table_name"),
}


@pytest.mark.parametrize("url", MISSPELT)
def test_a_misspelt_keyword_is_told_from_the_one_that_was_meant(url: str) -> None:
    wrong, meant = MISSPELT[url]
    with pytest.raises(ConfigurationError) as refused:
        get_checkpointer(url, **{wrong: "s3cret"})
    text = str(refused.value)
    assert f"has no option {wrong!r} (did you mean {meant!r}?); the options are: " in text
    assert SECRET not in text


@pytest.mark.parametrize("url", ["sqlite:a.db?durabilty=full", "postgresql://host/db?durabilty=full"])
def test_a_misspelt_option_of_a_url_is_named(url: str) -> None:
    with pytest.raises(ConfigurationError, match="has no option 'durabilty'"):
        get_checkpointer(url)


def test_a_misspelt_option_of_a_postgresql_url_is_told_from_those_of_locus_and_of_libpq() -> None:
    for wrong, meant in (("table_nam", "table_name"), ("sslmod", "sslmode")):
        with pytest.raises(ConfigurationError, match=f"'{wrong}' .did you mean '{meant}'") as refused:
            get_checkpointer(f"postgresql://user:{SECRET}@host/db?sslrootcert=/a&{wrong}={SECRET}")
        assert SECRET not in str(refused.value)
    with pytest.raises(ConfigurationError, match="table_name is no option of libpq"):
        PostgreSQLBackend(dsn="postgresql://host/db?table_name=x")
    with pytest.raises(ConfigurationError) as refused:
        get_checkpointer(f"postgresql://host/db?{SECRET}=2@host/db")
    assert SECRET not in str(refused.value)


def test_options_of_what_hands_them_on_are_among_the_known_ones() -> None:
    cases: list[tuple[Callable[..., object], str, str]] = [
        (LocusSaver, "allowed_typs", "allowed_types"),
        (partial(LocusSession, "alice"), "sesion_settings", "session_settings"),
        (LocusStore, "tll", "ttl"),
    ]
    for make, wrong, meant in cases:
        owner = getattr(make, "func", make).__name__
        with pytest.raises(ConfigurationError, match=f"{owner} has no option '{wrong}' .did you mean '{meant}'"):
            make("sqlite:a.db", **{wrong: ()})
        with pytest.raises(ConfigurationError, match=f"already open .did you mean '{meant}'"):
            make(MemoryCheckpointer(), **{wrong: ()})
        with pytest.raises(ConfigurationError, match="did you mean 'durability'"):
            make("sqlite:a.db", durabilty="full")


def test_three_slashes_that_were_to_be_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        get_checkpointer("sqlite:///usr/a.db?timeout=5")
    for spelling in ("'sqlite:////usr/a.db'", "'sqlite:usr/a.db'"):
        assert spelling in str(refused.value)
    assert not [*tmp_path.iterdir()]
    for plain in ("sqlite:usr/a.db", "sqlite:////usr/a.db", "sqlite:///usr.db", "sqlite:///not-at-the-root/a.db"):
        get_checkpointer(plain)
    (tmp_path / "usr").mkdir()
    get_checkpointer("sqlite:///usr/a.db")


def test_a_token_in_a_url_is_answered_with_the_option() -> None:
    with pytest.raises(ConfigurationError, match="token=") as refused:
        get_checkpointer(f"https://host/path?a=1&token={SECRET}")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql//host/db", f"postgresql//user:{SECRET}@host/db"])
def test_a_url_without_its_colon(url: str) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'postgresql://") as refused:
        get_checkpointer(url)
    assert SECRET not in str(refused.value)
    assert "file:" not in str(refused.value)
