"""The same checkpoints every time: what they look like in a store is pinned, and must stay readable.

`python -m tests.format.story` writes the data of a format that is new. What a format that was released
has written is never written anew.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, tzinfo
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from locus.core import state as states
from locus.core.messages import ContentBlock, Message, ToolCall, ToolResult
from locus.core.state import AgentState, ToolExecution
from locus.memory import store as store_module
from locus.memory.backends import FileCheckpointer, sqlite_checkpointer
from locus.memory.backends.file.schema import FORMAT
from locus.memory.backends.sqlite.schema import MIGRATIONS
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import at

DATA = Path(__file__).parent / "data"
PLAIN, HOSTILE, EMPTIED = "support-42", "Tenant/Ä: 'x'", "emptied"

Told = dict[tuple[str, str, str], AgentState]
"""Every checkpoint that is there at the end, by thread, namespace and id."""


class Clock(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return at(0).astimezone(tz)


@contextmanager
def repeatable() -> Iterator[None]:
    """Ids are counted, and time stands still."""
    numbers = count(1)
    with (
        patch.object(store_module, "new_id", lambda: f"{next(numbers):020x}"),
        patch.object(store_module, "datetime", Clock),
        patch.object(states, "_now", lambda: at(0)),
    ):
        yield


async def tell(cp: Checkpointer) -> Told:
    """Save, edit, fork, replace and delete."""
    told: Told = {}

    async def save(state: AgentState, thread_id: str, checkpoint_id: str, **options: Any) -> AgentState:
        await cp.save(state, thread_id, checkpoint_id, **options)
        told[thread_id, options.get("namespace", "default"), checkpoint_id] = state
        return state

    start = AgentState(agent_id="agent", run_id="run", started_at=at(0), updated_at=at(0))
    one = await save(
        start.with_messages([Message.system("be brief"), Message.user("café, 😀 or \0?")]),
        PLAIN,
        "one",
        metadata={"user": "eve", "n": 1, "nested": {"a": [True, None, 1.5]}},
    )
    call = ToolCall(id="call-1", name="search", arguments={"q": "coffee", "limit": 3})
    result = ToolResult(tool_call_id="call-1", name="search", content="3 hits", structured_content={"rows": [[1, 2.0]]})
    execution = ToolExecution(tool_name="search", tool_call_id="call-1", result="3 hits", timestamp=at(1))
    two = await save(
        one.with_message(Message.assistant(None, [call]))
        .with_message(Message.tool(result))
        .with_tool_execution(execution)
        .with_confidence(0.5)
        .with_token_usage(10, 20),
        PLAIN,
        "two",
    )
    edited = two.messages[:-1] + (Message.user([ContentBlock.of_text("look"), ContentBlock.image_base64("aGk=")]),)
    await save(two.with_messages_replaced(edited).with_metadata("big", "m" * 1_100), PLAIN, "three")
    await save(one.with_message(Message.user("another way")).with_error("e" * 80), PLAIN, "fork")
    await save(two.with_messages_replaced(two.messages[1:]), PLAIN, "trimmed", namespace="")
    await cp.put_writes(PLAIN, "two", "task", [("channel", {"x": [1]}), ("__error__", "no")], task_path="a/b")
    await save(one, HOSTILE, "replaced", metadata={"old": True})
    await save(one.with_metadata("list", [{"n": n} for n in range(9)]), HOSTILE, "replaced", metadata={"old": False})
    await save(one.next_iteration(), HOSTILE, "gone")
    await save(one.next_iteration().next_iteration(), HOSTILE, "last")
    await cp.delete(HOSTILE, "gone")
    await cp.save(one, EMPTIED, "x")
    await cp.delete(EMPTIED)
    del told[HOSTILE, "default", "gone"]
    return told


def _written(cp: Checkpointer) -> Told:
    async def write() -> Told:
        async with cp:
            return await tell(cp)

    with repeatable():
        return asyncio.run(write())


def write_database(path: Path) -> Told:
    return _written(sqlite_checkpointer(path))


def write_folder(path: Path, *, pretty: bool = True) -> Told:
    return _written(FileCheckpointer(path, pretty))


def dumped(path: Path) -> str:
    """A database as text: the statements that made its tables, and the rows in them."""
    lines: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute(
            "SELECT name, type, sql FROM sqlite_master WHERE name LIKE 'locus_%' AND name NOT LIKE 'locus_search_%'"
            " ORDER BY name"
        ).fetchall()
        for name, kind, sql in made:
            lines.append(f"{sql};")
            if kind != "table" or name == "locus_search":
                continue
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            quoted = " || ', ' || ".join(f"quote({column})" for column in columns)
            rows = connection.execute(f"SELECT {quoted} FROM {name} ORDER BY 1").fetchall()
            lines += [f"INSERT INTO {name} VALUES ({row[0]});" for row in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    database = DATA / f"sqlite-{len(MIGRATIONS)}.db"
    folder = DATA / f"file-{FORMAT}"
    for old in (database, *folder.glob("*.jsonl")):
        old.unlink(missing_ok=True)
    write_database(database)
    database.with_suffix(".sql").write_text(dumped(database), encoding="utf-8", newline="\n")
    write_folder(folder)
    for lock in (folder / ".locks").iterdir():
        lock.unlink()
    (folder / ".locks").rmdir()


if __name__ == "__main__":
    main()
