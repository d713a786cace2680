"""`locus effects`: the ledger of a store, on a terminal and through pipes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from locus.core.state import AgentState
from locus.effects import Effects
from locus.memory.backends import sqlite_checkpointer
from tests.cli.terminals import Commands

HOSTILE = "\x1b[31mred\n--apply"


async def _made(path: Path) -> None:
    async with Effects(f"sqlite:{path}") as effects:
        await effects.once("order-1", lambda: {"receipt": 1})
        await effects.once(HOSTILE, lambda: HOSTILE, thread_id=HOSTILE)
        for key in ("order-2", "order-3"):
            with pytest.raises(TimeoutError):
                await effects.once(key, _late, thread_id="t")
        with pytest.raises(ConnectionError):
            await effects.once("order-4", _refused)


async def _late() -> None:
    raise TimeoutError


async def _refused() -> None:
    raise ConnectionError("refused")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store that has effects, and no threads."""
    asyncio.run(_made(tmp_path / "agents.db"))
    return tmp_path


def test_effects_are_listed_by_state_and_thread(locus: Commands, folder: Path) -> None:
    def listed(*options: str) -> list[Any]:
        said = locus.piped("effects", "list", "--json", *options, cwd=folder)
        assert said.code == 0, said
        return [(one["thread_id"], one["key"], one["state"]) for one in map(json.loads, said.lines)]

    assert listed("--state", "unknown") == [("t", "order-2", "unknown"), ("t", "order-3", "unknown")]
    assert listed("--thread", "t", "-n", "1") == [("t", "order-2", "unknown")]
    assert len(listed()) == 5
    said = locus.piped("effects", "list", cwd=folder)
    assert "\x1b" not in said.out
    assert [line.split()[:2] for line in said.lines][:2] == [["done", "order-1"], ["failed", "order-4"]]
    shown = locus.piped("effects", "show", "order-1", cwd=folder)
    assert '"receipt": 1' in shown.out
    assert "ConnectionError: refused" in locus.piped("effects", "show", "order-4", cwd=folder).out


def test_what_is_unknown_is_settled_with_a_note(locus: Commands, folder: Path) -> None:
    settle = ("effects", "settle", "order-2", "done", "--thread", "t", "--note", "on the statement", "--result", "[7]")
    dry = locus.piped(*settle, cwd=folder)
    assert (dry.code, dry.out) == (0, "would settle as done: order-2\n")
    assert "--apply" in dry.err
    done = locus.piped(*settle, "--apply", "--json", cwd=folder)
    effect = json.loads(done.out)
    assert (effect["state"], effect["result"], effect["note"]) == ("done", [7], "on the statement")
    again = locus.piped(*settle, "--apply", cwd=folder)
    assert (again.code, "done already" in again.err) == (2, True)
    made = asyncio.run(_made_again(folder / "agents.db"))
    assert made == [7]
    forgot = locus.piped("effects", "forget", "order-2", "--thread", "t", "--apply", cwd=folder)
    assert forgot.out == "forgot: order-2\n"
    assert locus.piped("effects", "show", "order-2", "--thread", "t", cwd=folder).code == 3


def test_the_doctor_names_what_is_unknown(locus: Commands, folder: Path) -> None:
    asyncio.run(_talked(folder / "agents.db"))
    said = locus.piped("doctor", cwd=folder)
    assert (said.code, "of 2 effects nobody knows" in said.out) == (1, True), said
    for key in ("order-2", "order-3"):
        locus.piped("effects", "settle", key, "failed", "--thread", "t", "--note", "x", "--apply", cwd=folder)
    assert "all is well" in locus.piped("doctor", cwd=folder).out


async def _talked(path: Path) -> None:
    async with sqlite_checkpointer(path) as checkpointer:
        await checkpointer.save(AgentState(), "t")


async def _made_again(path: Path) -> Any:
    async with Effects(f"sqlite:{path}") as effects:
        return await effects.once("order-2", _refused, thread_id="t")


def test_words_that_cannot_be_are_refused(locus: Commands, folder: Path) -> None:
    for words, said in (
        (("settle", "order-2", "begun", "--note", "x"), "done or failed"),
        (("settle", "order-2", "done"), "--note"),
        (("settle", "order-2", "done", "--note", "x", "--result", "{"), "is JSON"),
        (("settle", "order-2", "failed", "--note", "x", "--result", "1"), "goes with done"),
    ):
        refused = locus.piped("effects", *words, "--thread", "t", cwd=folder)
        assert (refused.code, said in refused.err) == (2, True), refused
    missing = locus.piped("effects", "show", "order-2", cwd=folder)
    assert (missing.code, "--thread" in missing.err) == (3, True)
