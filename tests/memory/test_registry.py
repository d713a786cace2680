"""Checkpointers by name, by location and by URL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, LocusError
from locus.integrations.openai_agents import LocusSession
from locus.memory import BaseCheckpointer, get_checkpointer, list_checkpointers, register_checkpointer, registry
from locus.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend, StorageBackendAdapter
from locus.memory.registry import as_checkpointer, path_of


class Point:
    """An entry point, as an installed package would declare it."""

    def __init__(self, name: str, factory: Any) -> None:
        self.name = name
        self._factory = factory

    def load(self) -> Any:
        return self._factory


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test registers is gone after it, and relative paths are in its own folder."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.chdir(tmp_path)
    yield
    assert set(list_checkpointers()) >= {"memory", "file", "sqlite"}


def made(location: str = "", **options: Any) -> BaseCheckpointer:
    checkpointer = MemoryCheckpointer()
    vars(checkpointer).update(location=location, options=options)
    return checkpointer


def database(checkpointer: BaseCheckpointer) -> Path:
    assert isinstance(checkpointer, StorageBackendAdapter)
    assert isinstance(checkpointer.backend, SQLiteBackend)
    return Path(checkpointer.backend.path)


def test_the_built_in_names_are_listed() -> None:
    assert {"memory", "file", "sqlite"} <= set(list_checkpointers())
    assert list_checkpointers() == sorted(list_checkpointers())


def test_memory() -> None:
    assert isinstance(get_checkpointer("memory"), MemoryCheckpointer)
    assert get_checkpointer("memory") is not get_checkpointer("memory")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:./dir", "dir"),
        ("file:dir/inner", "dir/inner"),
        ("file:{tmp}/dir", "dir"),
        ("file://{tmp}/with%20space", "with space"),
        ("file", ".locus_checkpoints"),
        ("file:", ".locus_checkpoints"),
    ],
)
def test_files(text: str, path: str, tmp_path: Path) -> None:
    checkpointer = get_checkpointer(text.format(tmp=tmp_path))
    assert isinstance(checkpointer, FileCheckpointer)
    assert checkpointer.get_storage_path() == tmp_path / path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("sqlite:a.db", "a.db"),
        ("sqlite:./inner/a.db", "inner/a.db"),
        ("sqlite:{tmp}/a.db", "a.db"),
        ("sqlite:///a.db", "a.db"),
        ("sqlite:///inner/a%20b.db", "inner/a b.db"),
        ("sqlite:///{tmp}/a.db", "a.db"),
        ("sqlite:a%20b.db", "a%20b.db"),
        ("sqlite", "locus.db"),
        ("sqlite:", "locus.db"),
    ],
)
def test_databases(text: str, path: str, tmp_path: Path) -> None:
    assert database(get_checkpointer(text.format(tmp=tmp_path))) == tmp_path / path


async def test_a_database_of_this_process_only(tmp_path: Path) -> None:
    async with get_checkpointer("sqlite::memory:") as checkpointer:
        await checkpointer.save(AgentState(), "t")
        assert await checkpointer.exists("t")
    assert list(tmp_path.iterdir()) == []


async def test_options_reach_the_backend() -> None:
    assert get_checkpointer("memory", ttl_seconds=5).capabilities.ttl
    with pytest.raises(ConfigurationError, match="ttl_seconds"):
        get_checkpointer("memory", ttl_seconds=-1)
    with pytest.raises(ConfigurationError, match="durability"):
        get_checkpointer("sqlite:a.db", durability="none")


@pytest.mark.parametrize("text", ["nothing", "nothing:there", "", ":", "Memory", " memory", "postgresql+asyncpg://h/d"])
def test_an_unknown_name_lists_what_there_is(text: str) -> None:
    register_checkpointer("mine", made)
    with pytest.raises(ConfigurationError) as caught:
        get_checkpointer(text)
    for name in ("file", "memory", "mine", "sqlite", "register_checkpointer"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://user:s3cret@host/db",
        "sqlite://user:s3cret@host",
        "file://user:s3cret@host/dir",
        "memory://user:s3cret@host/db",
        "nothing://user:s3cret@host/db",
    ],
)
def test_a_password_is_never_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        get_checkpointer(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "s3cret" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "name", [None, 5, b"memory", ["memory"], MemoryCheckpointer()], ids=lambda name: type(name).__name__
)
def test_what_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a name or URL"):
        get_checkpointer(name)


def test_what_is_registered_gets_the_location_and_the_options() -> None:
    register_checkpointer("mine", made)
    assert "mine" in list_checkpointers()
    checkpointer = get_checkpointer("mine://a:b@c/d?e", depth=3)
    assert vars(checkpointer)["location"] == "//a:b@c/d?e"
    assert vars(checkpointer)["options"] == {"depth": 3}
    assert vars(get_checkpointer("mine"))["location"] == ""


def test_a_name_in_use_is_replaced_also_one_of_ours() -> None:
    other = MemoryCheckpointer()
    register_checkpointer("mine", made)
    register_checkpointer("mine", lambda location: other)
    register_checkpointer("sqlite", lambda location: other)
    assert get_checkpointer("mine") is get_checkpointer("sqlite:a.db") is other
    assert list_checkpointers().count("sqlite") == 1


@pytest.mark.parametrize("name", ["", "a:b", " a", "a\n", None, 5])
def test_a_name_that_could_not_be_asked_for_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="without a colon"):
        register_checkpointer(name, made)


@pytest.mark.parametrize("factory", [None, "locus.memory:thing", MemoryCheckpointer()], ids=["none", "text", "object"])
def test_what_cannot_be_called_is_refused(factory: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not callable"):
        register_checkpointer("mine", factory)
    assert "mine" not in list_checkpointers()


def test_installed_packages_add_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def entry_points(*, group: str) -> list[Point]:
        asked.append(group)
        return [Point("theirs", made), Point("memory", lambda location: pytest.fail("ours comes first"))]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert list_checkpointers() == sorted({*registry._BUILT_IN, "theirs"})
    assert vars(get_checkpointer("theirs:place"))["location"] == "place"
    assert isinstance(get_checkpointer("memory"), MemoryCheckpointer)
    assert set(asked) == {"locus.checkpointers"}


def test_a_package_that_cannot_be_loaded_spoils_only_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Point):
        def load(self) -> Any:
            raise ImportError("no module named driver")

    monkeypatch.setattr(registry, "entry_points", lambda group: [Broken("theirs", None)])
    assert "theirs" in list_checkpointers()
    assert isinstance(get_checkpointer("memory"), MemoryCheckpointer)
    with pytest.raises((LocusError, ImportError), match=r"theirs|driver"):
        get_checkpointer("theirs")


@pytest.mark.parametrize(
    ("location", "path"),
    [("", ""), ("a.db", "a.db"), ("/srv/a.db", "/srv/a.db"), ("///a.db", "a.db"), ("////srv/a%2Fb.db", "/srv/a/b.db")],
)
def test_the_path_in_a_location(location: str, path: str) -> None:
    assert path_of(location) == path


@pytest.mark.parametrize("location", ["//host/a.db", "//host", "//", "//./a.db"])
def test_a_file_has_no_host(location: str) -> None:
    with pytest.raises(ConfigurationError, match="names a host"):
        path_of(location)


async def test_a_path_of_an_sqlite_file_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("agents.db"), tmp_path / "what? 100%.sqlite3", PurePath("a/b.SQLITE")):
        async with get_checkpointer(path) as handle:
            await handle.save(AgentState(), "t")
        assert Path(path).is_file()
    session = LocusSession("t", tmp_path / "agents.db")  # which opens the store, and so closes it
    assert await session.get_items() == []
    await session.close()
    assert not (tmp_path / "agents.db-wal").exists()
    assert isinstance(as_checkpointer(tmp_path / "agents.db"), StorageBackendAdapter)


@pytest.mark.parametrize("path", [Path("agents"), Path("notes.txt"), Path("/srv/agents")])
def test_another_path_may_be_a_file_or_a_folder(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"'sqlite:{path}' for an SQLite file, or 'file:{path}' for a folder"):
        get_checkpointer(path)


def test_a_path_that_was_a_url_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as refused:
        get_checkpointer(Path("postgresql://user:s3cret@host/a.db"))
    assert "s3cret" not in str(refused.value)


async def test_hits_of_a_search_have_attributes_with_types() -> None:
    async with get_checkpointer("memory") as handle:
        checkpoint = await handle.save(AgentState().with_message(Message.user("a red balloon")), "t", None, {"n": 1})
        (hit,) = await handle.search("balloon")
        assert (hit.thread_id, hit.checkpoint_id, hit.metadata) == ("t", checkpoint, {"n": 1})
        assert hit.score > 0
        assert "balloon" in hit.snippet
        assert (hit["score"], hit.namespace) == (hit.score, "default")
        assert json.dumps(hit, default=str)
