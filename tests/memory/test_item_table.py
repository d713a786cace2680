"""Items beside the threads of a database. The tests of LangGraph's store hold the rest."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from locus.errors import CapabilityError, InvalidIdError
from locus.memory.item_table import Put, Search, checked_key, namespace_of, path_of
from locus.threads import ThreadStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("namespace", [(), ("a",), ("a/b", "c~d"), ("~1", "~0/")])
def test_a_path_says_which_labels_it_has(namespace: tuple[str, ...]) -> None:
    assert namespace_of(path_of(namespace)) == namespace


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(InvalidIdError, match="1024 bytes"):
        checked_key("ä" * 513)


async def test_a_read_answers_each_question_as_of_one_instant(tmp_path: Path) -> None:
    store = ThreadStore.open(f"sqlite:{tmp_path / 'items.db'}")
    table = store.items()
    assert await table.count() == 0
    await table.write(NOW, [Put("a/", "x", '{"n":1}'), Put("a/b/", "y", '{"n":2}', 5.0), Put("c/", "z", '{"n":"two"}')])
    answers = await table.read(
        NOW,
        gets=[("a/", "x"), ("a/", "missing")],
        searches=[
            Search("a/", 10),
            Search("", 10, wanted={"n": {"$gt": 1}}),
            Search("", 10, query="two words"),
        ],
        below=["a/"],
    )
    assert [item and item.value for item in answers.items] == ['{"n":1}', None]
    assert [[match.item.key for match in page] for page in answers.pages] == [["y", "x"], ["y"], ["z", "y", "x"]]
    assert [match.score for match in answers.pages[2]] == [0.5, None, None]
    assert [sorted(paths) for paths in answers.paths] == [["a/", "a/b/"]]

    ending = answers.pages[1][0].item
    await table.write(NOW + timedelta(minutes=4), used=[ending])
    later = NOW + timedelta(minutes=8)
    assert (await table.read(later, gets=[("a/b/", "y")])).items[0] == ending._replace(
        expires_at=NOW + timedelta(minutes=9)
    )
    assert await table.sweep(NOW + timedelta(minutes=9)) == 1
    assert await table.count() == 2
    await table.write(later, [Put("c/", "z", None)])
    assert [item.key for item in await table.following(None, later)] == ["x"]
    await store.close()


async def test_a_store_without_such_a_table_says_so() -> None:
    with pytest.raises(CapabilityError, match="SQLite or PostgreSQL, and not MemoryEngine"):
        ThreadStore.open("memory").items()


def test_items_are_copied_where_langgraph_is_not_installed() -> None:
    code = "import sys; sys.modules['langgraph'] = None; import locus.transfer.store_items"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
