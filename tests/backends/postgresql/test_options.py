"""What `PostgreSQLBackend` is given: options, connection strings, names; and what it never shows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from locus.errors import ConfigurationError
from locus.memory import get_checkpointer
from locus.memory.backends import PostgreSQLBackend, PostgreSQLConfig, StorageBackendAdapter, postgresql_checkpointer
from locus.memory.backends.postgresql.client import Connector
from locus.memory.checkpointer import BaseCheckpointer

PASSWORD = "s3cr3t/p@ss%"


def backend_of(handle: BaseCheckpointer) -> PostgreSQLBackend:
    assert isinstance(handle, StorageBackendAdapter)
    assert isinstance(handle.backend, PostgreSQLBackend)
    return handle.backend


def parameters(backend: PostgreSQLBackend) -> dict[str, Any]:
    return Connector.from_config(backend.config).parameters


def test_the_defaults_are_those_of_a_server_next_door() -> None:
    backend = PostgreSQLBackend()
    assert parameters(backend) == {
        "host": "localhost",
        "port": 5432,
        "dbname": "locus",
        "user": "postgres",
        "application_name": "locus",
    }
    assert backend.store.engine.identity == 'postgresql:localhost:5432/locus/"locus_threads"'


def test_of_several_hosts_one_is_wanted_that_takes_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://me:s3cr3t@one:1,two/app"
    several: list[dict[str, Any]] = [
        {"dsn": url},
        {"dsn": "host=one,two port=1, user=me password=s3cr3t dbname=app"},
        {"dsn": "postgresql:///app?host=one,two&port=1,&user=me&password=s3cr3t"},
        {"host": "one,two", "port": 1, "database": "app"},
    ]
    for given in several:
        backend = PostgreSQLBackend(**given)
        found = parameters(backend)
        assert (found["host"], found["target_session_attrs"]) == ("one,two", "read-write")
        assert repr(backend).startswith("PostgreSQLBackend('postgresql:one:1,two")
        assert "s3cr3t" not in repr(backend) + repr(Connector.from_config(backend.config))
    assert parameters(PostgreSQLBackend(dsn=f"{url}?target_session_attrs=any"))["target_session_attrs"] == "any"
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    assert parameters(PostgreSQLBackend(dsn=url))["target_session_attrs"] == "standby"
    assert "target_session_attrs" not in parameters(PostgreSQLBackend(dsn="postgresql://one/app"))
    assert repr(PostgreSQLBackend(dsn="service=mine port=1,2")).startswith("PostgreSQLBackend('postgresql:mine:1,2/")
    with pytest.raises(ConfigurationError, match="as many ports as hosts") as failure:
        PostgreSQLBackend(dsn="host=one,two,three port=1,2 password=s3cr3t")
    assert "s3cr3t" not in str(failure.value)


@pytest.mark.parametrize("password", [PASSWORD, SecretStr(PASSWORD)])
def test_a_password_is_used_and_not_shown(password: str | SecretStr) -> None:
    backend = PostgreSQLBackend("db", 5433, "app", "me", password)
    assert parameters(backend)["password"] == PASSWORD
    shown = f"{backend!r} {backend.config!r} {backend.config} {Connector.from_config(backend.config)!r}"
    assert PASSWORD not in shown
    assert "db:5433/app" in shown


def test_a_dsn_wins_over_the_rest() -> None:
    dsn = "postgresql://me:s3cr3t%2Fp%40ss%25@db:5433/app?sslmode=require&connect_timeout=3"
    for given in (dsn, SecretStr(dsn)):
        backend = PostgreSQLBackend("elsewhere", dsn=given)
        found = parameters(backend)
        assert found["password"] == PASSWORD
        assert (found["host"], found["dbname"], found["sslmode"]) == ("db", "app", "require")
        assert Connector.from_config(backend.config).connect_timeout == 3
        assert "s3cr3t" not in repr(backend) + repr(backend.config)


@pytest.mark.parametrize(
    "dsn", [f"postgresql://me:{PASSWORD}@[::1/db", f"host=x password={PASSWORD} nonsense", "a b c"]
)
def test_a_dsn_that_libpq_cannot_read_is_refused_and_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="connection string") as failure:
        PostgreSQLBackend(dsn=dsn)
    assert "s3cr3t" not in str(failure.value)
    assert failure.value.__cause__ is None
    assert failure.value.__context__ is None


def test_a_url_has_options_of_ours_and_of_libpqs() -> None:
    url = (
        "postgresql://me:s3cr3t%2Fp%40ss%25@one:1,two:2/my%20db?sslmode=prefer&table_name=agents&max_pool_size=3"
        "&auto_create_table=false&prepared_statements=off&options=-c%20search_path%3Da+b&ttl_seconds=60"
    )
    for text in (url, url.replace("postgresql:", "postgres:")):
        backend = backend_of(get_checkpointer(text, max_pool_size=4))
        config, found = backend.config, parameters(backend)
        assert (config.table_name, config.max_pool_size, config.ttl_seconds) == ("agents", 4, 60)
        assert (config.auto_create_table, config.prepared_statements) == (False, False)
        assert (found["host"], found["port"], found["dbname"]) == ("one,two", "1,2", "my db")
        assert (found["password"], found["options"]) == (PASSWORD, "-c search_path=a+b")
        assert "table_name" not in found


def test_a_name_alone_is_the_default_server() -> None:
    assert parameters(backend_of(get_checkpointer("postgresql", database="mine")))["dbname"] == "mine"
    with pytest.raises(ConfigurationError, match="postgresql://user:password@host"):
        get_checkpointer("postgresql:mydb")


def test_a_config_gives_the_same_backend() -> None:
    config = PostgreSQLConfig(host="db", password=SecretStr(PASSWORD), schema_name="s", table_name="t")
    backend = PostgreSQLBackend.from_config(config)
    assert backend.store.engine.identity == 'postgresql:db:5432/locus/"s"."t_threads"'
    factory = postgresql_checkpointer("db", password=PASSWORD, schema_name="s", table_name="t")
    assert backend_of(factory).config == config


@pytest.mark.parametrize(
    "options",
    [
        {"table_name": 'x"; DROP TABLE users; --'},
        {"table_name": ""},
        {"table_name": "1st"},
        {"table_name": "x" * 41},
        {"schema_name": "a.b"},
        {"schema_name": "größe"},
        {"min_pool_size": -1},
        {"max_pool_size": 0},
        {"min_pool_size": 5, "max_pool_size": 4},
        {"connect_timeout": 0},
        {"command_timeout": -1},
        {"retry_seconds": -2},
        {"ttl_seconds": 0},
        {"port": "many"},
        {"password": 5},
        {"unheard_of": 1},
    ],
    ids=str,
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        PostgreSQLBackend(**options)


def test_a_refusal_does_not_repeat_what_it_refuses() -> None:
    bad: Any = {"token": PASSWORD}
    with pytest.raises(ConfigurationError, match="option 'password'") as failure:
        PostgreSQLBackend(password=bad)
    assert PASSWORD not in f"{failure.value!r}{failure.value.__cause__!r}"
