"""What a support engineer asks of a conversation, one command each, with a thread of every framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.storage import StorageBackend
from tests.cli.terminals import Commands, commands
from tests.looking.stories import QUESTIONS, STORIES, WAITING, WITHOUT_TOOLS

WRONG = "8.99"


@pytest.fixture(scope="module")
def locus() -> Iterator[Commands]:
    with commands() as started:
        yield started


def saves(locus: Commands, told: Path, thread_id: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in locus.piped("log", thread_id, "--json", cwd=told.parent).lines]


@pytest.mark.parametrize("thread_id", STORIES)
def test_what_did_it_know_then(locus: Commands, told: Path, thread_id: str) -> None:
    answered = [
        save
        for save in saves(locus, told, thread_id)
        if any("costs 89.90" in one["text"] for one in save["said"])  # type: ignore[attr-defined]
    ]
    said = locus.piped("show", f"{thread_id}@{answered[0]['created_at']}", cwd=told.parent)
    assert said.code == 0
    assert "The Peak jacket costs 89.90." in said.lines[-1]
    assert QUESTIONS[0] in said.out
    assert WRONG not in said.out


@pytest.mark.parametrize("thread_id", STORIES)
def test_which_turn_brought_the_wrong_price(locus: Commands, told: Path, thread_id: str) -> None:
    said = locus.piped("bisect", thread_id, WRONG, cwd=told.parent)
    assert said.code == 0
    assert f": {QUESTIONS[1]}" in said.lines[1]
    assert said.lines[2].strip() in (f"tool: {WRONG}", f"assistant: The Peak jacket costs {WRONG}.")
    shown = locus.on_terminal("bisect", thread_id, WRONG, cwd=told.parent)
    assert f"\x1b[1;7m{WRONG}\x1b[0m" in shown.out


@pytest.mark.parametrize("thread_id", STORIES)
def test_the_log_says_what_was_said(locus: Commands, told: Path, thread_id: str) -> None:
    said = locus.on_terminal("log", thread_id, cwd=told.parent, env={"NO_COLOR": "1"})
    words = [*QUESTIONS, '→ get_price("Peak")', "← 89.90", "← 8.99", "assistant", "user", "The Peak jacket costs 8.99."]
    if thread_id == "shop/alice/adk":
        words[-3] = "clerk"
    if thread_id in WITHOUT_TOOLS:
        words = [word for word in words if word[0] not in "→←"]
    assert [word for word in words if word not in said.out] == []
    assert max(map(len, said.lines)) <= 80


@pytest.mark.parametrize("thread_id", STORIES)
def test_the_diff_begins_with_what_was_said(locus: Commands, told: Path, thread_id: str) -> None:
    said = locus.piped("diff", f"{thread_id}@~1", thread_id, cwd=told.parent)
    assert f"The Peak jacket costs {WRONG}." in said.out
    assert "  + [" in said.lines[3]
    assert not {"updated_at", "channel_versions", "run_id"} & set(said.out.replace(":", " ").split())
    everything = locus.piped("diff", f"{thread_id}@~1", thread_id, "--all", cwd=told.parent).lines
    assert len(everything) >= len(said.lines)


@pytest.mark.parametrize("thread_id", WAITING)
def test_what_waits_says_so(locus: Commands, told: Path, thread_id: str) -> None:
    assert "◷ waits for a person: " in locus.piped("log", thread_id, cwd=told.parent).out
    assert saves(locus, told, thread_id)[0]["status"] == "waiting for a person"


@pytest.fixture(scope="module")
def dated(locus: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which a message was said at each hour of some days."""
    folder = tmp_path_factory.mktemp("dated")

    async def story() -> None:
        async with sqlite_checkpointer(folder / "agents.db") as checkpointer:
            state = AgentState()
            for hour in range(72):
                state = state.with_message(Message.user(f"Hour {hour}."))
                await checkpointer.save(state, "t", f"cp-{hour}")

    asyncio.run(story())
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=30, microsecond=0) - timedelta(days=2)
    exported = locus.piped("export", "t", cwd=folder)
    lines = [json.loads(line) for line in exported.lines]
    for line in lines:
        if "created_at" in line:
            hour = int(line["checkpoint_id"].removeprefix("cp-"))
            line["created_at"] = (begin + timedelta(hours=hour)).isoformat()
    (folder / "dated.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "agents.db").unlink()
    assert locus.piped("import", "jsonl", "dated.jsonl", "sqlite:agents.db", cwd=folder).code == 0
    return folder


@pytest.mark.parametrize(
    ("time", "hour"),
    [("{yesterday}T14:00", 38), ("{yesterday}T14:00:29", 37), ("{yesterday}T14:00:30", 38), ("{yesterday}", 47)],
)
def test_times_name_checkpoints(locus: Commands, dated: Path, time: str, hour: int) -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    time = time.format(yesterday=yesterday)
    said = locus.piped("show", f"t@{time}", "--utc", cwd=dated, env={"TZ": "UTC"})
    assert said.lines[-1].strip() == f"Hour {hour}."
    assert " UTC (" in said.lines[2]
    assert locus.piped("show", "t@yesterday", cwd=dated, env={"TZ": "UTC"}).lines[-1].strip() == "Hour 47."
    zoned = locus.piped("show", f"t@{yesterday}T16:00+02:00", cwd=dated, env={"TZ": "Asia/Tokyo"})
    assert zoned.lines[-1].strip() == "Hour 38."
    early = locus.piped("show", "t@2001-01-01", cwd=dated)
    assert (early.code, "has nothing from then: it begins with #1" in early.err) == (3, True)


def test_times_are_local_or_in_utc(locus: Commands, dated: Path) -> None:
    for words, zone, hour in (([], "UTC", "14"), ([], "Asia/Tokyo", "23"), (["--utc"], "Asia/Tokyo", "14")):
        said = locus.piped("log", "t", "--before", "#40", "-n", "1", *words, cwd=dated, env={"TZ": zone})
        assert said.lines[0].split()[2] == f"{hour}:00:30"


@pytest.mark.parametrize("thread_id", STORIES)
def test_a_search_says_who_said_it(locus: Commands, told: Path, thread_id: str) -> None:
    said = locus.piped("search", WRONG, "--thread", thread_id, "--json", cwd=told.parent)
    found = [json.loads(line) for line in said.lines]
    assert {one["thread_id"] for one in found} == {thread_id}
    assert {one["role"] for one in found} <= {"tool", "assistant"}
    assert all(WRONG in one["excerpt"] for one in found)
    shown = locus.on_terminal("search", WRONG, "--thread", thread_id, "--role", "tool", cwd=told.parent)
    assert ("tool" in shown.out, f"\x1b[1;7m{WRONG}\x1b[0m" in shown.out) == (True, True) or not any(
        one["role"] == "tool" for one in found
    )


def test_numbers_count_as_they_are_written(locus: Commands, tmp_path: Path) -> None:
    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            for name, text in (
                ("apart", "80 % of 99 people, or 8 of 10, said so. " + "Much is said. " * 40 + "You paid 99."),
                ("there", "80 % of all. " + "Much is said here, too. " * 40 + "You paid 8.99 for it."),
                ("larger", "It was 18.99, or 8.995, and 8 of 99."),
            ):
                await checkpointer.save(AgentState().with_message(Message.user(text)), name)

    asyncio.run(story())
    first = json.loads(locus.piped("search", WRONG, "--json", cwd=tmp_path).lines[0])
    assert (first["thread_id"], "You paid 8.99 for it." in first["excerpt"]) == ("there", True)
    shown = locus.on_terminal("search", WRONG, cwd=tmp_path).out
    assert shown.count("\x1b[1;7m") == 1
    assert "\x1b[1;7m8.99\x1b[0m" in shown


def test_a_search_is_narrowed_by_time(locus: Commands, dated: Path) -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    words = ["search", "Hour", "-n", "500", "--since", f"{yesterday}T14:00", "--until", f"{yesterday}T16:00", "--json"]
    found = [json.loads(line) for line in locus.piped(*words, cwd=dated, env={"TZ": "UTC"}).lines]
    assert sorted(one["excerpt"] for one in found) == ["Hour 38.", "Hour 39.", "Hour 40."]


def test_what_is_typed_wrong_gets_a_hint(locus: Commands, told: Path) -> None:
    said = locus.piped("log", "agent", "--grahp", cwd=told.parent)
    assert (said.code, "locus log: error: there is no option '--grahp' (did you mean '--graph'?)" in said.err) == (
        2,
        True,
    )
    both = locus.piped("vacuum", "--apply", "--dry-run", cwd=told.parent)
    assert (both.code, "not allowed with" in both.err) == (2, True)
    assert locus.piped("vacuum", "--dry-run", cwd=told.parent).out == "would remove 0 checkpoints\n"
    assert "say one thing to look for" in locus.piped("bisect", "agent", cwd=told.parent).err
    assert "say one thing to look for" in locus.piped("bisect", "agent", "a", "--path", "b", cwd=told.parent).err


def test_threads_are_exported_by_pattern(locus: Commands, told: Path) -> None:
    said = locus.piped("export", "openai*", "--format", "markdown", cwd=told.parent)
    assert [line for line in said.lines if line.startswith("# ")] == ["# openai", "# openai-waiting"]
    everything = locus.piped("export", "*", cwd=told.parent)
    assert sum('"locus": 1' in line or '"locus":1' in line for line in everything.lines) == len(STORIES) + len(WAITING)
    assert "no thread matches" in locus.piped("export", "nobody*", cwd=told.parent).err
    deltas = locus.piped("export", "langgraph-deltas", "--format", "md", cwd=told.parent).out
    assert "The Peak jacket costs 8.99." in deltas


def test_threads_are_chosen_by_time(locus: Commands, told: Path, dated: Path) -> None:
    assert len(locus.piped("threads", "--since", "yesterday", cwd=told.parent).lines) == len(STORIES) + len(WAITING)
    assert locus.piped("threads", "--until", "yesterday", cwd=told.parent).err == "no threads\n"
    assert locus.piped("threads", "--until", "2999-01-01", "--json", cwd=dated).lines
    assert "go with neither" in locus.piped("threads", "--since", "yesterday", "--after", "x", cwd=dated).err


def test_the_newest_are_the_newest_after_an_import(locus: Commands, dated: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            for name in ("a", "b", "c"):
                await checkpointer.save(AgentState().with_message(Message.user("Now.")), name)

    asyncio.run(story())
    lines = [json.loads(line) for line in (dated / "dated.jsonl").read_text().splitlines()]
    for line in lines:
        if "created_at" in line:
            line["created_at"] = line["created_at"].replace("20", "19", 1)  # a hundred years earlier
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert locus.piped("import", "jsonl", "old.jsonl", "sqlite:agents.db", cwd=tmp_path).code == 0
    shown = locus.piped("threads", "--recent", "--json", cwd=tmp_path)
    assert [json.loads(line)["thread_id"] for line in shown.lines] == ["c", "b", "a", "t"]
    first = locus.piped("threads", "--recent", "-n", "2", cwd=tmp_path)
    cursor = first.err.split()[-1].strip("'")
    rest = locus.piped("threads", "--recent", "--before", cursor, cwd=tmp_path)
    assert [line.split()[0] for line in [*first.lines, *rest.lines]] == ["c", "b", "a", "t"]


def test_thoughts_and_system_prompts_are_shown(locus: Commands, tmp_path: Path) -> None:
    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            said = [
                {"role": "system", "content": "Sell jackets."},
                {"role": "user", "content": "How much?"},
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "Which jacket?"}, {"type": "text", "text": "89.90"}],
                },
            ]
            await StorageBackend(checkpointer.store).save("t", {"messages": said})

    asyncio.run(story())
    shown = [line.strip() for line in locus.piped("show", "t", cwd=tmp_path).lines[-8:]]
    assert shown == ["[0] system", "Sell jackets.", "[1] user", "How much?", "[2] reasoning", "Which jacket?"] + [
        "[2] assistant",
        "89.90",
    ]
    assert "thinks: Which jacket?" in locus.piped("log", "t", cwd=tmp_path).out
    (found,) = [json.loads(line) for line in locus.piped("search", "Which jacket", "--json", cwd=tmp_path).lines]
    assert (found["role"], found["excerpt"]) == ("reasoning", "Which jacket?")
    page = locus.piped("export", "t", "--format", "html", cwd=tmp_path).out
    assert "<b>thinks:</b> Which jacket?" in page
