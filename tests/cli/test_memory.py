"""`locus memory`: the items of a store, on a terminal and through pipes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.errors import CorruptCheckpointError
from locus.memory import get_long_term_memory
from locus.memory.backends import sqlite_checkpointer
from locus.memory.long_term.names import namespace_from, path_of
from locus.transfer.memory_lines import import_lines
from tests.cli.terminals import Commands, Said

ADA = ("users", "ada", "memories")
HOSTILE = "\x1b[31mred\x07 \u202eback\n--apply"
ODD = ("users", "a/b~", HOSTILE)


async def _learnt(path: Path) -> None:
    async with get_long_term_memory(f"sqlite:{path}") as memory:
        await memory.put(ADA, "tea", {"text": "Ada drinks green tea.", "kind": "taste"}, source="monday")
        await memory.put(ADA, "tea", {"text": "Ada drinks black tea.", "kind": "taste"}, {"sure": 0.9}, source="friday")
        await memory.put(ADA, "city", {"text": "Ada lives in Lisbon."}, source="monday")
        await memory.put(ODD, HOSTILE, ["tea", HOSTILE])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store that has items, and no threads."""
    asyncio.run(_learnt(tmp_path / "agents.db"))
    return tmp_path


def records(said: Said) -> list[Any]:
    assert said.code == 0, said
    return [json.loads(line) for line in said.lines]


def test_items_and_namespaces_are_listed(locus: Commands, folder: Path) -> None:
    said = locus.piped("memory", "list", "users/ada", cwd=folder)
    assert (said.code, said.err) == (0, "")
    assert [line.split()[:3] for line in said.lines] == [
        ["users/ada/memories/", "city", "v1"],
        ["users/ada/memories/", "tea", "v2"],
    ]
    assert said.lines[1].endswith("Ada drinks black tea.")
    first = locus.piped("memory", "list", "-n", "1", "--json", cwd=folder)
    assert (records(first)[0]["key"], first.err) == ("city", "more: --offset 1\n")
    assert [one["key"] for one in records(locus.piped("memory", "list", "--offset", "1", "--json", cwd=folder))] == [
        "tea",
        HOSTILE,
    ]
    names = [one["namespace"] for one in records(locus.piped("memory", "list", "--namespaces", "--json", cwd=folder))]
    assert names == [list(ADA), list(ODD)]
    assert locus.piped("memory", "list", "--namespaces", "users/ada/", cwd=folder).out == "users/ada/memories/\n"
    assert locus.piped("memory", "list", "nobody", cwd=folder).err == "nothing found\n"


def test_an_item_is_shown_with_where_it_came_from(locus: Commands, folder: Path) -> None:
    said = locus.piped("memory", "show", "users/ada/memories/", "tea", "--utc", cwd=folder)
    facts = dict(line.split(maxsplit=1) for line in said.lines[:3])
    assert facts == {"namespace": "users/ada/memories/", "key": "tea", "version": "2"}
    assert "source     friday" in said.lines
    assert 'metadata   {"sure": 0.9}' in said.lines
    assert '  "text": "Ada drinks black tea.",' in said.lines
    old = json.loads(
        locus.piped("memory", "show", "users/ada/memories", "tea", "--version", "1", "--json", cwd=folder).out
    )
    assert (old["value"]["text"], old["source"], old["version"]) == ("Ada drinks green tea.", "monday", 1)
    missing = locus.piped("memory", "show", "users/ada", "tea", cwd=folder)
    assert (missing.code, "no item 'tea' is in users/ada/" in missing.err) == (3, True)


def test_versions_are_listed(locus: Commands, folder: Path) -> None:
    said = locus.piped("memory", "history", "users/ada/memories", "tea", cwd=folder)
    assert [line.split()[0] for line in said.lines] == ["v2", "v1"]
    assert [line.split("  ")[-2:] for line in said.lines] == [
        ["friday", "Ada drinks black tea."],
        ["monday", "Ada drinks green tea."],
    ]
    said = locus.piped("memory", "history", "users/ada/memories", "tea", "-n", "1", "--json", cwd=folder)
    assert ([one["version"] for one in records(said)], said.err) == ([2], "older ones are there: -n 2\n")
    assert locus.piped("memory", "history", "users/ada/memories", "x", cwd=folder).code == 3


def test_items_are_found(locus: Commands, folder: Path) -> None:
    found = records(locus.piped("memory", "search", "what", "tea?", "--json", cwd=folder))
    assert [one["key"] for one in found] == [HOSTILE, "tea"]
    assert found[0]["score"] == 1.0
    assert found[0]["similarity"] is None
    under = locus.piped("memory", "search", "tea", "--under", "users/ada/", cwd=folder)
    assert under.lines == ["1.000  users/ada/memories/  tea", "    Ada drinks black tea."]
    kind = locus.piped("memory", "search", "tea", "--filter", "kind=taste", "--json", cwd=folder)
    assert [one["key"] for one in records(kind)] == ["tea"]
    assert locus.piped("memory", "search", "coffee", cwd=folder).err == "nothing found\n"
    assert locus.piped("memory", "search", "tea", "--filter", "kind", cwd=folder).code == 2
    assert "embed=" in locus.piped("memory", "search", "tea", "--by", "vector", cwd=folder).err


@pytest.mark.parametrize(
    "action", [["list"], ["list", "--namespaces"], ["search", "tea"], ["show", path_of(ODD), HOSTILE]]
)
def test_hostile_text_drives_no_terminal(locus: Commands, folder: Path, action: list[str]) -> None:
    said = locus.on_terminal("memory", *action, cwd=folder, env={"NO_COLOR": "1"})
    assert said.code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(said.out)
    assert "red" in said.out
    assert all(len(line) <= 80 for line in said.lines)


def test_forgetting_needs_apply(locus: Commands, folder: Path) -> None:
    for action in (["users/ada/memories/", "tea"], ["users/ada/", "--all"], ["--source", "monday"]):
        said = locus.piped("memory", "forget", *action, cwd=folder)
        assert (said.code, said.err) == (0, "nothing was changed: --apply does it\n")
        assert said.out.startswith("would forget ")
    assert len(records(locus.piped("memory", "list", "--json", cwd=folder))) == 3
    said = locus.piped("memory", "forget", "--source", "monday", "--json", cwd=folder)
    assert json.loads(said.out) == {"versions": 2, "dry_run": True}
    assert locus.piped("memory", "forget", "--source", "monday", "--apply", cwd=folder).out == "forgot 2 versions\n"
    assert [one["key"] for one in records(locus.piped("memory", "list", "--json", cwd=folder))] == ["tea", HOSTILE]
    assert locus.piped("memory", "forget", path_of(ODD), HOSTILE, "--apply", cwd=folder).out == "forgot 1 items\n"
    assert locus.piped("memory", "forget", path_of(ODD), HOSTILE, "--apply", cwd=folder).code == 3
    assert locus.piped("memory", "forget", "users/", "--all", "--apply", cwd=folder).out == "forgot 1 items\n"
    for action in ([], ["users/ada/"], ["users/ada/", "tea", "--all"], ["--all"]):
        assert locus.piped("memory", "forget", *action, "--apply", cwd=folder).code == 2


def test_what_is_exported_is_imported(locus: Commands, folder: Path) -> None:
    assert locus.piped("memory", "export", "-o", "all.jsonl", cwd=folder).code == 0
    assert locus.piped("memory", "export", "-o", "all.jsonl", cwd=folder).code == 2  # it exists
    exported = records(locus.piped("memory", "export", cwd=folder))
    assert (folder / "all.jsonl").read_text(encoding="utf-8").count("\n") == len(exported) == 3
    other = ["-s", "sqlite:other.db"]

    async def begun() -> None:
        async with sqlite_checkpointer(folder / "other.db") as checkpointer:
            await checkpointer.save(AgentState(), "t")

    asyncio.run(begun())
    dry = locus.piped("memory", "import", "all.jsonl", *other, cwd=folder)
    assert (dry.out, dry.err) == (
        "would put 3 items; 0 are there already\n",
        "nothing was changed: --apply does it\n",
    )
    assert locus.piped("memory", "list", *other, cwd=folder).err.startswith("nothing was ever put")
    said = locus.piped("memory", "import", "all.jsonl", "--apply", "--json", *other, cwd=folder)
    assert json.loads(said.out) == {"put": 3, "present": 0, "ended": 0, "dry_run": False}
    again = locus.piped("memory", "import", "all.jsonl", "--apply", *other, cwd=folder)
    assert again.out == "put 0 items; 3 are there already\n"
    kept = ("namespace", "key", "value", "metadata", "source", "index")
    there = records(locus.piped("memory", "export", *other, cwd=folder))
    assert [[one[name] for name in kept] for one in there] == [[one[name] for name in kept] for one in exported]
    below = locus.piped("memory", "import", "all.jsonl", "--under", "acme/", "--apply", *other, cwd=folder)
    assert below.out == "put 3 items; 0 are there already\n"
    names = records(locus.piped("memory", "list", "acme/", "--namespaces", "--json", *other, cwd=folder))
    assert [one["namespace"] for one in names] == [["acme", *ADA], ["acme", *ODD]]


GOOD = {"namespace": ["a"], "key": "k", "value": 1}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "line 2 of the file is no item"),
        ("[]", "no JSON object"),
        ("1" * 5_000, "line 2"),
        ("[" * 100_000, "line 2"),
        ('{"namespace": ["a"], "key": "k"}', "lacks 'value'"),
        (json.dumps({**GOOD, "namespace": "a"}), "no list of texts"),
        (json.dumps({**GOOD, "key": 1}), "no text"),
        (json.dumps({**GOOD, "value": None}), "null"),
        (json.dumps({**GOOD, "metadata": [1]}), "metadata no object"),
        (json.dumps({**GOOD, "expires_at": "soon"}), "line 2"),
        (json.dumps({**GOOD, "expires_at": "2030-01-01"}), "line 2"),
    ],
)
async def test_a_file_that_is_no_export_is_refused_before_anything_is_put(tmp_path: Path, line: str, what: str) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(f"{json.dumps(GOOD)}\n{line}\n")
    async with get_long_term_memory("memory") as memory:
        with pytest.raises(CorruptCheckpointError, match=what):
            await import_lines(memory, str(bad))
        assert await memory.list_keys(["a"]) == []


def test_what_has_ended_is_not_imported(locus: Commands, folder: Path) -> None:
    lines = [{**GOOD, "expires_at": "2020-01-01T00:00:00+00:00"}, {**GOOD, "expires_at": "2099-01-01T00:00:00+00:00"}]
    (folder / "some.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    said = locus.piped("memory", "import", "some.jsonl", "--apply", cwd=folder)
    assert said.out == "put 1 items; 0 are there already, 1 have ended\n"
    (item,) = records(locus.piped("memory", "list", "a/", "--json", cwd=folder))
    assert item["expires_at"].startswith(("2098", "2099"))


def test_a_place_without_a_store_is_an_error(locus: Commands, tmp_path: Path) -> None:
    for action in (["list"], ["forget", "a/", "k", "--apply"]):
        said = locus.piped("memory", *action, "-s", "sqlite:typo.db", cwd=tmp_path)
        assert said.code == 2
        assert "is that the right place?" in said.err
    assert not (tmp_path / "typo.db").exists()


def test_wrong_words_are_told(locus: Commands, folder: Path) -> None:
    said = locus.piped("memory", "list", "--namespace", "--offest", "1", cwd=folder)
    assert "locus memory list: error: there is no option '--offest' (did you mean '--offset'?)" in said.err
    assert "invalid choice: 'lsit'" in locus.piped("memory", "lsit", cwd=folder).err
    assert locus.piped("memory", "show", "users/", cwd=folder).code == 2


@pytest.mark.parametrize("namespace", [(), ("a",), ("a/b", "~", "!x", " "), ("", "a"), ("a", ""), ("~1", "~2!", "")])
def test_a_path_names_its_namespace(namespace: tuple[str, ...]) -> None:
    assert namespace_from(path_of(namespace)) == namespace
