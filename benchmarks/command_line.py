"""What the command line takes: its start, and a page of a thread with very many checkpoints.

`python -m benchmarks --topics cli`. Pages of a store with very many threads are measured with the other lists (see
`thread_pages`). Commands run in this process, without the start of Python, except for the start itself.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.clock import Calls, frozen, in_turn
from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.tables import ms, table
from locus.cli import log, parser, show, threads
from locus.cli.terminal import Terminal
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer

START_MS = 150
LIMIT = 2.0
TINY_MS = 0.5
"""A difference below this is no growth."""
STARTS = 9
COMMANDS = {"threads": threads, "log": log, "show": show}
THREAD = "t"


async def shown(handle: Checkpointer, line: str) -> None:
    """Run a command that looks at a store, without opening it."""
    name, *words = line.split()
    options: argparse.Namespace = parser(name).parse_args([name, *words])
    for word in ("thread", "rev", "glob"):
        setattr(options, word, options.words[0] if options.words else None)
    terminal = Terminal(io.StringIO(), io.StringIO())
    await COMMANDS[name].run(handle.store, options, terminal)
    terminal.flush()


def pages(handle: Checkpointer) -> Calls:
    lines = (f"log {THREAD}", f"log {THREAD} --graph --stat", f"show {THREAD}", f"show {THREAD}@#500")
    return {f"`locus {line}`": partial(shown, handle, line) for line in lines}


def start_ms() -> float:
    """The median time from the call of `locus --help` to its end."""
    times = []
    for _ in range(STARTS):
        began = perf_counter()
        subprocess.run([sys.executable, "-m", "locus", "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append((perf_counter() - began) * 1e3)
    return median(times)


async def command_section(settings: Settings, folder: Path) -> Section:
    few, many = settings.checkpoints
    handles = []
    for count in settings.checkpoints:
        handle = sqlite_checkpointer(folder / f"{count}.db", durability="normal")
        state = AgentState(agent_id="bench")
        for number in range(count):
            state = state.with_message(Message.user(f"Question {number}"))
            await handle.save(state, THREAD)
        handles.append(handle)
    try:
        with frozen():
            small, large = await in_turn([pages(handle) for handle in handles], settings.pages)
    finally:
        for handle in handles:
            await handle.close()
    start = start_ms()
    figures = [Figure("`locus --help`, ms", "", f"≤ {START_MS}", f"{start:.0f}", start <= START_MS)]
    rows = []
    for what, before in small.items():
        after = large[what]
        ok = after <= LIMIT * before or after - before < TINY_MS
        name = f"{what}, at {many:,} ÷ at {few:,} checkpoints"
        figures.append(Figure(name, "sqlite", f"≤ {LIMIT:g} or < {TINY_MS} ms more", f"{after / before:.2f}", ok))
        rows.append([what, ms(before), ms(after)])
    head = ["command", f"at {few:,} checkpoints, ms", f"at {many:,} checkpoints, ms"]
    return Section("The command line", figures, table(head, rows))
