"""Every command, on a terminal and through pipes, on real servers: the same story gives the same answers everywhere.

The thread has the shapes of three frameworks: our agent's, LangGraph's and a session of the OpenAI Agents SDK.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.checkpointer import Checkpointer
from locus.memory.item_log import ItemLog
from locus.memory.storage import StorageBackend
from locus.testing.stores import TestStore
from tests.backends.every_store import embedded_store, store_on_server
from tests.cli.terminals import Commands, Said

STORES = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server("postgresql")),
    pytest.param("redis", marks=pytest.mark.server("redis")),
    pytest.param("s3", marks=pytest.mark.server("s3")),
    pytest.param("http", marks=pytest.mark.http),
]


async def _story(checkpointer: Checkpointer) -> None:
    state = AgentState(agent_id="shop")
    for turn in range(4):
        state = state.with_message(Message.user(f"Where is order {turn}?")).with_message(Message.assistant("Coming."))
        await checkpointer.save(state, "acme/agent", f"cp-{turn}", metadata={"turn": turn})
    fork = await checkpointer.load("acme/agent", "cp-1")
    assert fork is not None
    await checkpointer.save(fork.with_message(Message.user("Another way")), "acme/agent", "fork")
    backend = StorageBackend(checkpointer.store)
    messages = [{"$type": "HumanMessage", "content": "Plan a trip"}, {"$type": "AIMessage", "content": "To where?"}]
    graph: dict[str, Any] = {"langgraph": 1, "v": 4, "channel_values": {"messages": messages}}
    await backend.save("acme/graph", graph, namespace="")
    log = ItemLog(checkpointer.store, "session", "openai-agents")
    await log.append([{"role": "user", "content": "Sing a song"}])


ON_TERMINALS = {
    "threads": {0},
    "threads --recent": {0},
    "log acme/agent --stat": {0},
    "show acme/agent": {0},
    "show acme/agent --writes": {0},
    "diff acme/agent@cp-0 acme/agent@cp-3": {0},
    "bisect acme/agent --to cp-3 --path messages.5": {0},
    "search song": {0, 5},
    "find turn=2": {0},
    "stats --if-vacuum keep-last=1": {0},
    "doctor --quick": {0, 1},
    "migrate": {0},
    "vacuum --keep-last 1": {0},
    "delete acme/agent@cp-1": {0},
    "erase acme/": {0},
    "fork acme/agent acme/graph": {4},
}
"""Every command about a store, and what it may end with: some have no search, some servers are not set up well."""


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestStore]:
    opened = nullcontext(embedded_store("sqlite", tmp_path)) if request.param == "sqlite" else None
    with opened or store_on_server(request.param, request, tmp_path) as found:
        asyncio.run(_told(found))
        yield found


async def _told(store: TestStore) -> None:
    async with store.open() as checkpointer:
        await _story(checkpointer)


def url_of(store: TestStore) -> str:
    url = getattr(store, "url", None)
    assert isinstance(url, str)
    return url


def document(said: Said) -> Any:
    assert (said.code, said.err) == (0, ""), said
    return json.loads(said.out)


def records(said: Said) -> list[Any]:
    assert said.code == 0, said
    return [json.loads(line) for line in said.lines]


def test_the_same_answers_everywhere(locus: Commands, store: TestStore, tmp_path: Path) -> None:
    locus.environment = {
        "LOCUS_STORE": url_of(store),
        **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
    }
    assert {one["thread_id"]: one["title"] for one in records(locus.piped("threads", "--json"))} == {
        "acme/agent": "Where is order 0?",
        "acme/graph": "Plan a trip",
        "session": "Sing a song",
    }
    recent = records(locus.piped("threads", "--recent", "acme/*", "--json"))
    assert [one["thread_id"] for one in recent] == ["acme/graph", "acme/agent"]
    log = records(locus.piped("log", "acme/agent", "--json", "--stat"))
    assert [(one["checkpoint_id"], one["added"]) for one in log] == [
        ("fork", {"messages": 1}),
        ("cp-3", {"messages": 2}),
        ("cp-2", {"messages": 2}),
        ("cp-1", {"messages": 2}),
        ("cp-0", {"messages": 2}),
    ]
    assert [
        line[:3].rstrip() for line in locus.on_terminal("log", "acme/agent", "--graph", env={"NO_COLOR": "1"}).lines
    ] == [
        "*",
        "| *",
        "| *",
        "|/",
        "*",
        "*",
    ]
    shown = document(locus.piped("show", "acme/graph", "--json"))
    assert (shown["path"], shown["total"]) == (["channel_values", "messages"], 2)
    assert "user\n    Sing a song" in locus.piped("show", "session").out
    compared = document(locus.piped("diff", "acme/agent@cp-3", "acme/agent@fork", "--json"))
    (messages,) = compared["lists"]
    assert (messages["path"], messages["added"], messages["removed"]) == (["messages"], 1, 4)
    assert locus.on_terminal("diff", "acme/agent@cp-0", "acme/graph", "--exit-code").code == 1
    found = document(locus.piped("bisect", "acme/agent", "--to", "cp-3", "--appears", "order 2", "--json"))
    assert (found["found"]["checkpoint_id"], found["before"]["checkpoint_id"]) == ("cp-2", "cp-1")
    assert [one["checkpoint_id"] for one in records(locus.piped("find", "turn=2", "--json"))] == ["cp-2"]
    searched = locus.piped("search", "song", "--json")
    if url_of(store).startswith(("s3:", "redis:")):  # which has no module for it here
        assert searched.code == 5
    else:
        assert records(searched)[0]["thread_id"] == "session"
    assert document(locus.piped("stats", "acme/agent", "--json"))["checkpoints"] == 5
    assert document(locus.piped("stats", "--json"))["threads"] == 3
    examined = locus.piped("doctor", "--json")
    assert json.loads(examined.out)["damaged"] == [], "a server of the tests may be set up to be quick, and not safe"
    assert locus.piped("migrate").code == 0
    for words, codes in ON_TERMINALS.items():
        said = locus.on_terminal(*words.split(), env={"NO_COLOR": "1"})
        assert said.code in codes, said
        assert said.code > 1 or max(map(len, said.lines)) <= 80, "errors are not cut"
    exported = tmp_path / "all.jsonl"
    assert locus.piped("export", "acme/agent", "acme/graph", "session", "-o", str(exported)).code == 0
    back = f"sqlite:{tmp_path / 'back.db'}"
    assert locus.piped("import", "jsonl", str(exported), back).code == 0
    again = records(locus.piped("-s", back, "log", "acme/agent", "--json"))
    assert [one["checkpoint_id"] for one in again] == [one["checkpoint_id"] for one in log]
    assert locus.piped("fork", "acme/agent@cp-1", "acme/forked").code == 0
    assert len(records(locus.piped("log", "acme/forked", "--json"))) == 2
    assert document(locus.piped("vacuum", "--keep-last", "1", "--json"))["checkpoints"] == 4
    assert document(locus.piped("delete", "acme/forked", "--apply", "--json"))["deleted"] is True
    erased = document(locus.piped("erase", "acme/", "--apply", "--json"))
    assert erased["threads"] == 2
    assert [one["thread_id"] for one in records(locus.piped("threads", "--json"))] == ["session"]


def test_every_command_fits_on_a_terminal(locus: Commands, tmp_path: Path) -> None:
    store = embedded_store("sqlite", tmp_path)
    asyncio.run(_told(store))
    locus.environment = {"LOCUS_STORE": url_of(store), "NO_COLOR": "1"}
    for words in (
        ["threads"],
        ["log", "acme/agent", "--graph", "--stat"],
        ["show", "acme/agent"],
        ["diff", "acme/agent@cp-0", "acme/agent@cp-3"],
        ["bisect", "acme/agent", "--appears", "order 0"],
        ["stats", "acme/agent", "--if-vacuum", "keep-last=1"],
        ["doctor", "--quick"],
        ["vacuum", "--keep-last", "1"],
    ):
        for columns in (40, 80):
            said = locus.on_terminal(*words, columns=columns)
            assert said.code == 0, said
            assert max(map(len, said.lines)) <= columns, said.out
