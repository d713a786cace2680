"""No part of a password is shown by an error, a repr, a log or the doctor, however it was given."""

from __future__ import annotations

import inspect
import logging
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locus.agent import Agent
from locus.cli import main
from locus.errors import ConfigurationError, LocusError
from locus.integrations.langgraph import LocusSaver
from locus.memory import backends, get_checkpointer, list_checkpointers
from locus.memory.registry import as_checkpointer
from locus.transfer.imports import KINDS, import_store
from locus.transfer.stores import open_store
from tests.memory.test_urls import told

SCHEMES = [name for name in list_checkpointers() if name not in ("memory", "file", "sqlite", "s3", "oci")]
WORDS = ("zqxkv", "wjgyb", "hfpmd")
"""What passwords are made of here. Nothing else that is shown has these letters in this order."""
SPECIAL = "@/?#:%[]&=+,;\\ \t\u2100'\"{}$!" + string.digits

passwords = st.tuples(
    *[st.text(SPECIAL, max_size=3) for _ in range(4)],
).map(lambda gaps: "".join(a + b for a, b in zip(gaps, (*WORDS, ""), strict=True)))
shapes = st.sampled_from(
    [
        "{scheme}://app:{password}@127.0.0.1:1/name",
        "{scheme}://:{password}@127.0.0.1:1/0",
        "{scheme}://app:{password}@one:1,two:2/name?timeout=3",
        "{scheme}://app:{password}@127.0.0.1",
        "{scheme}:app:{password}@127.0.0.1/name",
        "{scheme}//app:{password}@127.0.0.1/name",
    ]
)


def expect_nothing_of_it(shown: str) -> None:
    assert not [word for word in WORDS if word in shown.lower()]


def everything_shown_by(make: Callable[[], Any]) -> str:
    """What an attempt to open a store shows: the error and what hangs on it, or each repr of what was opened."""
    try:
        opened = make()
    except (LocusError, TypeError, ValueError) as error:
        return "".join(told(error))
    parts = [opened, *(getattr(opened, name, None) for name in ("backend", "store", "config", "url", "base_url"))]
    parts += [getattr(getattr(opened, "backend", None), "config", None)]
    engine = opened.store.engine if hasattr(opened, "store") else None
    return "".join(f"{part!r}{part}" for part in parts) + (engine.identity if engine else "")


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(SCHEMES), shapes, passwords)
@example("postgresql", "{scheme}://app:{password}@host/db", "p@zqxkv/wjgyb")
@example("opensearch", "{scheme}://app:{password}@host:9200/index", "p@zqxkv/wjgyb")
@example("http", "{scheme}://app:{password}@host/", "p@zqxkv/wjgyb")
@example("https", "{scheme}://{password}@host/", "12/zqxkv")
def test_nothing_of_a_password_is_shown_by_a_url(scheme: str, shape: str, password: str) -> None:
    url = shape.format(scheme=scheme, password=password)
    for make in (get_checkpointer, as_checkpointer, open_store, LocusSaver.from_conn_string):
        expect_nothing_of_it(everything_shown_by(lambda make=make: make(url)))  # type: ignore[misc]


PLACES = {"base_dir", "base_url", "bucket", "bucket_name", "database", "dsn", "endpoint_url", "host", "hosts"}
PLACES |= {"index_name", "namespace", "path", "prefix", "schema_name", "service_endpoint", "table_name", "url", "user"}
"""The parameters that say where a store is."""


def _makers() -> list[tuple[str, Callable[..., Any], str]]:
    """Each public class and function that opens a store, with each of its parameters that says where."""
    return [
        (f"{name}({parameter})", getattr(backends, name), parameter)
        for name in backends.__all__
        for parameter in inspect.signature(getattr(backends, name)).parameters
        if parameter in PLACES
    ]


NEEDED = {"bucket_name": "b", "namespace": "n", "bucket": "b", "base_url": "http://h", "service_name": "s"}


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(_makers()), shapes.filter(lambda shape: "://" in shape), passwords, st.sampled_from(SCHEMES))
def test_nor_where_a_url_is_given_in_the_place_of_something_else(
    maker: tuple[str, Callable[..., Any], str], shape: str, password: str, scheme: str
) -> None:
    _, make, parameter = maker
    url = shape.format(scheme=scheme, password=password)
    known = inspect.signature(make).parameters
    rest = {name: value for name, value in NEEDED.items() if name in known and known[name].default is known[name].empty}
    given_url: Any = [url] if parameter == "hosts" else url
    expect_nothing_of_it(everything_shown_by(lambda: make(**{**rest, parameter: given_url})))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("password", ["p@zqxkv/wjgyb", "zq@zqxkv", "12/zqxkv", "1?zqxkv", "1#zqxkv"])
def test_a_password_that_is_not_encoded_is_refused_with_a_word_about_it(scheme: str, password: str) -> None:
    with pytest.raises(ConfigurationError, match=r"percent-encode what is special.*%2F") as refused:
        get_checkpointer(f"{scheme}://app:{password}@host/name")
    expect_nothing_of_it("".join(told(refused.value)))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("password", ["p@zqxkv/wjgyb", "p%40zqxkv%2Fwjgyb"])
def test_nor_by_the_doctor_and_the_logs(
    scheme: str, password: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = "mymaster" if "sentinel" in scheme else "0" if scheme.startswith(("redis", "valkey")) else "name"
    assert main(["doctor", "-s", f"{scheme}://app:{password}@127.0.0.1:1/{path}"]) == 2
    written = capsys.readouterr()
    expect_nothing_of_it(written.out + written.err + caplog.text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis", "opensearch", "oracle", "sqlite", "file", "s3"])
async def test_nor_by_an_import(kind: str, scheme: str, tmp_path: Path) -> None:
    source = f"{scheme}://app:p@zqxkv/wjgyb@127.0.0.1:1/name"
    with pytest.raises(LocusError) as refused:
        await import_store(kind, source, f"sqlite:{tmp_path}/a.db")
    expect_nothing_of_it("".join(told(refused.value)))


def test_a_path_is_no_url_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = "postgresql://app:zqxkv@host/db"
    for make in (backends.SQLiteBackend, backends.FileCheckpointer, backends.sqlite_checkpointer):
        for path in (url, Path(url)):
            with pytest.raises(ConfigurationError, match="get_checkpointer") as refused:
                make(path)
            expect_nothing_of_it("".join(told(refused.value)))
    with pytest.raises(ConfigurationError):
        Agent(model="mock", checkpointer=f"sqlite:{url}")
    assert not [*tmp_path.iterdir()]


def test_an_at_sign_may_stand_where_no_user_can_be() -> None:
    bucket: Any = get_checkpointer("s3://bucket/team@home", endpoint_url="http://127.0.0.1:1")
    assert bucket.backend.prefix == "team@home/"
    opened: Any = get_checkpointer("postgresql://app:zqxkv%40@host/team%40home?application_name=a%40b")
    assert opened.store.engine.identity.startswith("postgresql:host/team@home")
