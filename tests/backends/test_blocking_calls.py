"""Blocking calls on the stores that work in place: interrupts, forks, closing, kills, and event loops beside them."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import locus
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.memory.backends import MemoryCheckpointer, sqlite_checkpointer
from locus.memory.checkpointer import Checkpointer
from locus.testing.data import SOAK, conversation, message
from tests.samples import run_script

STORES = ["memory", "file", "sqlite", "sqlite::memory:"]
PACKAGE = str(Path(locus.__file__).parent)


def url_of(store: str, folder: Path) -> str:
    return f"{store}:{folder / 'store'}" if store in ("file", "sqlite") else store


@pytest.fixture(params=STORES)
def handle(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Checkpointer]:
    checkpointer = get_checkpointer(url_of(request.param, tmp_path))
    assert isinstance(checkpointer, Checkpointer)
    with checkpointer.sync:
        yield checkpointer


@pytest.mark.parametrize("store", STORES)
def test_blocking_calls_start_no_threads(store: str, tmp_path: Path) -> None:
    code = f"""
import threading
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer

with get_checkpointer({url_of(store, tmp_path)!r}).sync as store:
    state = AgentState().with_message(Message.user("hello"))
    first = store.save(state, "t", metadata={{"user": "eve"}})
    store.save(store.load("t").with_message(Message.user("there")), "t")
    store.put_writes("t", first, "task", [("channel", 1)])
    assert [write.value for write in store.get_writes("t", first)] == [1]
    assert len(store.history("t")) == 2 and store.list_threads() == ["t"] and store.search("hello")
    assert store.query_by_metadata("user", "eve") and store.read_items("t").total == 2
    store.diff("t", first, store.list_checkpoints("t")[0])
    assert store.vacuum(keep_last=1) == 1 and store.copy_thread("t", "u") and store.delete("t")
print(threading.active_count())
"""
    assert run_script(code).strip() == "1"


never_awaited = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""What Python says of a call that was interrupted before it began."""


class _Stopped(BaseException):
    """What a signal handler raises."""


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Raise at the so manieth place at which Python may call a signal handler while it is in the package.

    That is when a function begins, and when one in C has returned.
    """
    left, places = number, list[str]()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            left -= 1
            if left == 0:
                places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno} {event}")
                raise _Stopped

    sys.setprofile(note)
    try:
        yield places
    finally:
        sys.setprofile(None)


def places_in(work: Callable[[], object]) -> int:
    """How many such places some work passes."""
    count = 0

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@never_awaited
def test_a_save_that_is_interrupted_anywhere_is_whole_or_not_there(handle: Checkpointer) -> None:
    store = handle.sync
    state = AgentState(agent_id="a").with_messages(conversation(2))
    store.save(state, "t", "first")
    state = state.with_message(message(2))
    most = places_in(lambda: store.save(state, "t", "second"))
    saved = {"first": 2, "second": 3}
    step = 1 if SOAK else max(1, most // 120)
    for number in range(1, most + 1, step):
        later = state.with_message(message(number))
        with interrupted_at(number) as places:
            try:
                store.save(later, "t", f"c{number}")
            except _Stopped:
                pass
            else:
                saved[f"c{number}"] = 4
        name = f"interrupted at {places}"
        ids = store.list_checkpoints("t", limit=10_000)
        assert len(ids) == len(set(ids)), name
        assert set(saved) <= set(ids) <= {*saved, f"c{number}"}, name
        for checkpoint_id in [f"c{number}", "second"] if f"c{number}" in ids else ["second"]:
            loaded = store.load("t", checkpoint_id)
            assert loaded is not None, name
            assert len(loaded.messages) == (3 if checkpoint_id == "second" else 4), name
        saved.update(dict.fromkeys(ids, 4))
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
    assert store.save(state, "t", "last") == "last"
    assert store.list_checkpoints("t", 1) == ["last"]
    assert asyncio.run(_loaded_later(handle)) == state


async def _loaded_later(handle: Checkpointer) -> AgentState | None:
    return await handle.load("t", "last")


@never_awaited
@pytest.mark.parametrize("change", ["delete", "replace", "writes"])
def test_a_change_that_is_interrupted_anywhere_is_whole_or_not_there(handle: Checkpointer, change: str) -> None:
    store = handle.sync
    states = {f"c{number}": AgentState().with_messages(conversation(number + 1)) for number in range(3)}

    def begin() -> None:
        store.delete("t")
        for name, state in states.items():
            store.save(state, "t", name)
        store.put_writes("t", "c2", "task", [("a", 1), ("b", 2)])

    def do() -> None:
        if change == "delete":
            store.delete("t", "c1")
        elif change == "replace":
            store.save(states["c1"].with_message(message(77)), "t", "c1")
        else:
            store.put_writes("t", "c2", "task", [("a", 3)])

    begin()
    most = places_in(do)
    for number in range(1, most + 1, 1 if SOAK else max(1, most // 25)):
        begin()
        with interrupted_at(number) as places, suppress(_Stopped):
            do()
        name = f"interrupted at {places}"
        entries = {entry.checkpoint_id: entry.parent_id for entry in store.history("t")}
        loaded = {name: len(state.messages) for name in entries if (state := store.load("t", name)) is not None}
        written = [write.value for write in store.get_writes("t", "c2")]
        before = {"c0": 1, "c1": 2, "c2": 3}
        if change == "delete":
            assert (loaded, entries) in [
                (before, {"c2": "c1", "c1": "c0", "c0": None}),
                ({"c0": 1, "c2": 3}, {"c2": "c0", "c0": None}),
            ], name
        elif change == "replace":
            assert loaded in (before, {**before, "c1": 3}), name
        else:
            assert loaded == before, name
        assert written in ([1, 2], [3] if change == "writes" else [1, 2]), name


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="the main thread has the signals")
def test_a_signal_handler_that_raises_is_heard_while_sqlite_is_at_work(tmp_path: Path) -> None:
    checkpointer = sqlite_checkpointer(tmp_path / "a.db")
    store = checkpointer.sync
    store.save(AgentState(agent_id="a"), "t")
    begun = threading.Event()

    def endless() -> Any:
        begun.set()
        yield "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", ()

    def interrupt() -> None:
        assert begun.wait(30)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    for writing in (False, True):
        begun.clear()
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            store._run(checkpointer.store.engine.carry_out(endless, writing=writing))  # type: ignore[attr-defined]
        interrupting.join()
        store.save(AgentState(agent_id="b"), "t")
    assert len(store.history("t")) == 3
    store.close()


def test_a_signal_handler_that_calls_the_store_in_the_middle_of_a_call_is_refused() -> None:
    store = MemoryCheckpointer().sync

    def handler(_signal: int, _frame: object) -> None:
        with pytest.raises(RuntimeError, match="signal handler"):
            store.list_threads()
        refused.append(True)

    refused: list[bool] = []
    engine = store._wrapped.store.engine
    commit = engine.commit

    async def commit_amid_signals(*args: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return await commit(*args)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        vars(engine)["commit"] = commit_amid_signals
        store.save(AgentState(), "t")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert refused == [True]
    assert store.list_threads() == ["t"]


@pytest.mark.parametrize("store", STORES)
def test_a_fork_while_other_threads_are_in_calls_leaves_both_sides_whole(store: str, tmp_path: Path) -> None:
    code = f"""
import os, signal, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from locus.core.messages import Message
from locus.core.state import AgentState
from locus.memory import get_checkpointer

store = get_checkpointer({url_of(store, tmp_path)!r}).sync
store.save(AgentState(), "t")
go_on, saved = True, [0, 0, 0]

def save(number):
    state = AgentState()
    while go_on:
        state = state.with_message(Message.user("x"))
        store.save(state, f"t{{number}}")
        saved[number] += 1

threads = [threading.Thread(target=save, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
for attempt in range(6):
    child = os.fork()
    if child == 0:
        signal.alarm(50)
        mine = f"child {{attempt}}"
        for number in range(3):
            store.save(AgentState(iteration=number), mine)
        states = [store.load(mine, name).iteration for name in store.list_checkpoints(mine)]
        os._exit(0 if states == [2, 1, 0] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
go_on = False
for thread in threads:
    thread.join()
for number, count in enumerate(saved):
    assert count == 0 or len(store.load(f"t{{number}}").messages) == count
    assert len(store.list_checkpoints(f"t{{number}}", 100_000)) == count
store.close()
print("both")
"""
    assert run_script(code).strip() == "both"


def test_closing_while_other_threads_are_in_calls_loses_nothing(handle: Checkpointer) -> None:
    store = handle.sync
    kept = "memory" not in handle.store.engine.identity  # a database in memory ends when it is closed
    done = threading.Event()

    def converse(number: int) -> None:
        state = AgentState()
        for turn in range(12):
            state = state.with_message(message(turn))
            store.save(state, f"t{number}", f"c{turn}")
            if kept:
                assert store.load(f"t{number}", f"c{turn}") == state

    def close() -> None:
        while not done.is_set():
            store.close()

    closing = threading.Thread(target=close)
    closing.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(converse, range(3)))
    finally:
        done.set()
        closing.join(30)
    if kept:
        for number in range(3):
            assert store.list_checkpoints(f"t{number}", 100) == [f"c{turn}" for turn in reversed(range(12))]


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_what_blocking_calls_have_opened_is_closed_however_a_handle_ends(store: str, tmp_path: Path) -> None:
    """By a blocking call, by an awaited one, or as garbage."""

    def files() -> set[str]:
        open_ones = (str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())
        return {name for name in open_ones if str(tmp_path) in name}

    def used() -> Checkpointer:
        handle = get_checkpointer(url_of(store, tmp_path))
        assert isinstance(handle, Checkpointer)
        handle.sync.save(AgentState(), "t")
        handle.sync.load("t")
        assert store == "file" or files()
        return handle

    used().sync.close()
    assert files() == set()
    asyncio.run(used().close())
    assert files() == set()
    handle = used()
    asyncio.run(handle.load("t"))
    asyncio.run(handle.close())
    assert files() == set()
    del handle
    used()
    gc.collect()
    assert files() == set()


def test_event_loops_and_threads_use_one_handle_at_once(handle: Checkpointer) -> None:
    store, most = handle.sync, 15

    async def on_a_loop(name: str) -> None:
        state = AgentState()
        for turn in range(most):
            state = state.with_message(message(turn))
            await handle.save(state, name)
            await handle.save(AgentState(iteration=turn), "all")

    def in_loops(number: int) -> None:
        async def both() -> None:
            await asyncio.gather(*(on_a_loop(f"loop {number} {task}") for task in range(3)))

        asyncio.run(both())

    def blocking(number: int) -> None:
        state = AgentState()
        for turn in range(most):
            state = state.with_message(message(turn))
            store.save(state, f"thread {number}")
            store.save(AgentState(iteration=turn), "all")

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(work, number) for work in (in_loops, blocking) for number in range(2)]
        for one in running:
            one.result()
    names = [f"thread {number}" for number in range(2)] + [f"loop {n} {task}" for n in range(2) for task in range(3)]
    for name in names:
        loaded = store.load(name)
        assert loaded is not None
        assert len(loaded.messages) == most
        parents = [entry.parent_id for entry in store.history(name, None)]
        assert [*store.list_checkpoints(name, most)[1:], None] == parents
    assert len(store.list_checkpoints("all", 10_000)) == most * len(names)


_SAVES = """
import sys
from locus.core.state import AgentState
from locus.memory import get_checkpointer
from locus.testing.data import message

store, state = get_checkpointer(sys.argv[1]).sync, AgentState()
for number in range(100_000):
    state = state.with_message(message(number))
    store.save(state, "t", f"c{number}")
    print(number, flush=True)
"""


@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_what_blocking_saves_have_acknowledged_survives_a_kill(store: str, tmp_path: Path) -> None:
    for kills in range(12 if SOAK else 3):
        url = url_of(store, tmp_path / str(kills))
        (tmp_path / str(kills)).mkdir()
        with subprocess.Popen([sys.executable, "-c", _SAVES, url], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(5 + 7 * kills):
                acknowledged = int(process.stdout.readline())
            process.kill()
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split("\n")[:-1])])
        with get_checkpointer(url).sync as reader:
            ids = reader.list_checkpoints("t", 100_000)
            assert ids == [f"c{number}" for number in reversed(range(len(ids)))]
            assert len(ids) in (acknowledged + 1, acknowledged + 2)
            for number in (0, acknowledged, len(ids) - 1):
                loaded = reader.load("t", f"c{number}")
                assert loaded is not None
                assert list(loaded.messages) == conversation(number + 1)
