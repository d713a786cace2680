"""Each row of the table in CONTRIBUTING leads to the files that have what its reader wants to change.

A test looks for the thing itself. It searches the whole package for it, or runs the program and sees which function
makes it. What it finds has to be what the row names, no less and no more.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from locus.agent import Agent
from locus.cli import COMMANDS, main
from locus.core.messages import Message, ToolCall
from locus.core.state import AgentState
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.models.mock import MockModel
from tests.server.inspector.asked import Asked

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "locus"
SOURCES = {".py", ".lua", ".sql", ".html", ".js"}

Files = set[str]


class Text(NamedTuple):
    """An expression that matches in the files of a folder of the package which have a thing, and in no others there."""

    expression: str
    folder: str = ""


HAVE: dict[str, tuple[Text, ...]] = {
    "change how a Redis save decides a conflict": (Text(r"return \{'CONFLICT'", "memory/backends/redis"),),
    "change how saves are gathered on MySQL": (
        Text("SKIP LOCKED", "memory/backends/mysql"),  # locks the threads of a group
        Text(r"engine\.commit_together\(", "memory"),  # hands a group to the engine
    ),
    "add a column on PostgreSQL": (
        Text(r"read_migrations\(", "memory/backends/postgresql"),
        Text(r"^class NewCheckpoint\b"),  # names the columns for every statement
    ),
    # Fields that Locus itself makes no use of, one of them a time: nothing else has to know them.
    "add a field to `AgentState` (a datetime too)": (Text(r"\bconfidence_threshold\b"), Text(r"\bstarted_at:")),
    "add a command": (Text(re.escape(COMMANDS["bisect"][1])),),
    "change what a row of the inspector's timeline shows": (
        Text(r"\"timeline\.html\""),  # fills the template
        Text(r"aria-label=\"Choose "),  # the label of a button in each row
    ),
    "change which items a window (`load(last=n)`) or a range has": (Text(r"^class (Window|Range)\b", "memory"),),
    "change what a row of the inspector's list of threads shows": (
        Text(r"\"threads\.html\""),  # fills the template
        Text(r"row\.end\.forked", "server/inspector/templates"),
    ),
    "add a check to `locus doctor`": (Text(r"\bFinding\(\s*\"(error|warning|note)\""),),
    "add a backend": (Text(r"\"locus\.memory\.backends\.\w+:from_"),),
    "change what a URL may say": (Text(r"^class \w+Config\b", "memory/backends"), Text(r"^class StoreURL\b")),
    "add CockroachDB as a PostgreSQL flavour": (
        Text(r"\bpg_advisory_\w|\bctid\b", "memory/backends"),  # what only PostgreSQL has
        Text(r"^    flavour: .*PostgreSQLFlavour"),  # the flavour of a public class
        Text(r"^    \"postgresql\": \"locus\."),  # the scheme of its URLs
    ),
    "add a route to the server": (Text(r"^def all_routes\b"),),
}
"""What the files of a row have."""


def rows() -> dict[str, Files]:
    """The rows of the table: what somebody wants to do, and the files to open. `<name>` stands for any name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("Which file do you open first?")[2]
    lines = re.findall(r"^\| (?!to \|)(.+?) \| (.+) \|$", text, re.MULTILINE)
    return {
        task: {file for path in re.findall(r"`src/locus/(.+?)`", where) for file in named(path)}
        for task, where in lines
    }


def named(path: str) -> Files:
    files = {str(file.relative_to(PACKAGE)) for file in PACKAGE.glob(path.replace("<name>", "*"))}
    assert files, f"CONTRIBUTING names {path}, which is not there"
    return files


def files_with(text: Text) -> Files:
    expression = re.compile(text.expression, re.MULTILINE)
    files = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.joinpath(text.folder).rglob("*")
        if file.suffix in SOURCES and expression.search(file.read_text(encoding="utf-8"))
    }
    assert files, f"no file has {text.expression}"
    return files


@contextmanager
def returned(wanted: Callable[[Any], bool]) -> Iterator[list[tuple[str, Any]]]:
    """The wanted values that functions of the package return, each with the file of its function. Inner ones first."""
    values: list[tuple[str, Any]] = []

    def note(frame: FrameType, event: str, value: Any) -> None:
        file = frame.f_code.co_filename
        if event == "return" and file.startswith(str(PACKAGE)) and wanted(value):
            values.append((str(Path(file).relative_to(PACKAGE)), value))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield values
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("row", HAVE)
def test_a_row_leads_to_what_it_is_about(row: str) -> None:
    assert rows()[row] == set().union(*map(files_with, HAVE[row]))


WINDOW = "change how far back an agent's window reaches"
CALL_IN_DIFF = "change how a tool call looks in a diff"
FRAMEWORK = "add a framework"


def test_every_row_is_held() -> None:
    assert rows().keys() == HAVE.keys() | {WINDOW, CALL_IN_DIFF, FRAMEWORK}


async def test_the_row_about_windows_leads_to_what_decides_how_much_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer = MemoryCheckpointer()
    await checkpointer.save(AgentState().with_messages([Message.user(f"question {n}") for n in range(500)]), "t")
    loaded: list[int] = []
    load = checkpointer.load

    async def noting(*arguments: Any, last: int | None = None, **options: Any) -> AgentState | None:
        if last is not None:
            loaded.append(last)
        return await load(*arguments, last=last, **options)

    monkeypatch.setattr(checkpointer, "load", noting)
    with returned(lambda value: type(value) is int) as numbers:
        await Agent(model=MockModel(), checkpointer=checkpointer, window=137).invoke("and now?", "t")
    assert rows()[WINDOW] == {next(file for file, number in numbers if number == loaded[0])}


def is_call(value: Any) -> bool:
    """Whether this is, or has, the text of a call as a person reads it, and not its JSON."""
    if is_dataclass(value) or isinstance(value, list | tuple):
        value = repr(value)
    return isinstance(value, str) and re.search(r"refund\(.*A-4711", value, re.DOTALL) is not None


def test_the_row_about_calls_in_a_diff_leads_to_what_writes_them(tmp_path: Path) -> None:
    """For the terminal and for the browser."""
    before = AgentState().with_message(Message.user("My money back, please."))
    call = ToolCall(name="refund", arguments={"order": "A-4711"})
    url = f"sqlite:{tmp_path / 'calls.db'}"

    async def page() -> list[tuple[str, Any]]:
        async with sqlite_checkpointer(tmp_path / "calls.db") as checkpointer:
            await checkpointer.save(before, "t", "before")
            await checkpointer.save(before.with_message(Message.assistant("", [call])), "t", "after")
            with pytest.MonkeyPatch.context() as patch, returned(is_call) as texts:
                # Pages are made by other threads, which are not watched.
                patch.setattr(asyncio.get_running_loop(), "run_in_executor", in_this_thread)
                assert is_call((await Asked(checkpointer).page("t", "t", "diff", "before", "after")).main.text)
        return texts

    writers = {asyncio.run(page())[0][0]}
    with returned(is_call) as texts:
        assert main(["diff", "-s", url, "t@before", "t@after"]) == 0
    writers.add(texts[0][0])
    assert rows()[CALL_IN_DIFF] == writers


def in_this_thread(_executor: object, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(work(*arguments))
    return done


def test_the_row_about_frameworks_leads_to_the_smallest_example() -> None:
    modules = [file for file in PACKAGE.joinpath("integrations").glob("*.py") if "\nNAMESPACE = " in file.read_text()]
    smallest = min(modules, key=lambda file: file.stat().st_size)
    assert rows()[FRAMEWORK] == {str(smallest.relative_to(PACKAGE))}
