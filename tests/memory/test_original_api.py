"""What the original API of locus-sdk has is there under the same names, and factories are called as it calls them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from locus.agent import Summarization, SummarizationMiddleware
from locus.core.messages import Message
from locus.core.protocols import CheckpointerCapabilities
from locus.memory import BaseCheckpointer, get_checkpointer, register_checkpointer, registry
from locus.memory import CheckpointerCapabilities as SameCapabilities
from locus.memory.backends import (
    FileCheckpointer,
    HTTPCheckpointer,
    MemoryCheckpointer,
    MySQLBackend,
    OCIBucketBackend,
    OpenSearchBackend,
    OracleBackend,
    PostgreSQLBackend,
    RedisBackend,
    S3Backend,
    SQLiteBackend,
)
from locus.memory.backends.mysql.config import MySQLConfig, MySQLOptions
from locus.memory.backends.postgresql.config import PostgreSQLConfig, PostgreSQLOptions
from tests.servers.oci.keys import write_config

SECRET = "s3cret"


@pytest.fixture
def _own_factories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def test_names_of_the_original() -> None:
    assert CheckpointerCapabilities is SameCapabilities
    assert SummarizationMiddleware is Summarization
    assert Message.human("hi") == Message.user("hi")


SQL = {"host": "db", "port": 7, "database": "d", "user": "u", "password": SECRET}


@pytest.mark.parametrize(
    ("kind", "given", "differing"),
    [
        (FileCheckpointer, {"base_dir": "logs", "pretty": False}, {"base_dir": Path("logs").absolute()}),
        (
            HTTPCheckpointer,
            {"base_url": f"http://u:{SECRET}@h:1/x/", "headers": {"A": SECRET}, "auth": ("u", SECRET), "timeout": 3.0},
            {"base_url": "http://h:1/x"},
        ),
        (MemoryCheckpointer, {"ttl_seconds": 3.0}, {}),
        (SQLiteBackend, {"path": ":memory:", "durability": "normal", "timeout": 1.0, "ttl_seconds": 2.0}, {}),
        (PostgreSQLBackend, {**SQL, "table_name": "t", "dsn": None}, {}),
        (MySQLBackend, {**SQL, "table_name": "t"}, {}),
        (OracleBackend, {"dsn": "alias", "user": "u", "password": SECRET, "table_name": "t", "port": 9}, {}),
        (
            RedisBackend,
            {"url": f"redis://u:{SECRET}@h:1/2", "prefix": "p:", "ttl_seconds": 3.0, "db": 2},
            {"url": "redis://h:1/2"},
        ),
        (OpenSearchBackend, {"hosts": ["h:9200"], "index_name": "i", "username": "u", "password": SECRET}, {}),
        (S3Backend, {"bucket": "b", "prefix": "p/", "endpoint_url": "http://h:1", "region_name": "r"}, {}),
        (OCIBucketBackend, {"bucket_name": "b", "namespace": "n", "prefix": "p/", "auth_type": "api_key"}, {}),
        (OCIBucketBackend, {"bucket_name": "b", "namespace": "n", "profile_name": "DEFAULT", "region": None}, {}),
    ],
)
def test_what_a_constructor_was_given_can_be_read(
    kind: type, given: dict[str, Any], differing: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCI_CONFIG_FILE", str(write_config(tmp_path)))
    made = kind(**given)
    assert SECRET not in f"{made!r} {made}"
    for name, value in (given | differing).items():
        if kind is OpenSearchBackend and name in ("username", "password"):
            continue  # the driver has them
        found = getattr(made, name)
        assert (found.get_secret_value() if name == "password" else found) == value, name


def test_only_the_oracle_classes_are_pydantic_models() -> None:
    """The page on differences says so."""
    kinds = (PostgreSQLBackend, MySQLBackend, RedisBackend, OpenSearchBackend, OracleBackend)
    assert [kind for kind in kinds if issubclass(kind, BaseModel)] == [OracleBackend]


def test_a_save_shows_its_parameters() -> None:
    unnamed = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    for kind in (OracleBackend, MemoryCheckpointer, PostgreSQLBackend, OCIBucketBackend):
        parameters = inspect.signature(kind.save).parameters
        assert unnamed.isdisjoint(one.kind for one in parameters.values())
        assert {"thread_id", "checkpoint_id", "metadata"} <= parameters.keys()


class Made(MemoryCheckpointer):
    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.given = given


def with_hint(config_hint: str | None = None, **kwargs: Any) -> BaseCheckpointer:
    return Made(config_hint=config_hint, **kwargs)


def only_keywords(**kwargs: Any) -> BaseCheckpointer:
    return Made(**kwargs)


def of_locus(location: str, **options: Any) -> BaseCheckpointer:
    return Made(location=location, **options)


@pytest.mark.usefixtures("_own_factories")
@pytest.mark.parametrize(
    ("factory", "whole", "bare"),
    [
        (with_hint, {"config_hint": "a:b", "depth": 3}, {"config_hint": None}),
        (only_keywords, {"config_hint": "a:b", "depth": 3}, {}),
        (Made, {"config_hint": "a:b", "depth": 3}, {}),
        (of_locus, {"location": "a:b", "depth": 3}, {"location": ""}),
    ],
)
def test_a_factory_is_called_as_it_was_written(factory: Any, whole: dict[str, Any], bare: dict[str, Any]) -> None:
    register_checkpointer("mine", factory)
    assert vars(get_checkpointer("mine:a:b", depth=3))["given"] == whole
    assert vars(get_checkpointer("mine"))["given"] == bare


@pytest.mark.parametrize(
    ("options", "config", "places"),
    [
        (PostgreSQLOptions, PostgreSQLConfig, {"host", "port", "database", "user", "password", "dsn"}),
        (MySQLOptions, MySQLConfig, {"host", "port", "database", "user", "password"}),
    ],
)
def test_the_options_that_a_type_checker_knows_are_those_of_the_config(
    options: Any, config: type[BaseModel], places: set[str]
) -> None:
    assert set(get_type_hints(options)) == config.model_fields.keys() - places
