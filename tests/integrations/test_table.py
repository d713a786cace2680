"""The table of frameworks and stores is what the tests know."""

from __future__ import annotations

from pathlib import Path

from tests.integrations.table import BACKENDS, FRAMEWORKS, PAGE, SIGNS, Pass, asked, passed, rendered, written

COMMAND = "python -m tests.integrations.table"


def test_what_was_seen_to_pass_is_what_the_suites_ask_for() -> None:
    assert {*asked()} - passed() == set(), f"not seen to pass: {COMMAND}"
    assert passed() - {*asked()} == set(), f"no longer asked for: {COMMAND}"


def test_the_page_shows_what_was_seen_to_pass() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, passed()) == page, f"{COMMAND} --write"


def test_every_framework_with_sessions_is_in_the_table() -> None:
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_sessions.py")}
    assert folders == {*FRAMEWORKS}


def test_every_framework_keeps_all_laws_on_three_stores_and_some_on_all() -> None:
    found = passed()
    for name in FRAMEWORKS:
        by_store = {
            backend: {each.law for each in found if (each.framework, each.backend) == (name, backend)}
            for backend in BACKENDS
        }
        assert by_store["memory"] >= {"race", "round trip"}
        assert all(laws >= {"race", "outage", "round trip"} for store, laws in by_store.items() if store != "memory")
        assert all(by_store[store] == max(SIGNS, key=len) for store in ("sqlite", "postgresql", "redis"))


def test_a_law_that_one_of_two_adapters_breaks_is_not_shown() -> None:
    found = passed()
    lost = Pass("llmfy", "LlmfySessions", "sqlite", "kill")
    assert lost in found
    assert rendered(found - {lost}) != rendered(found)
