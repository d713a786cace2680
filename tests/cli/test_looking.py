"""Commands that look at a store, on a terminal and through pipes: what they print, and what they end with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from locus.core.messages import Message, ToolCall, ToolResult
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from tests.cli.terminals import Commands

HOSTILE = "\x1b[31mred\x07 \u202eback"


async def _story(path: Path) -> None:
    async with sqlite_checkpointer(path) as checkpointer:
        state = AgentState(agent_id="shop")
        ids = []
        for turn in range(5):
            state = state.with_message(Message.user(f"Where is order {turn}? {HOSTILE}"))
            state = state.with_message(
                Message.assistant("Let me look.", [ToolCall(name="find", arguments={"n": turn})])
            )
            state = state.with_message(
                Message.tool(ToolResult(tool_call_id="c", name="find", content="On its way. " * 9))
            )
            ids.append(await checkpointer.save(state, "alice", f"cp-{turn}", metadata={"turn": turn}))
        fork = await checkpointer.load("alice", ids[1])
        assert fork is not None
        await checkpointer.save(fork.with_message(Message.user("Another way")), "alice", "fork")
        await checkpointer.save(state.with_message(Message.user("Goodbye")), "alice", "last")
        await checkpointer.save(AgentState().with_message(Message.user("Hello")), "bob@home", "only")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("looking")
    asyncio.run(_story(folder / "agents.db"))
    return folder


def test_threads(locus: Commands, folder: Path) -> None:
    said = locus.piped("threads", cwd=folder)
    assert (said.code, said.err) == (0, "")
    first, second = said.lines
    assert first.split()[0] == "alice"
    assert "Where is order 0?" in first
    assert second.endswith("Hello")
    assert [json.loads(line)["thread_id"] for line in locus.piped("threads", "--json", cwd=folder).lines] == [
        "alice",
        "bob@home",
    ]
    assert locus.piped("threads", "-n", "1", cwd=folder).err == "more: --after alice\n"
    assert locus.piped("threads", "--after", "alice", cwd=folder).lines[0].startswith("bob@home")
    assert locus.piped("threads", "b*", cwd=folder).lines[0].startswith("bob@home")
    assert locus.piped("threads", "--meta", "turn=3", cwd=folder).lines[0].startswith("alice")
    assert locus.piped("threads", "nobody*", cwd=folder).err == "no threads match\n"


def test_the_log_is_drawn(locus: Commands, folder: Path) -> None:
    said = locus.piped("log", "alice", "--graph", "--stat", cwd=folder)
    drawn = [line[:12].rstrip() for line in said.lines]
    assert drawn == [
        "*    #7  las",
        "| *  #6  for",
        "* |  #5  cp-",
        "* |  #4  cp-",
        "* |  #3  cp-",
        "|/",
        "*    #2  cp-",
        "*    #1  cp-",
    ]
    assert "latest +1 messages" in said.lines[0]
    assert "+3 messages, turn=4" in said.lines[2]


def test_pages_of_a_log(locus: Commands, folder: Path) -> None:
    said = locus.piped("log", "alice", "-n", "2", cwd=folder)
    assert [line.split()[0] for line in said.lines] == ["#7", "#6"]
    assert said.err == "older ones: --before '#6'\n"
    rest = locus.piped("log", "alice", "--before", "#6", "--json", cwd=folder)
    assert [json.loads(line)["seq"] for line in rest.lines] == [5, 4, 3, 2, 1]
    assert [
        json.loads(line)["seq"] for line in locus.piped("log", "alice", "--before", "cp-1", "--json", cwd=folder).lines
    ] == [1]


def test_a_checkpoint(locus: Commands, folder: Path) -> None:
    said = locus.piped("show", "alice@cp-0", cwd=folder)
    assert said.code == 0
    assert "Where is order 0? \\x1b[31mred\\x07 \\u202eback" in said.out
    assert '→ find({"n": 0})' in said.out
    shown = json.loads(locus.piped("show", "alice@~1", "--json", "--messages", "-1:", cwd=folder).out)
    assert (shown["checkpoint_id"], shown["total"], shown["start"]) == ("cp-4", 15, 14)
    assert json.loads(locus.piped("show", "alice", "--state", "agent_id", cwd=folder).out) == "shop"
    assert json.loads(locus.piped("show", "alice@#3", "--meta", cwd=folder).out) == {"turn": 2}
    assert "head" in json.loads(locus.piped("show", "alice", "--raw", "--json", cwd=folder).out)
    assert "no pending writes" in locus.piped("show", "alice", "--writes", cwd=folder).out


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize(
    "command",
    [
        ["threads"],
        ["log", "alice", "--graph", "--stat"],
        ["log", "alice"],
        ["log", "alice", "--graph"],
        ["search", "order"],
        ["diff", "alice@#1", "alice"],
        ["bisect", "alice", "order 3"],
        ["show", "alice"],
        ["find", "turn=3"],
        ["show", "alice", "--raw"],
    ],
    ids=lambda words: words[0],
)
def test_a_terminal_is_kept_within_its_width_and_is_not_driven(
    locus: Commands, folder: Path, command: list[str], columns: int
) -> None:
    said = locus.on_terminal(*command, columns=columns, cwd=folder, env={"NO_COLOR": "1"})
    assert said.code == 0
    assert max(map(len, said.lines)) <= columns
    assert not {"\x1b", "\x07", "\u202e"} & set(said.out)
    coloured = locus.on_terminal(*command, columns=columns, cwd=folder)
    assert "\x1b[" in coloured.out
    assert "\x1b[31mred" not in coloured.out


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["log", "alise"], 3, "did you mean 'alice'?"),
        (["show", "alice@cq-1"], 3, "did you mean 'cp-1'?"),
        (["show", "alice@cp"], 2, "can be several checkpoints: cp-4 (#5), cp-3 (#4)"),
        (["show", "alice@#99"], 3, "the latest is #7"),
        (["show", "alice@~99"], 3, "goes back 5 checkpoints"),
        (["show", "alice@"], 2, "what follows the @ is empty"),
        (["show", "alice", "--ns", "other"], 3, "other namespaces: 'default'"),
        (["show"], 2, "too few words"),
        (["show", "a", "b"], 2, "too many words"),
        (["show", "alice", "--messages", "x"], 2, "takes A:B"),
        (["show", "alice", "--state", "agent_idd"], 2, "did you mean 'agent_id'?"),
        (["log", "alice", "-n", "0"], 2, "a number from 1"),
        (["log", "alice", "--follow", "--until", "1h"], 2, "neither --before nor --until"),
        (["log", "alice", "--follow", "--before", "#2"], 2, "neither --before nor --until"),
        (["bisect", "alice", "--appears", "nowhere"], 1, "not in any of 6 checkpoints"),
        (["find", "x"], 2, "KEY=VALUE"),
        (["-s", "sqlite:///nowhere/x.db", "threads"], 2, "is that the right place?"),
        (["threads", "sqlite:missing.db"], 2, "is that the right place?"),
        (["threads", "env:NOT_SET"], 2, "'NOT_SET' is not set"),
        (["-s", "", "threads"], 2, "-s is empty"),
        (["threads", "agents.db"], 2, "as a store it is named sqlite:agents.db"),
        (["show", "bob@hoem"], 3, "no thread 'bob@hoem', and no thread 'bob' either (did you mean 'bob@home'?)"),
        (["show", "a@b@c"], 3, "named with --checkpoint"),
        (["nothing"], 2, "there is no command 'nothing'"),
        (["thraeds"], 2, "did you mean 'threads'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_goes_wrong_is_said_and_has_its_code(
    locus: Commands, folder: Path, words: list[str], code: int, said: str, terminal: bool
) -> None:
    found = (locus.on_terminal if terminal else locus.piped)(*words, cwd=folder)
    assert "Traceback" not in found.out + found.err
    assert (found.code, said in " ".join((found.out + found.err).split())) == (code, True), found
    if not terminal and code != 1:
        assert found.out == ""


def test_ids_with_an_at_sign(locus: Commands, folder: Path) -> None:
    assert "(#1)" in locus.piped("show", "bob@home", cwd=folder).out
    assert "(#1)" in locus.piped("show", "bob@home@only", cwd=folder).out
    assert "(#1)" in locus.piped("show", "bob@home", "--checkpoint", "#1", cwd=folder).out


def test_without_arguments_it_shows_what_it_can_do(locus: Commands, folder: Path) -> None:
    said = locus.piped(cwd=folder)
    assert said.code == 0
    assert "locus log THREAD --graph" in said.out


def test_a_folder_without_a_store(locus: Commands, tmp_path: Path) -> None:
    said = locus.piped("threads", cwd=tmp_path)
    assert (said.code, said.err) == (
        2,
        "locus: say where the threads are kept: -s sqlite:///agents.db, or the variable LOCUS_STORE\n",
    )


def test_options_may_stand_between_words(locus: Commands, folder: Path) -> None:
    url = f"sqlite:{folder / 'agents.db'}"
    for words in (
        ["log", "--json", "alice"],
        ["log", "alice", "--json"],
        ["-s", url, "log", "alice", "--json"],
        ["log", url, "--json", "alice"],
    ):
        assert len(locus.piped(*words, cwd=folder).lines) == 7
    assert len(locus.piped("log", "alice", "--json", cwd=folder.parent, env={"LOCUS_STORE": url}).lines) == 7


def test_the_time_that_is_shown_leads_to_the_checkpoint(locus: Commands, folder: Path) -> None:
    for number in range(1, 8):
        header = locus.piped("show", f"alice@#{number}", "--messages", "0:1", cwd=folder).lines
        saved = (
            next(line for line in header if line.startswith("saved")).removeprefix("saved").partition("(")[0].strip()
        )
        # Others may have been saved in the same second.
        for time in (saved, saved.replace(" ", "T")):
            said = locus.piped("log", "alice", "--until", time, "-n", "1", "--json", cwd=folder)
            assert json.loads(said.out)["seq"] >= number
    exact = json.loads(locus.piped("log", "alice", "--before", "#2", "--json", cwd=folder).out)["created_at"]
    said = locus.piped("log", "alice", "--until", exact, "--json", cwd=folder)
    assert [json.loads(line)["seq"] for line in said.lines] == [1]


def test_a_time_that_is_still_to_come_is_said(locus: Commands, folder: Path) -> None:
    said = locus.piped("log", "alice", "--until", "2999-01-01 14:03", "-n", "7", cwd=folder)
    assert said.err == "that time is still to come: for an earlier day, say '2026-11-16 14:03'\n"
    assert len([line for line in said.lines if line.startswith("#")]) == 7


def test_older_checkpoints_are_announced_where_there_are_some(locus: Commands, tmp_path: Path) -> None:
    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            state = AgentState()
            for turn in range(3):
                state = state.with_message(Message.user(f"{turn}"))
                await checkpointer.save(state, "t", f"cp-{turn}")
            await checkpointer.delete("t", "cp-0")
            state = AgentState().with_message(Message.user("a beginning"))
            await checkpointer.save(state, "t", "another", parent=None)

    asyncio.run(story())
    entries = [json.loads(line) for line in locus.piped("log", "t", "--json", cwd=tmp_path).lines]
    assert [entry["checkpoint_id"] for entry in entries][-2:] == ["cp-2", "cp-1"]
    for shown in range(1, len(entries)):
        said = locus.piped("log", "t", "-n", str(shown), cwd=tmp_path)
        assert said.err == f"older ones: --before '#{entries[shown - 1]['seq']}'\n"
    assert locus.piped("log", "t", "-n", str(len(entries)), cwd=tmp_path).err == ""


def test_a_value_in_the_metadata_of_checkpoints_is_found(locus: Commands, folder: Path) -> None:
    said = locus.piped("bisect", "alice", "--path", "metadata.turn", "--equals", "2", cwd=folder)
    assert said.code == 0
    assert said.lines[0].startswith("alice@#3  cp-2")
    assert "it is in the metadata that checkpoints were saved with; the state has nothing there" in said.lines
    found = json.loads(locus.piped("bisect", "alice", "--path", "metadata.turn", "--json", cwd=folder).out)
    assert (found["found"]["seq"], found["in_metadata"]) == (1, True)
    assert locus.piped("bisect", "alice", "--path", "metadata.turn", "--equals", "9", cwd=folder).code == 1


def test_a_text_on_another_line_is_told(locus: Commands, folder: Path) -> None:
    said = locus.piped("bisect", "alice", "--appears", "Another way", cwd=folder)
    assert (said.code, said.lines) == (1, ["not in any of 6 checkpoints", "but on another line, in #6: --to '#6'"])
    found = json.loads(locus.piped("bisect", "alice", "--appears", "Another way", "--json", cwd=folder).out)
    assert (found["found"], found["elsewhere"]["seq"]) == (None, 6)
    assert locus.piped("bisect", "alice", "--appears", "Another way", "--to", "#6", cwd=folder).code == 0


def test_a_command_to_copy_is_never_cut(locus: Commands, folder: Path) -> None:
    url = f"sqlite:{folder / 'agents.db'}"
    said = locus.on_terminal("bisect", url, "alice", "--appears", "order 3", columns=40, env={"NO_COLOR": "1"})
    assert f"locus diff -s {url} 'alice@#3' 'alice@#4'" in said.out


def test_json_in_a_pipe_drives_no_terminal_behind_it(locus: Commands, tmp_path: Path) -> None:
    text = "\x1b[31m \x9b31m \u202eback \u2028 \U000e0041 日本"

    async def story() -> None:
        async with sqlite_checkpointer(tmp_path / "agents.db") as checkpointer:
            await checkpointer.save(AgentState().with_message(Message.user(text)), "t", metadata={"k": text})

    asyncio.run(story())
    for words in (["show", "t", "--state", "messages.0.content"], ["show", "t", "--meta"], ["show", "t", "--json"]):
        said = locus.piped(*words, cwd=tmp_path)
        assert not set("\x1b\x9b\u202e\u2028\U000e0041") & set(said.out)
        assert "日本" in said.out
    assert json.loads(locus.piped("show", "t", "--state", "messages.0.content", cwd=tmp_path).out) == text


def test_what_is_not_listed_is_counted(locus: Commands, folder: Path) -> None:
    said = locus.piped("stats", "--top", "1", cwd=folder)
    assert said.err == "1 smaller ones are not listed: --top says how many are\n"
    assert locus.piped("stats", cwd=folder).err == ""


def test_a_word_that_can_be_no_path_is_a_thread(locus: Commands, folder: Path) -> None:
    for thread_id in ("日" * 255, "a/" * 127, "x\ny"):
        said = locus.piped("log", thread_id, cwd=folder)
        assert said.code == 3
        assert "there is no thread" in said.err
