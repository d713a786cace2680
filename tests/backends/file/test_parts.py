"""What the file backend reads of a log for a part of a checkpoint, for a reader that holds one, and for a save."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState, ToolExecution
from locus.errors import CorruptCheckpointError
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file import log as file_log
from locus.memory.backends.file.log import LogFile
from locus.memory.backends.file.read import sought
from locus.memory.backends.file.schema import Seal, checkpoint_record
from locus.memory.model.manifest import items_text
from locus.memory.model.parts import Range, Window, needed
from locus.memory.model.records import DEFAULT_NAMESPACE, Base, Extent, Run, Stored
from locus.memory.model.table import Row
from tests.format.story import DATA

LISTS = frozenset({("messages",), ("tool_executions",), ("tool_history",)})
WINDOW = Window(6, LISTS)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about reading, and some write many records."""
    monkeypatch.setattr(file_log, "to_disk", lambda _fd: None)


def _turn(state: AgentState, turn: int) -> AgentState:
    done = ToolExecution(tool_name="look", tool_call_id=f"call-{turn}", result="x" * 50)
    return state.with_messages([Message.user(f"{turn}?"), Message.assistant(f"{turn}!")]).with_tool_execution(done)


async def _grow(folder: Path, state: AgentState, turns: range) -> AgentState:
    async with FileCheckpointer(folder) as checkpointer:
        for turn in turns:
            state = _turn(state, turn)
            await checkpointer.save(state, "t", f"c{turn}")
    return state


@contextmanager
def _seals_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    count = 0
    real = LogFile._parsed

    def counted(log: LogFile, at: int, line: bytes) -> Seal:
        nonlocal count
        count += 1
        return real(log, at, line)

    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "_parsed", counted)
        yield lambda: count


async def _read_part(folder: Path, part: Range | Window = WINDOW, checkpoint_id: str | None = None) -> Stored:
    async with FileCheckpointer(folder) as checkpointer:
        found = await checkpointer.store.read_part("t", checkpoint_id, DEFAULT_NAMESPACE, part)
    assert found is not None
    return found


async def _read(folder: Path, checkpoint_id: str | None = None) -> Stored:
    async with FileCheckpointer(folder) as checkpointer:
        found = await checkpointer.store.read("t", checkpoint_id, DEFAULT_NAMESPACE)
    assert found is not None
    return found


def _base(stored: Stored) -> Base:
    return Base(stored.entry.checkpoint_id, stored.entry.rev)


async def _since(folder: Path, held: Base, checkpoint_id: str | None = None) -> Stored:
    async with FileCheckpointer(folder) as checkpointer, checkpointer.store.using() as engine:
        found = await engine.read_since("t", DEFAULT_NAMESPACE, checkpoint_id, held)
    assert found is not None
    return found


async def _append(folder: Path, known: AgentState) -> None:
    async with FileCheckpointer(folder) as checkpointer:
        await checkpointer.save(known.with_message(Message.user("more")), "t")


async def _seals_at(
    folder: Path, state: AgentState, sizes: tuple[int, ...], work: Callable[[], Awaitable[object]], done: int = 0
) -> list[int]:
    """How many seals a new handle looks at for some work, as a thread grows."""
    counts = list[int]()
    for size in sizes:
        state = await _grow(folder, state, range(done, size))
        done = size
        with pytest.MonkeyPatch.context() as patch, _seals_read(patch) as count:
            await work()
        counts.append(count())
    return counts


LARGE = AgentState().with_metadata("prompt", "be kind " * 200).with_metadata("tags", ["a tag of the thread"] * 9)


@pytest.mark.parametrize("state", [AgentState(), LARGE], ids=["short heads", "a large value from the beginning"])
async def test_a_part_is_read_from_the_end(tmp_path: Path, state: AgentState) -> None:
    early, late = await _seals_at(tmp_path, state, (80, 160), lambda: _read_part(tmp_path))
    assert early == late
    part, whole = await _read_part(tmp_path), await _read(tmp_path)
    assert (part.entry, part.head, part.manifest) == (whole.entry, whole.head, whole.manifest)
    assert sum(map(len, part.runs.values())) < 30


async def test_a_value_in_the_middle_is_found_by_its_name(tmp_path: Path) -> None:
    """What a user has stored may look like that name; neither that nor its absence at the ends leads astray."""
    log, state = tmp_path / "t.jsonl", await _grow(tmp_path, AgentState(), range(90))
    noted = state.with_metadata("note", "n " * 700)
    async with FileCheckpointer(tmp_path) as checkpointer:
        await checkpointer.save(noted, "t")
        stored = await checkpointer.store.read("t", None, DEFAULT_NAMESPACE)
        assert stored is not None
        (name,) = (branch for branch in stored.runs if branch.startswith("#"))
        assert f'"{name}.0":'.encode() in log.read_bytes()[1 << 16 :]
        noted = noted.with_metadata("decoys", [{f"{name}.0": number, "text": "y" * 50} for number in range(50)])
        await checkpointer.save(noted, "t")
        noted = noted.with_metadata("decoys", [])
    early, late = await _seals_at(tmp_path, noted, (180, 260), lambda: _read_part(tmp_path), done=90)
    assert early == late
    part = await _read_part(tmp_path)
    assert part.runs[name][0].items == f'["{"n " * 700}"]'
    whole = log.read_bytes()
    _damage(log, b"n n n")
    with pytest.raises(CorruptCheckpointError):
        await _read_part(tmp_path)
    log.write_bytes(whole)


async def test_a_held_checkpoint_is_looked_for_from_the_end(tmp_path: Path) -> None:
    async def one_turn() -> None:
        latest = (await _read_part(tmp_path)).entry.checkpoint_id
        held = _base(await _read_part(tmp_path, checkpoint_id=f"c{int(latest[1:]) - 1}"))
        found = await _since(tmp_path, held)
        assert found.since == held
        assert sum(map(len, found.runs.values())) == 3

    early, late = await _seals_at(tmp_path, AgentState(), (40, 80), one_turn)
    assert early == late


async def test_a_save_of_a_new_handle_reads_the_end_of_the_log(tmp_path: Path) -> None:
    state, counts = AgentState(), list[int]()
    async with FileCheckpointer(tmp_path) as writer:
        for turn in range(120):
            state = _turn(state, turn)
            await writer.save(state, "t")
            if turn in (59, 119):
                async with FileCheckpointer(tmp_path) as fresh:
                    with pytest.MonkeyPatch.context() as patch, _seals_read(patch) as count:
                        await fresh.save(_turn(state, turn), "t")
                counts.append(count())
                state = await writer.load("t") or state
    assert counts[0] == counts[1] < 10
    assert len(await FileCheckpointer(tmp_path).history("t", limit=None)) == 122


async def test_the_second_run_of_a_branch_is_saved_without_reading_the_whole_log(tmp_path: Path) -> None:
    """Only a log from which something was removed can have a run 0 behind those that continue it."""
    state = await _grow(tmp_path, AgentState(), range(60))
    for removed, expected in (("c7", range(10)), ("c8", range(60, 200))):
        async with FileCheckpointer(tmp_path) as writer:
            forked = await writer.load("t", "c5")
            assert forked is not None
            forked = forked.with_message(Message.user("another way"))
            await writer.save(forked, "t")
            async with FileCheckpointer(tmp_path) as fresh:
                with pytest.MonkeyPatch.context() as patch, _seals_read(patch) as count:
                    await fresh.save(forked.with_message(Message.user("and on")), "t")
            assert count() in expected
            assert await writer.delete("t", removed)
    found = await FileCheckpointer(tmp_path).load("t", "c59")
    assert found == state


async def test_a_run_0_that_an_older_version_stored_again_hides_nothing(tmp_path: Path) -> None:
    """Those took a save that was sent again after its checkpoint was removed, though others had continued its lists."""
    newer = await _grow(tmp_path, AgentState(), range(2))
    removed = await _read(tmp_path, "c0")
    async with FileCheckpointer(tmp_path) as writer:
        assert await writer.delete("t", "c0")
    runs = [run for members in removed.runs.values() for run in members]
    again = Row(replace(removed.entry, seq=3), removed.head, removed.manifest)
    log = LogFile(tmp_path / "t.jsonl", "t")
    assert log.refresh(writing=True)
    log.append(checkpoint_record(again, runs, 3, None), False)
    log.release()
    async with FileCheckpointer(tmp_path) as fresh:
        older = await fresh.load("t", "c0")
        assert older is not None
        forked = older.with_message(Message.user("another way"))
        await fresh.save(forked, "t", "c2")
        await fresh.save(forked, "t", "c3")
        assert await fresh.delete("t", "c3"), "the log is written anew, with one run of each number"
    async with FileCheckpointer(tmp_path) as fresh:
        assert [await fresh.load("t", name) for name in ("c0", "c1", "c2")] == [older, newer, forked]


async def test_a_new_value_is_not_looked_for_in_the_whole_log(tmp_path: Path) -> None:
    state, counts = AgentState(), list[int]()
    async with FileCheckpointer(tmp_path) as writer:
        for turn in range(240):
            state = _turn(state, turn)
            await writer.save(state, "t")
            if turn in (119, 239):
                async with FileCheckpointer(tmp_path) as fresh:
                    with pytest.MonkeyPatch.context() as patch, _seals_read(patch) as count:
                        await fresh.save(state.with_metadata("note", f"{turn} " * 600), "t")
                counts.append(count())
    assert counts[0] == counts[1]
    async with FileCheckpointer(tmp_path) as writer:  # what comes back soon is stored once
        size = (tmp_path / "t.jsonl").stat().st_size
        await writer.save(state.with_metadata("note", "239 " * 600), "t")
        assert (tmp_path / "t.jsonl").stat().st_size < size + 2_400
        found = await writer.load("t")
        assert found is not None
        assert found.metadata["note"] == "239 " * 600


def _damage(log: Path, text: bytes) -> None:
    whole = log.read_bytes()
    assert text in whole
    log.write_bytes(whole.replace(text, text[:-1] + bytes([text[-1] ^ 1]), 1))


async def test_damage_is_told_by_whoever_reads_it(tmp_path: Path) -> None:
    await _grow(tmp_path, AgentState(), range(20))
    log = tmp_path / "t.jsonl"
    whole = log.read_bytes()
    shown = await _read_part(tmp_path)
    held = _base(await _read(tmp_path, "c17"))
    for damage in (b'"content":"3?', b'"content":"3!'):
        _damage(log, damage)
        assert (await _read_part(tmp_path)).runs == shown.runs
        assert (await _since(tmp_path, held)).since == held
        with pytest.raises(CorruptCheckpointError):
            await _read(tmp_path)
        with pytest.raises(CorruptCheckpointError):
            await _read_part(tmp_path, Range(("messages",), 6, 2))
        log.write_bytes(whole)
    for damage in (b'"content":"18?', b'"checkpoint_id":"c18', b'"content":"19!', b'"checkpoint_id":"c19'):
        _damage(log, damage)
        with pytest.raises(CorruptCheckpointError):
            await _read_part(tmp_path)
        with pytest.raises(CorruptCheckpointError):
            await _since(tmp_path, held)
        log.write_bytes(whole)


async def test_an_older_checkpoint_is_read_without_what_came_later(tmp_path: Path) -> None:
    await _grow(tmp_path, AgentState(), range(10))
    whole = await _read(tmp_path, "c4")
    _damage(tmp_path / "t.jsonl", b'"content":"8?')
    assert (await _read(tmp_path, "c4")).runs == whole.runs
    with pytest.raises(CorruptCheckpointError):
        await _read(tmp_path)


async def test_a_part_does_not_see_a_torn_save(tmp_path: Path) -> None:
    state = await _grow(tmp_path, AgentState(), range(20))
    before = await _read_part(tmp_path)
    log = tmp_path / "t.jsonl"
    whole = log.read_bytes()
    async with FileCheckpointer(tmp_path) as checkpointer:
        held = _base(before)
        await checkpointer.save(_turn(state, 20), "t", "c20")
        after = log.read_bytes()
        for end in range(len(whole), len(after), 41):
            log.write_bytes(after[:end])
            found = await checkpointer.store.read_part("t", None, DEFAULT_NAMESPACE, WINDOW)
            assert found == before
            assert (await _since(tmp_path, held)).runs == {}
        grown = _turn(state, 21)
        await checkpointer.save(grown, "t", "c21")  # cuts it off
        found = await checkpointer.store.read_part("t", None, DEFAULT_NAMESPACE, WINDOW)
        assert await checkpointer.load("t") == grown
    assert found == await _read_part(tmp_path)


async def test_what_newer_runs_hide_is_not_read_if_it_is_long(tmp_path: Path) -> None:
    state = await _grow(tmp_path, AgentState(), range(3))
    async with FileCheckpointer(tmp_path) as checkpointer:
        for number in range(30):
            last = Message.assistant(f"{number} " * 3_000)
            state = state.with_messages_replaced(state.messages[:5] + (last,))
            await checkpointer.save(state, "t", f"e{number}")
    whole = await _read(tmp_path)
    assert sum(map(len, whole.runs.values())) < 12
    async with FileCheckpointer(tmp_path) as checkpointer:
        for number in (0, 15, 29):
            found = await checkpointer.load("t", f"e{number}")
            assert found is not None
            assert found.messages[5].text == f"{number} " * 3_000
            assert len(found.messages) == 6


async def test_what_is_in_sight_as_of_an_older_run_is_sent_to_who_holds_a_newer_one(tmp_path: Path) -> None:
    """The reader has run 2 of the branch, and nothing of run 1, which it hides: only that is in sight for the older."""
    async with FileCheckpointer(tmp_path) as checkpointer:
        state = AgentState().with_messages([Message.user("a"), Message.user("b")])
        await checkpointer.save(state, "t", "c0")
        for number in (1, 2):
            edited = state.messages[:1] + (Message.user(f"{number} " * 3_000),)
            state = state.with_messages_replaced(edited)
            await checkpointer.save(state, "t", f"c{number}")
    newer, older = await _read(tmp_path, "c2"), await _read(tmp_path, "c1")
    ((branch, runs),) = newer.runs.items()
    assert [run.number for run in runs] == [0, 2]
    found = await _since(tmp_path, _base(newer), "c1")
    extent = Extent(branch, 1, 0, 2)
    assert items_text([extent], {branch: [*runs, *found.runs[branch]]}) == items_text([extent], older.runs)


async def test_a_log_written_anew_is_noticed_even_if_its_end_is_where_it_was(tmp_path: Path) -> None:
    """What a removed checkpoint took is made up for by its children, whose new parent has a longer name."""

    async def ends(folder: Path, padding: int) -> tuple[bytes, bytes]:
        state = AgentState(run_id="r")
        async with FileCheckpointer(folder) as reader, FileCheckpointer(folder) as other:
            await other.save(state, "t", "p" * 250)
            await other.save(state, "t", "x", {"pad": "-" * padding})
            for child in range(9):
                await other.save(state, "t", f"child-{child}", parent="x")
            for name in ("end", "last"):
                await other.save(state, "t", name, parent=None)
            assert "x" in await reader.list_checkpoints("t", 20)
            before = (folder / "t.jsonl").read_bytes()
            assert await other.delete("t", "x")
            assert "x" not in await reader.list_checkpoints("t", 20)
            return before, (folder / "t.jsonl").read_bytes()

    padding = 0
    for attempt in range(80):  # checksums have more digits, or fewer
        before, after = await ends(tmp_path / str(attempt), padding)
        if len(before) == len(after) and after.endswith(before[before.rindex(b'{"seal"') :]):
            return
        padding = max(0, padding + len(after) - len(before))
    raise AssertionError("the last seal was never where it had been")


def _hidden(runs: list[Run], named: int) -> list[Run]:
    """Of the runs up to one, those that show nothing as of it."""
    return [run for run in runs[:named] if any(newer.start <= run.start for newer in runs[run.number + 1 : named + 1])]


def test_what_is_sought_is_found_in_logs_with_gaps_and_with_a_first_run_that_came_again() -> None:
    """Against all runs of random branches: what is shown is the same, and hidden ones are no obstacle."""
    for seed in range(300):
        chance = random.Random(seed)
        runs = [Run("b", 0, 0, 4, "[0,0,0,0]")]
        total = 4
        for number in range(1, chance.randrange(1, 9)):
            start, length = chance.randrange(1, total + 1), chance.randrange(1, 4)
            total = start + length
            runs.append(Run("b", number, start, length, f"[{','.join([str(number)] * length)}]"))
        ends = [4, *(run.start + run.length for run in runs[1:])]
        log = list(runs)
        if chance.random() < 0.5:
            log.insert(chance.randrange(len(log) + 1), runs[0])
        for named in range(len(runs)):
            skip = chance.randrange(ends[named])
            extent = Extent("b", named, skip, chance.randrange(1, ends[named] - skip + 1))
            removed = {run.number for run in _hidden(runs, named) if chance.random() < 0.3}
            for known in (-1, chance.randrange(len(runs))):
                open_branches, found = sought([extent], {"b": known}), list[Run]()
                for run in (run for run in reversed(log) if run.number not in removed):
                    if file_log._chosen([run[:3]], open_branches, chance.random() < 0.5):
                        found.append(run)
                assert all(older.number > known for older in found) or known > named
                held = [run for run in runs[: known + 1] if run not in _hidden(runs, known)] if known <= named else []
                assert items_text([extent], {"b": held + found}) == items_text([extent], {"b": runs}), seed


@pytest.mark.parametrize("old", sorted(DATA.glob("file-*")), ids=lambda path: path.name)
async def test_parts_of_what_older_versions_wrote(tmp_path: Path, old: Path) -> None:
    folder = tmp_path / old.name
    shutil.copytree(old, folder)
    compared = 0
    async with FileCheckpointer(folder) as checkpointer, checkpointer.store.using() as engine:
        for thread_id in await checkpointer.list_threads():
            for entry in await engine.history(thread_id, None, None, None):
                place = (thread_id, entry.namespace, entry.checkpoint_id)
                whole, part = await engine.read(*place), await engine.read_part(*place, Window(2, LISTS))
                assert whole is not None
                assert part is not None
                assert (part.entry, part.head, part.manifest) == (whole.entry, whole.head, whole.manifest)
                for extent in needed(whole.manifest, Window(2, LISTS)):
                    assert items_text([extent], part.runs) == items_text([extent], whole.runs)
                    compared += 1
                since = await engine.read_since(*place, _base(whole))
                assert since is not None
                assert since.runs == {}
    assert compared > 10


async def test_a_small_read_opens_little_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = AgentState()
    async with FileCheckpointer(tmp_path) as checkpointer:
        for turn in range(60):
            state = state.with_message(Message.user(f"{turn} " * 6_000))
            await checkpointer.save(state, "t")
    real, sizes = os.read, list[int]()

    def counted(fd: int, length: int) -> bytes:
        sizes.append(length)
        return real(fd, length)

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", counted)
        found = await _read_part(tmp_path, Range(("messages",), -1, 1))
    assert [len(runs) for runs in found.runs.values()] == [1]
    assert sum(sizes) < 200_000 < (tmp_path / "t.jsonl").stat().st_size
