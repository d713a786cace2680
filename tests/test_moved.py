"""Import paths that were documented once: they work, and warn."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import locus
from locus._moved import HOMES, NAMES
from locus.memory.checkpointer import Checkpointer
from locus.memory.store import CheckpointStore
from tests.baseline.recorded import read_imports

SOURCE = Path(locus.__file__).parent.parent


def is_there(module: str) -> bool:
    path = SOURCE.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_every_documented_path_that_is_gone_is_in_the_table() -> None:
    assert {module for module in read_imports() if not is_there(module)} <= set(HOMES)


@pytest.mark.parametrize("module", HOMES)
def test_a_path_in_the_table_is_gone_and_its_home_is_there(module: str) -> None:
    assert not is_there(module)
    assert is_there(HOMES[module])
    importlib.import_module(module)  # only a name of it warns


@pytest.mark.parametrize(
    ("module", "names"), [(module, names) for module, names in read_imports().items() if module in HOMES]
)
def test_a_name_at_its_old_path_is_the_one_at_the_new_path_and_warns(module: str, names: list[str]) -> None:
    home = importlib.import_module(HOMES[module])
    for name in names:
        now = NAMES.get(name, name)
        with pytest.warns(DeprecationWarning, match=f"{module}.{name} is {HOMES[module]}.{now} now") as caught:
            found = getattr(importlib.import_module(module), name)
        assert found is getattr(home, now)
        assert caught[0].filename == __file__


def test_an_old_import_statement_works() -> None:
    with pytest.warns(DeprecationWarning, match="CheckpointStore"):
        from locus.memory.threads import Threads  # type: ignore[import-not-found]
    with pytest.warns(DeprecationWarning, match="Checkpointer"):
        from locus.memory.thread_checkpointer import ThreadCheckpointer  # type: ignore[import-not-found]
    assert (Threads, ThreadCheckpointer) == (CheckpointStore, Checkpointer)


def test_a_name_that_never_was_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="NoSuchThing"):
        exec("from locus.memory.threads import NoSuchThing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("locus.memory.no_such_module")
