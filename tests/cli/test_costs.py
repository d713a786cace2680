"""What is shown on a page is all that is read, however many threads and checkpoints there are."""

from __future__ import annotations

import argparse
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from locus.cli import log, parser, show, threads
from locus.cli.terminal import Terminal
from locus.memory.backends import sqlite_checkpointer
from locus.memory.backends.sqlite.engine import SQLiteEngine
from locus.memory.model.records import NewestThreads, Stored
from locus.memory.storage import StorageBackend
from locus.memory.store import CheckpointStore

COUNTED = ("threads", "newest_threads", "history", "entry", "namespaces", "read", "read_part", "manifest", "find")


def named(words: tuple[Any, ...]) -> str:
    return " ".join([words[0].__name__.rpartition(".")[2], *words[1:]])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What SQLite's engine is asked for, and how many rows and runs come back."""
    found: Counter[str] = Counter()

    def counting(name: str) -> Any:
        plain = getattr(SQLiteEngine, name)

        async def call(self: SQLiteEngine, *args: Any, **kwargs: Any) -> Any:
            answer = await plain(self, *args, **kwargs)
            found[name] += 1
            if isinstance(answer, list):
                found[f"rows of {name}"] += len(answer)
            elif isinstance(answer, NewestThreads):
                found[f"rows of {name}"] += len(answer.entries)
            elif isinstance(answer, Stored):
                found["runs"] += sum(map(len, answer.runs.values()))
            return answer

        return call

    for name in COUNTED:
        monkeypatch.setattr(SQLiteEngine, name, counting(name))
    return found


async def counts(found: Counter[str], store: CheckpointStore, command: Any, *words: str) -> dict[str, int]:
    name = command.__name__.rpartition(".")[2]
    options: argparse.Namespace = parser(name).parse_args([name, *words])
    for word, at in (("thread", "log"), ("rev", "show"), ("glob", "threads")):
        if at == name:
            setattr(options, word, options.words[0] if options.words else None)
    terminal = Terminal(io.StringIO(), io.StringIO())
    found.clear()
    await command.run(store, options, terminal)
    terminal.flush()
    return dict(found)


@pytest.mark.parametrize(
    "words",
    [(threads,), (threads, "--recent"), (threads, "--after", "t000100"), (threads, "t0001*")],
    ids=named,
)
async def test_a_page_of_threads(words: tuple[Any, ...], counted: Counter[str], tmp_path: Path) -> None:
    seen = []
    for many in (200, 600):
        async with sqlite_checkpointer(tmp_path / f"{many}.db", durability="normal") as handle:
            backend = StorageBackend(handle.store)
            for number in range(many):
                await backend.save(f"t{number:06}", {"messages": [{"role": "user", "content": "hello"}]})
            seen.append(await counts(counted, handle.store, *words))
    assert seen[0] == seen[1]
    assert max(seen[0].values()) <= 150


@pytest.mark.parametrize(
    "words",
    [
        (log, "t"),
        (log, "t", "--graph", "--stat"),
        (log, "t", "--before", "#70"),
        (show, "t"),
        (show, "t@#70"),
        (show, "t@~3"),
        (show, "t", "--messages", "0:5"),
    ],
    ids=named,
)
async def test_a_page_of_a_thread(words: tuple[Any, ...], counted: Counter[str], tmp_path: Path) -> None:
    seen = []
    for many in (200, 600):
        async with sqlite_checkpointer(tmp_path / f"{many}.db", durability="normal") as handle:
            backend = StorageBackend(handle.store)
            data: dict[str, Any] = {"messages": []}
            for number in range(many):
                data["messages"].append({"role": "user", "content": f"{number}"})
                await backend.save("t", data)
            seen.append(await counts(counted, handle.store, *words))
    assert seen[0] == seen[1]
    assert max(seen[0].values()) <= 150
