"""Locus in a minute: a conversation is saved, its process is killed, another one goes on.

`make demo`, or `python -m examples.demo`. It needs no server and no key, and leaves nothing behind, unless it is to be
kept (`make demo ARGS=--keep`), to be seen in the browser. What it prints is what happened: the processes, the kill, the
ids and the times are real.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: E402

from examples import costing, showing, talking  # noqa: E402
from examples.trip import OTHER_WAY, STEPS, about  # noqa: E402
from locus.memory.backends import sqlite_checkpointer  # noqa: E402
from locus.memory.backends.adapters import StorageBackendAdapter  # noqa: E402
from locus.memory.checkpointer import HistoryEntry  # noqa: E402

THREAD = "trip-to-helsinki"
PREFIX = "locus-demo-"
Event = dict[str, Any]


class Agent:
    """The agent's process, as its parent sees it."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(path), THREAD]
        # A session of its own: Ctrl-C is for the parent, who ends the agent itself.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def events(self) -> Iterator[Event]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line of a process that was killed may be half a line.
            if line.endswith("\n"):
                yield json.loads(line)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def talk_and_kill(console: Console, path: Path) -> Event:
    """Let an agent talk, and kill it in the middle of a turn; return the last save that it acknowledged."""
    showing.title(console, 1, "An agent talks, and saves after every message")
    # Turns have four messages: after so many of them the agent is in the middle of one.
    enough = random.choice([5, 6, 9, 10])
    last: Event = {}
    with Agent(path) as agent:
        for event in agent.events():
            if event["event"] == "saved":
                last = event
                showing.saved(console, event)
            if event["event"] == "saved" and event["messages"] == enough:
                time.sleep(random.uniform(0, talking.THINKING))
                agent.process.send_signal(signal.SIGKILL)
        code = agent.process.wait()
    showing.killed(console, agent.process.pid, code, last)
    return last


def pick_up(console: Console, path: Path, acknowledged: int) -> None:
    """Another process goes on where the first one was."""
    showing.title(console, 3, "Another process takes the same thread up")
    with Agent(path) as agent:
        for event in agent.events():
            if event["event"] == "found":
                showing.found(console, event, acknowledged)
            else:
                showing.saved(console, event)
        code = agent.process.wait()
    console.print(f"\n  process {agent.process.pid} said the rest and ended with return code {code}\n")
    if code:
        raise SystemExit(f"the second process failed with return code {code}")


async def look_back(console: Console, path: Path) -> None:
    """The history, a fork, a diff and a search, from a third process: this one."""
    async with sqlite_checkpointer(path) as checkpointer:
        showing.title(console, 4, "The history: every state is still there")
        entries = await checkpointer.history(THREAD, limit=None)
        newest, oldest = entries[:5], entries[5:][-4:]
        loaded = [(entry, await count_messages(checkpointer, entry)) for entry in (*newest, *oldest)]
        showing.history(console, [*loaded[: len(newest)], None, *loaded[len(newest) :]])
        await fork(console, checkpointer, entries[0].checkpoint_id)
        showing.title(console, 6, "Search")
        started = time.perf_counter()
        hits = await checkpointer.search("hazelnuts", limit=3)
        showing.hits(console, "hazelnuts", hits, (time.perf_counter() - started) * 1e3)


async def count_messages(checkpointer: StorageBackendAdapter, entry: HistoryEntry) -> int:
    """Load a checkpoint, and see how long the conversation was then."""
    state = await checkpointer.load(THREAD, entry.checkpoint_id)
    assert state is not None
    return len(state.messages)


async def fork(console: Console, checkpointer: StorageBackendAdapter, tip: str) -> None:
    """Load the state after the second turn, go another way from there, and compare."""
    showing.title(console, 5, "An old state is loaded, and another way taken from there")
    found = await checkpointer.query_by_metadata("turn", 2)
    old = next(entry for entry in found if entry["metadata"]["step"] == "answer")
    state = await checkpointer.load(THREAD, old["checkpoint_id"])
    assert state is not None
    console.print(
        f"  loaded [bold]{old['checkpoint_id']}[/] (seq {old['seq']}): {len(state.messages)} messages of {len(STEPS)}\n"
    )
    other = tip
    for step in OTHER_WAY.messages(len(STEPS) // 4 + 1):
        state = state.with_message(step())
        other = await checkpointer.save(state, THREAD, metadata={**about(state), "line": "over Vienna"})
    entries = await checkpointer.history(THREAD, limit=None)
    showing.tree(console, entries)
    tips = [entry for entry in entries if entry.checkpoint_id in (tip, other)]
    counts = [f"{await count_messages(checkpointer, entry)} messages at seq {entry.seq}" for entry in tips]
    console.print(f"  both lines load: {', '.join(counts)}\n")
    showing.difference(console, await checkpointer.diff(THREAD, tip, other), tip, other)


async def cost(console: Console, folder: Path, turns: int) -> None:
    showing.title(console, 7, f"The cost: {turns:,} turns of about 3.1 KB, each on the disk before the next")
    columns = (TextColumn("  saving"), BarColumn(40), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=turns)
        found = await costing.run(folder / "long.db", turns, lambda: progress.advance(task))
    showing.cost(console, found)


def demo(console: Console, turns: int, keep: bool) -> None:
    started = time.perf_counter()
    with kept_folder() if keep else tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        path = Path(folder) / "agents.db"
        console.print(f"\n  one SQLite file, no server: [bold]{path}[/]\n", soft_wrap=True)
        last = talk_and_kill(console, path)
        pick_up(console, path, last["messages"])
        asyncio.run(look_back(console, path))
        asyncio.run(cost(console, Path(folder), turns))
    seconds = time.perf_counter() - started
    if keep:
        console.print(f"  [dim]{seconds:.1f} s in all; {folder} is kept[/]\n", soft_wrap=True)
        console.print(f"  See it in the browser: [bold]{inspecting(path)}[/]\n", soft_wrap=True, highlight=False)
    else:
        console.print(f"  [dim]{seconds:.1f} s in all; {folder} is removed again[/]\n", soft_wrap=True)
        again = "make demo ARGS=--keep"
        console.print(f"  To see it in the browser, keep it: [bold]{again}[/]\n", soft_wrap=True, highlight=False)


@contextmanager
def kept_folder() -> Iterator[str]:
    """A folder that stays, unless the demo does not get to its end."""
    folder = tempfile.mkdtemp(prefix=PREFIX)
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder)
        raise


def inspecting(path: Path) -> str:
    """The line that opens the inspector on a file."""
    locus = Path(sys.executable).with_name("locus")
    command = [str(locus)] if locus.exists() else [sys.executable, "-m", "locus"]
    return shlex.join([*command, "inspect", f"sqlite:{path}"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--plain", action="store_true", help="no colours")
    parser.add_argument("--keep", action="store_true", help="keep the file, to look at it in the browser")
    parser.add_argument("--turns", type=int, default=1_000, help="length of the thread whose cost is measured")
    parser.add_argument("--worker", nargs=2, metavar=("FILE", "THREAD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        asyncio.run(talking.talk(*options.worker))
        return
    try:
        demo(showing.console(options.plain), max(1, options.turns), options.keep)
    except KeyboardInterrupt:
        print("\nstopped; nothing is left behind", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


if __name__ == "__main__":
    main()
