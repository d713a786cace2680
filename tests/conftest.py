"""What a run of the tests says at its end, besides what pytest says."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.servers", "tests.oci_server", "tests.oracle_server"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The campaigns of kills tell how many of them fell inside a save."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    told = [(report.nodeid, said) for report in reports for name, said in report.user_properties if name == "crash"]
    if told:
        terminalreporter.section("kills")
        for test, said in told:
            terminalreporter.line(f"{test.rpartition('/')[2]}: {said}")
