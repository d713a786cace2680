"""The contract, kept by the file backend; and what may happen to a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from locus.core.messages import Message
from locus.core.state import AgentState
from locus.errors import ConfigurationError, CorruptCheckpointError, UnsupportedFormatError
from locus.memory.backends import FileCheckpointer
from locus.memory.backends.file import log as file_log
from locus.memory.backends.file import schema as file_schema
from locus.memory.backends.file.schema import FORMAT
from locus.memory.checkpointer import Checkpointer
from locus.testing import REQUIRED, CheckpointerContract, OutageLaws
from locus.testing.contract import DurableContract
from locus.testing.data import SOAK
from locus.testing.processes.crash import kill_at_random
from locus.testing.processes.jobs import try_to_read
from locus.testing.processes.ledger import content_of
from locus.testing.processes.workers import Crew
from locus.testing.roads import blocking
from tests.backends.creation import CreationLaws
from tests.backends.disk import DiskLaws
from tests.backends.effort import EmbeddedRepetitions
from tests.backends.embedded import FileStore


class TestFile(EmbeddedRepetitions, CreationLaws, DurableContract, DiskLaws):
    required = REQUIRED["file"]

    def store_in(self, folder: Path) -> FileStore:
        return FileStore(folder)


class BlockingFileStore(FileStore):
    def open(self, *, ttl_seconds: float | None = None) -> Checkpointer:
        return blocking(super().open(ttl_seconds=ttl_seconds))


class TestFileBlocking(EmbeddedRepetitions, CheckpointerContract, OutageLaws, DiskLaws):
    required = REQUIRED["file"]

    @pytest.fixture
    def store(self, tmp_path: Path) -> FileStore:
        return BlockingFileStore(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


async def _save_some(store: FileStore, count: int = 3) -> AgentState:
    state = AgentState()
    async with store.open() as checkpointer:
        for number in range(count):
            state = state.with_message(Message.user(f"message {number}"))
            await checkpointer.save(state, "thread", f"c{number}")
    return state


async def _assert_refused(store: FileStore, error: type[CorruptCheckpointError]) -> None:
    """Neither read nor written, here and in another process, and the log stays as it is."""
    before = store.log("thread").read_bytes()
    for _ in range(2):
        async with store.open() as checkpointer:
            with pytest.raises(error):
                await checkpointer.load("thread")
            with pytest.raises(error):
                await checkpointer.list_checkpoints("thread")
            with pytest.raises(error):
                await checkpointer.save(AgentState(), "thread")
    with Crew(store.url) as crew:
        answer = crew.start(try_to_read, url=store.url, thread_id="thread").finish()
    assert error.__name__ in (answer["raised"] or ()), answer
    assert store.log("thread").read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"Dear diary, this is no log.\nNor is this.\n", b"no line", b"\0" * 5_000, b"{}\n", b'{"seal":\n', b"\xff\xfe\n"],
)
async def test_a_file_that_is_no_log_is_refused_and_left_alone(store: FileStore, content: bytes) -> None:
    await _save_some(store)
    store.log("thread").write_bytes(content)
    await _assert_refused(store, CorruptCheckpointError)


async def test_a_newer_format_is_refused_and_left_alone(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer_version:
        for module in (file_log, file_schema):
            newer_version.setattr(module, "FORMAT", FORMAT + 1)
        await _save_some(store)
        async with store.open() as checkpointer:
            # What has nothing to do with what stands above it is read without going up to the first line.
            for number in range(3):
                await checkpointer.save(AgentState().with_message(Message.user(f"another {number}")), "thread")
    await _assert_refused(store, UnsupportedFormatError)


async def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match="folder"):
        FileCheckpointer(file)


async def test_a_save_cut_off_anywhere_never_was(store: FileStore) -> None:
    """A process killed inside its one write leaves a beginning of it, of any length."""
    state = await _save_some(store)
    log = store.log("thread")
    before = log.read_bytes()
    async with store.open() as checkpointer:
        known = (await content_of(checkpointer, "thread")).checkpoints
        text = 'a "quoted" {"seal":"checkpoint"} text\nwith two lines, é and 😀'
        await checkpointer.save(state.with_message(Message.user(text)), "thread", "next")
        after = log.read_bytes()
        assert after.startswith(before)
        for length in lengths(len(before), len(after)):
            log.write_bytes(after[:length])
            async with store.open() as reader:
                assert (await content_of(reader, "thread")).checkpoints == known
        grown = state.with_message(Message.user("instead"))
        await checkpointer.save(grown, "thread", "instead")
        assert await checkpointer.list_checkpoints("thread") == ["instead", "c2", "c1", "c0"]
        assert await checkpointer.load("thread") == grown


def lengths(shortest: int, whole: int) -> list[int]:
    """How much may be left of a log: all that is possible in `make soak`; else every third, and each where it ends."""
    return [length for length in range(shortest, whole) if SOAK or length % 3 == 0 or length >= whole - 60]


@pytest.mark.crash
async def test_killed_processes_leave_no_files_behind(store: FileStore) -> None:
    with Crew(store.url) as crew:
        await kill_at_random(crew, store.open, seed=4, kills=30 if SOAK else 16)
    async with store.open() as checkpointer:
        await checkpointer.vacuum()
        threads = await checkpointer.list_threads()
    files = {path for path in store.path.iterdir() if path.is_file()}
    assert files == {store.log(thread_id) for thread_id in threads}
