"""The suite over backends that are broken on purpose. Run by `test_suite_itself`, and not collected otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from locus.memory.backends.memory import MemoryEngine
from locus.memory.checkpointer import Checkpointer
from locus.memory.saver import CheckpointSaver
from locus.testing import CheckpointerContract, LongTermLaws, TestStore
from locus.testing.contract import DurableContract, StallLaws
from locus.testing.framework_sessions import SessionLaws
from tests.backends.disk import DiskLaws
from tests.backends.effort import EmbeddedRepetitions
from tests.backends.embedded import SQLiteStore
from tests.testing import broken, broken_memories, broken_savers
from tests.testing.broken_durable import BrokenFileStore, BrokenSQLiteStore


class InMemory(CheckpointerContract):
    engine: ClassVar[type[MemoryEngine]]

    @pytest.fixture
    def store(self) -> TestStore:
        return broken.MemoryStore(self.engine())


class OverSQLite(EmbeddedRepetitions, DurableContract, StallLaws):
    """As often as the laws are repeated on SQLite itself: that has to be enough to find what is broken."""

    worker_modules = ("tests.testing.broken_durable",)
    backend: ClassVar[str]

    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return BrokenSQLiteStore(tmp_path, self.backend)


class OverFiles(DiskLaws):
    worker_modules = ("tests.testing.broken_durable",)
    backend: ClassVar[str]

    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return BrokenFileStore(tmp_path, self.backend)


class TestSoundMemory(InMemory):
    engine = MemoryEngine


class TestNoLock(InMemory):
    engine = broken.NoLock


class TestNoBaseCheck(InMemory):
    engine = broken.NoBaseCheck


class TestNoBranchCheck(InMemory):
    engine = broken.NoBranchCheck


class TestLatestByClock(InMemory):
    engine = broken.LatestByClock


class TestLatestBesides(InMemory):
    engine = broken.LatestBesides


class TestNumbersAgain(InMemory):
    engine = broken.NumbersAgain


class TestDeletesShared(InMemory):
    engine = broken.DeletesShared


class TestLowerCase(InMemory):
    engine = broken.LowerCase


class TestLikePatterns(InMemory):
    engine = broken.LikePatterns


class TestFiltersAfterwards(InMemory):
    engine = broken.FiltersAfterwards


class TestBeginsAnew(InMemory):
    engine = broken.BeginsAnew


class TestFilledByOne(InMemory):
    engine = broken.FilledByOne


class TestSharedScores(InMemory):
    engine = broken.SharedScores


class TestNoNamespaces(InMemory):
    engine = broken.NoNamespaces


class TestMergesNamespaces(InMemory):
    engine = broken.MergesNamespaces


class TestNeverEnds(InMemory):
    engine = broken.NeverEnds


class TestTrustsHolders(InMemory):
    engine = broken.TrustsHolders


class TestOneSetOfWrites(InMemory):
    engine = broken_savers.OneSetOfWrites


class TestSpecialReplaces(InMemory):
    engine = broken_savers.SpecialReplaces


class TestAsTextWrites(InMemory):
    engine = broken_savers.AsTextWrites


class TestLeavesWrites(InMemory):
    engine = broken_savers.LeavesWrites


class TestKnownParents(InMemory):
    engine = broken_savers.KnownParents


class TestEmptyIsDefault(InMemory):
    engine = broken_savers.EmptyIsDefault


class TestWritesWhole(InMemory):
    engine = broken_savers.WritesWhole


class TestLenient(InMemory):
    engine = MemoryEngine

    def saver_over(self, handle: Checkpointer) -> CheckpointSaver:
        return broken_savers.Lenient(handle)


class TestAlwaysTheNewest(InMemory):
    engine = MemoryEngine

    def saver_over(self, handle: Checkpointer) -> CheckpointSaver:
        return broken_savers.AlwaysTheNewest(handle)


class TestSoundSQLite(OverSQLite):
    backend = "sound sqlite"


class TestRunsAfterwards(OverSQLite):
    backend = "runs afterwards"


class TestLatestAfterwards(OverSQLite):
    backend = "latest afterwards"


class TestTooEarly(OverSQLite):
    backend = "too early"


class TestGroupsTooEarly(OverSQLite):
    backend = "groups too early"


class TestOneForAll(OverSQLite):
    backend = "one for all"


class TestRemembers(OverSQLite):
    backend = "remembers"


class TestExpectedOutside(OverSQLite):
    backend = "expected outside"


class TestRacesToCreate(OverSQLite):
    backend = "races to create"


class TestWritesAtHome(OverSQLite):
    backend = "writes at home"


class TestOutageIsNone(OverSQLite):
    backend = "outage is none"


class TestNeverGivesUp(OverSQLite):
    backend = "never gives up"
    patience = 1.0


class TestOneAtATime(OverSQLite):
    backend = "one at a time"
    patience = 1.0


class TestSoundFile(OverFiles):
    backend = "sound file"


class TestNoFsync(OverFiles):
    backend = "no fsync"


class OfMemories(LongTermLaws):
    engine: ClassVar[type[MemoryEngine]]

    @pytest.fixture
    def store(self) -> TestStore:
        return broken.MemoryStore(self.engine())


class TestSoundItems(OfMemories):
    engine = MemoryEngine


class TestOneSpace(OfMemories):
    engine = broken_memories.OneSpace


class TestLastWriterWins(OfMemories):
    engine = broken_memories.broken(broken_memories.LastWriterWins)


class TestKeepsOldVersions(OfMemories):
    engine = broken_memories.broken(broken_memories.KeepsOldVersions)


class TestLowersNames(OfMemories):
    engine = broken_memories.broken(broken_memories.LowersNames)


class TestLosesTheLastOfAPage(OfMemories):
    engine = broken_memories.broken(broken_memories.LosesTheLastOfAPage)


class TestPrefixIsAPattern(OfMemories):
    engine = broken_memories.broken(broken_memories.PrefixIsAPattern)


class TestHidesDamage(OfMemories):
    engine = broken_memories.broken(broken_memories.HidesDamage)


class OfSessions(SessionLaws):
    """Sessions of a framework over SQLite. A session that is written whole with each append is found out early."""

    late_turn = 60

    @pytest.fixture
    def store(self, tmp_path: Path) -> TestStore:
        return SQLiteStore(tmp_path)


class TestSoundSessions(OfSessions):
    adapter = "tests.testing.broken_sessions:SoundSessions"


class TestLosesOne(OfSessions):
    adapter = "tests.testing.broken_sessions:LosesOne"
    rounds = 2


class TestHalfABatch(OfSessions):
    adapter = "tests.testing.broken_sessions:HalfABatch"


class TestKeepsRetries(OfSessions):
    adapter = "tests.testing.broken_sessions:KeepsRetries"


class TestOutageIsNoSession(OfSessions):
    adapter = "tests.testing.broken_sessions:OutageIsNoSession"


class TestOutageIsEmpty(OfSessions):
    adapter = "tests.testing.broken_sessions:OutageIsEmpty"


class TestRewritesEverything(OfSessions):
    adapter = "tests.testing.broken_sessions:RewritesEverything"


class TestReadsEverything(OfSessions):
    adapter = "tests.testing.broken_sessions:ReadsEverything"


class TestFoldsCase(OfSessions):
    adapter = "tests.testing.broken_sessions:FoldsCase"


class TestSharesWithForks(OfSessions):
    adapter = "tests.testing.broken_sessions:SharesWithForks"


class TestStrips(OfSessions):
    adapter = "tests.testing.broken_sessions:Strips"
