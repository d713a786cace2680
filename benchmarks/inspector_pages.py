"""What the pages of the inspector cost: a thread with very many checkpoints and forks, and a list of very many threads.

`python -m benchmarks --topics inspector`. Pages are asked for without a network. Their size
is that of the HTML, nodes are its elements, and reads are calls of the engine. The memory is that of a process of its
own, which shows the same pages again and again: `python -m benchmarks.inspector_pages FOLDER PAGES`.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.clock import Calls, frozen, in_turn
from benchmarks.costs import Figure, Section
from benchmarks.settings import Settings
from benchmarks.tables import ms, table
from benchmarks.thread_pages import SQLiteCrowd
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory.backends import sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.server.auth import Guard
from locus.server.authorized_store import AuthorizedStore
from locus.server.bodies import Limits
from locus.server.inspector.app import create_inspector

KILOBYTES, NODES, MILLISECONDS, MEGABYTES, RATIO = 150, 3_000, 300, 30, 2.0
TINY_MS = 2.0
"""A difference below this is no growth."""
THREAD, HOST = "t", "inspector"
MOST_TIPS = 8
"""The ends of lines on a page of the timeline that are asked what they wait for."""
WARM = 20
"""So many pages are shown before the memory is looked at for the first time."""


class Elements(HTMLParser):
    """Counts the elements of a page."""

    count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += 1


class Reads:
    """Counts what is asked of an engine."""

    def __init__(self, engine: Any) -> None:
        self.counted: Counter[str] = Counter()
        for name in dir(type(engine)):
            if not name.startswith("_") and inspect.iscoroutinefunction(getattr(type(engine), name)):
                setattr(engine, name, self._counting(name, getattr(engine, name)))

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*arguments: Any, **named: Any) -> Any:
            self.counted[name] += 1
            return await call(*arguments, **named)

        return counted


def client(handle: Checkpointer) -> httpx.AsyncClient:
    """A browser's view of a store's pages, without a network."""
    app = create_inspector(AuthorizedStore(handle.store, Limits()), Guard(None), hosts={HOST})
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}", timeout=600)


async def page(asking: httpx.AsyncClient, path: str) -> str:
    answer = await asking.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code}")
    return answer.text


async def grow(path: Path, checkpoints: int, forks: int) -> Checkpointer:
    """A thread of so many checkpoints; so many of them are forks of earlier ones."""
    handle = sqlite_checkpointer(path, durability="normal")
    state = AgentState(agent_id="bench")
    older: list[AgentState] = []
    every = max(2, checkpoints // forks) if forks else checkpoints + 1
    for number in range(1, checkpoints + 1):
        if number % every == 0 and older:
            fork = older[-1 - number % len(older)].with_message(Message.assistant(f"Another answer {number}"))
            await handle.save(fork, THREAD, metadata={"line": "b"})
            continue
        state = state.with_message(Message.user(f"Question {number}"))
        await handle.save(state, THREAD)
        older = [*older[-6:], state]
    return handle


async def thread_figures(settings: Settings, folder: Path) -> tuple[list[Figure], list[list[str]]]:
    few, many = settings.inspected
    small, large = [await grow(folder / f"{count}.db", count, count // 20) for count in (few, many)]
    try:
        newest = (await large.history(THREAD, limit=1))[0].checkpoint_id
        oldest = (await small.history(THREAD, limit=1))[0].checkpoint_id
        paths = {
            "the timeline": (f"/t/{THREAD}", f"/t/{THREAD}"),
            "a checkpoint": tuple(f"/t/{THREAD}/c/{one}" for one in (oldest, newest)),
        }
        figures, rows = [], []
        with frozen():
            browsers = [client(small), client(large)]
            (times,) = await in_turn(
                [{name: partial(page, browsers[1], both[1]) for name, both in paths.items()}], settings.pages
            )
        for name, both in paths.items():
            text = await page(browsers[1], both[1])
            counting = Elements()
            counting.feed(text)
            size = len(text.encode()) / 1e3
            where = f"{name}, at {many:,} checkpoints"
            figures += [
                Figure(f"{where}: KB", "sqlite", f"≤ {KILOBYTES}", f"{size:.0f}", size <= KILOBYTES),
                Figure(f"{where}: nodes", "sqlite", f"≤ {NODES:,}", f"{counting.count:,}", counting.count <= NODES),
                Figure(f"{where}: ms", "sqlite", f"≤ {MILLISECONDS}", ms(times[name]), times[name] <= MILLISECONDS),
            ]
            reads = [
                await reads_of(handle, browser, path)
                for handle, browser, path in zip((small, large), browsers, both, strict=True)
            ]
            same = reads[0] == reads[1]
            told = " and ".join(" + ".join(f"{count} {call}" for call, count in sorted(one.items())) for one in reads)
            what = f"{name}: reads at {few:,} and at {many:,} checkpoints, besides one for each row"
            figures.append(Figure(what, "sqlite", "the same", "the same" if same else told, same))
            rows.append([name, f"{size:.0f}", f"{counting.count:,}", ms(times[name])])
        return figures, rows
    finally:
        await small.close()
        await large.close()


async def reads_of(handle: Checkpointer, browser: httpx.AsyncClient, path: str) -> Counter[str]:
    """What one page asks of the engine, without the manifest of each row, and what a few of them wait for."""
    reads = Reads(handle.store.engine)
    rows = (await page(browser, path)).count("<li data-row")
    counted = reads.counted
    if rows and counted["manifest"] <= rows + 1 and counted["get_writes"] <= MOST_TIPS:
        del counted["manifest"], counted["get_writes"]
    return counted


async def list_figures(settings: Settings, folder: Path) -> tuple[list[Figure], list[list[str]]]:
    """The first page of all threads, one in the middle and the last one."""
    count = settings.threads[1]
    crowd = SQLiteCrowd(folder)
    handle = await crowd.fill(count - 2)
    try:
        asking = client(handle)
        places = {
            "the first page": "/threads?order=id",
            "a page in the middle": f"/threads?order=id&after=thread-{count // 2:07}",
            "the last page": f"/threads?order=id&after=thread-{max(0, count - 60):07}",
            "the newest": "/threads",
        }
        calls: Calls = {name: partial(page, asking, path) for name, path in places.items()}
        with frozen():
            (times,) = await in_turn([calls], settings.pages)
    finally:
        await handle.close()
        crowd.remove()
    least, most = min(times.values()), max(times.values())
    ok = most <= RATIO * least or most - least < TINY_MS
    name = f"first, middle, last and newest page of {count:,} threads: slowest ÷ fastest"
    figures = [Figure(name, "sqlite", f"≤ {RATIO:g}", f"{most / least:.2f}", ok)]
    return figures, [[name, "–", "–", ms(took)] for name, took in times.items()]


async def shown_again(folder: Path, pages: int) -> dict[str, float]:
    """The megabytes of this process when it has shown a few pages, and when it has shown many."""
    process = psutil.Process()
    handle = sqlite_checkpointer(folder / "memory.db")
    try:
        asking = client(handle)
        paths = [
            f"/t/{THREAD}",
            "/threads",
            *(f"/t/{THREAD}/c/{one.checkpoint_id}" for one in await handle.history(THREAD, limit=50)),
        ]
        before = 0.0
        for number in range(pages + WARM):
            if number == WARM:
                gc.collect()
                before = process.memory_info().rss / 1e6
            await page(asking, paths[number % len(paths)])
        gc.collect()
        return {"before": before, "after": process.memory_info().rss / 1e6}
    finally:
        await handle.close()


def memory_figure(settings: Settings, folder: Path) -> Figure:
    command = [sys.executable, "-m", "benchmarks.inspector_pages", str(folder), str(settings.shown)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout)
    grown = found["after"] - found["before"]
    name = f"growth of the process after {settings.shown:,} pages, MB"
    return Figure(name, "sqlite", f"≤ {MEGABYTES}", f"{grown:.0f} ({found['after']:.0f} in all)", grown <= MEGABYTES)


async def pages_section(settings: Settings, folder: Path) -> Section:
    thread, thread_rows = await thread_figures(settings, folder)
    lists, list_rows = await list_figures(settings, folder)
    await (await grow(folder / "memory.db", settings.inspected[1] // 10, settings.inspected[1] // 200)).close()
    head = ["page", "KB", "nodes", "ms"]
    return Section("The inspector", [*thread, *lists], table(head, [*thread_rows, *list_rows]))


def inspector_section(settings: Settings, folder: Path) -> Section:
    section = asyncio.run(pages_section(settings, folder))
    section.figures.append(memory_figure(settings, folder))
    return section


def main() -> None:
    print(json.dumps(asyncio.run(shown_again(Path(sys.argv[1]), int(sys.argv[2])))))


if __name__ == "__main__":
    main()
