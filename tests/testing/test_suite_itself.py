"""The suite is tested itself: a backend that breaks a law fails the test of that law, and a sound one passes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.inner_pytest import NO_STRANGERS

SUITE = Path(__file__).with_name("broken_suite.py")
CRASH_AT_A_LINE = "test_a_process_killed_at_any_line_of_a_save_tears_nothing[append]"
SEEN_ELSEWHERE = "test_another_process_sees_a_save_as_soon_as_it_returned"
GIVEN_OUT_AGAIN = "test_a_run_number_that_is_given_out_again_is_another_run"
SESSIONS_RACE = "test_of_two_writers_from_one_revision_none_loses_what_was_accepted"
SESSIONS_KILL = "test_a_process_killed_during_an_append_leaves_the_whole_batch_or_nothing"
SESSIONS_OUTAGE = "test_an_outage_raises_and_is_never_no_session"
SESSIONS_COST = "test_appends_and_the_newest_messages_are_flat"
SPECIAL_WRITES = "test_special_and_numbered_writes_leave_each_other_alone"


class Flaw(NamedTuple):
    """A class of `broken_suite`, a law that must fail on it, and what the failure says: no other will do."""

    backend: str
    law: str
    symptom: str


FLAWS = {
    "TestSoundMemory": (
        Flaw("TestNoLock", "test_concurrent_saves_without_an_expectation_all_survive", "assert {"),
        Flaw("TestNoLock", "test_of_many_that_expect_the_same_exactly_one_wins", "AssertionError: ["),
        Flaw("TestNoBaseCheck", "test_a_state_whose_base_is_gone_is_saved_whole", "are missing"),
        Flaw("TestNoBranchCheck", "test_states_of_two_handles_interleave", "assert AgentState("),
        Flaw("TestLatestByClock", "test_a_clock_that_runs_backwards_changes_nothing", "assert {'n': 0} == {'n': 1}"),
        Flaw("TestLatestBesides", "test_deleting_the_newest_makes_the_one_before_it_the_latest", "are missing"),
        Flaw("TestNumbersAgain", "test_sequence_numbers_rise_and_are_never_used_again", "assert False"),
        Flaw("TestDeletesShared", "test_deleting_any_one_of_a_thread_leaves_the_others_loadable", "are missing"),
        Flaw("TestLowerCase", "test_thread_ids_are_kept_apart_exactly", "AssertionError: alice"),
        Flaw("TestLikePatterns", "test_a_pattern_matches_what_it_says_and_nothing_else", "AssertionError: a%b"),
        Flaw("TestFiltersAfterwards", "test_a_prefix_limits_lists_and_is_no_syntax", "AssertionError: acme/"),
        Flaw("TestBeginsAnew", "test_pages_add_up_to_the_whole_list", "does not begin behind the one before"),
        Flaw("TestFilledByOne", "test_a_busy_thread_hides_no_other", "assert ['busy'] == ['busy', 'q2'"),
        Flaw("TestSharedScores", "test_scores_and_order_tell_nothing_of_other_threads", "assert [('acme/2'"),
        Flaw("TestNoNamespaces", "test_each_has_a_history_of_its_own", "assert AgentState("),
        Flaw("TestMergesNamespaces", "test_those_of_a_thread_are_listed", "assert ['', 'child'"),
        Flaw("TestNeverEnds", "test_an_expired_thread_is_seen_by_nobody", "assert AgentState("),
        Flaw(
            "TestTrustsHolders",
            f"{GIVEN_OUT_AGAIN}[by itself-states]",
            "assert A",
        ),
        Flaw("TestTrustsHolders", f"{GIVEN_OUT_AGAIN}[by itself-dicts]", "assert {"),
        Flaw("TestNoLock", "test_puts_at_once_lose_nothing", "assert {'c"),
        Flaw("TestOneSetOfWrites", SPECIAL_WRITES, "assert [('task', 0, 'c', 3)] =="),
        Flaw("TestSpecialReplaces", SPECIAL_WRITES, "'stop')] =="),
        Flaw("TestAsTextWrites", "test_writes_are_ordered_by_path_task_and_index", "assert [('', '9', -2"),
        Flaw("TestLeavesWrites", "test_a_thread_is_deleted_with_all_that_it_has", ", 'x', 1)] == []"),
        Flaw("TestLeavesWrites", "test_writes_without_a_checkpoint_are_deleted_too", "'x', 1)] == []"),
        Flaw("TestKnownParents", "test_a_parent_is_kept_as_it_is_named", "assert {'itself': 'o"),
        Flaw("TestEmptyIsDefault", "test_each_namespace_has_versions_of_its_own", "assert ['in default'"),
        Flaw("TestWritesWhole", "test_puts_are_flat[warm]", " < (3 * 576)"),
        Flaw("TestLenient", "test_what_cannot_be_kept_is_refused_with_its_path", "DID NOT RAISE"),
        Flaw("TestAlwaysTheNewest", "test_history_is_paged_from_the_newest", "assert ['c11', 'c10', 'c9'] =="),
    ),
    "TestSoundSQLite": (
        Flaw("TestRunsAfterwards", CRASH_AT_A_LINE, "are missing"),
        Flaw("TestLatestAfterwards", CRASH_AT_A_LINE, "load() is not the newest that is listed"),
        Flaw("TestTooEarly", "test_a_process_killed_at_any_moment_tears_nothing", "after a kill in"),
        Flaw("TestTooEarly", SEEN_ELSEWHERE, "assert"),
        Flaw("TestGroupsTooEarly", "test_a_process_killed_while_many_save_at_once_tears_nothing", "after a kill in"),
        Flaw("TestGroupsTooEarly", "test_the_contents_of_a_group_are_there_when_it_is_answered", "assert None is not"),
        Flaw("TestOneForAll", "test_each_of_many_at_once_has_a_verdict_of_its_own", "are listed"),
        Flaw("TestOneForAll", "test_a_group_is_answered_as_its_members_one_by_one[2]", "Commit(thread_id="),
        Flaw("TestRemembers", SEEN_ELSEWHERE, "assert"),
        Flaw("TestExpectedOutside", "test_a_counter_that_processes_count_up_misses_nothing", "== [40, 39,"),
        Flaw("TestRacesToCreate", "test_a_new_store_can_be_opened_by_many_processes_at_once", "save_many"),
        Flaw("TestOutageIsNone", "test_nothing_is_answered_that_could_not_be_found_out", "answered None"),
        Flaw("TestOutageIsNone", "test_a_saver_answers_nothing_that_could_not_be_found_out", "get answered None"),
        Flaw("TestNeverGivesUp", "test_a_stalled_query_ends_at_its_deadline", "long after its deadline"),
        Flaw("TestOneAtATime", "test_nobody_waits_for_a_stalled_query", "TimeoutError"),
        Flaw("TestWritesAtHome", "test_another_process_sees_what_a_saver_put", "assert {'': [['b'"),
    ),
    "TestSoundFile": (Flaw("TestNoFsync", "test_what_is_acknowledged_is_on_the_disk", "never synced"),),
    "TestSoundItems": (
        Flaw("TestOneSpace", "test_items_and_threads_know_nothing_of_each_other", "== []"),
        Flaw("TestLastWriterWins", "test_of_several_who_have_seen_the_same_version_one_is_first", "AssertionError: ["),
        Flaw("TestLastWriterWins", "test_an_item_that_was_deleted_and_put_again_is_another_one", "DID NOT RAISE"),
        Flaw("TestKeepsOldVersions", "test_what_was_deleted_does_not_come_back", "secret 1"),
        Flaw("TestLowersNames", "test_namespaces_and_keys_are_data_and_never_cross", "assert {"),
        Flaw("TestLosesTheLastOfAPage", "test_pages_neither_lose_nor_repeat_an_item", "assert 22 == 23"),
        Flaw("TestPrefixIsAPattern", "test_namespaces_and_keys_are_data_and_never_cross", "assert {"),
        Flaw("TestHidesDamage", "test_a_damaged_item_is_an_error_and_hides_no_other", "DID NOT WARN"),
    ),
    "TestSoundSessions": (
        Flaw("TestLosesOne", SESSIONS_RACE, "accepted of two, by round"),
        Flaw("TestHalfABatch", SESSIONS_KILL, "a part of a batch"),
        Flaw("TestKeepsRetries", "test_the_same_batch_three_times", "assert ["),
        Flaw("TestOutageIsNoSession", f"{SESSIONS_OUTAGE}[warm handle]", "known answered False"),
        Flaw("TestOutageIsEmpty", f"{SESSIONS_OUTAGE}[cold handle]", "read answered []"),
        Flaw("TestRewritesEverything", SESSIONS_COST, "warm append: "),
        Flaw("TestReadsEverything", SESSIONS_COST, "newest: "),
        Flaw("TestFoldsCase", "test_hostile_session_ids_work_or_are_refused_clearly", "Alice"),
        Flaw("TestSharesWithForks", "test_a_fork_and_its_source_are_independent[source]", "assert ["),
        Flaw("TestStrips", "test_hostile_contents_come_back_as_they_were", "assert ["),
    ),
}
"""By the sound backend that passes the same laws."""


def _run(tests: Iterable[tuple[str, str]]) -> subprocess.CompletedProcess[str]:
    """Run these laws (class, test), and nothing else, in a pytest of its own."""
    options = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-rfE", *NO_STRANGERS]
    chosen = [f"{SUITE}::{backend}::{law}" for backend, law in tests]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen],
        # The summary shows as much of a failure as fits on a line; and this is no long campaign.
        env={**os.environ, "COLUMNS": "1000", "LOCUS_SOAK": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


@pytest.mark.parametrize("sound", FLAWS)
def test_broken_backends_fail_the_laws_that_they_break(sound: str) -> None:
    flaws = FLAWS[sound]
    ran = _run((flaw.backend, flaw.law) for flaw in flaws)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert not re.search(r"^ERROR", ran.stdout, re.MULTILINE), ran.stdout
    failures = re.findall(r"^FAILED \S+?::(\w+)::(.+)$", ran.stdout, re.MULTILINE)
    for flaw in flaws:
        said = [text for backend, text in failures if backend == flaw.backend and text.startswith(flaw.law)]
        assert said, f"{flaw.backend} passes {flaw.law}\n{ran.stdout}"
        assert all(flaw.symptom in text for text in said), said


@pytest.mark.parametrize("sound", FLAWS)
def test_sound_backends_pass_the_same_laws(sound: str) -> None:
    ran = _run((sound, law) for law in {flaw.law: None for flaw in FLAWS[sound]})
    assert ran.returncode == 0, ran.stdout + ran.stderr
