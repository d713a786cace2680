"""What holds for all tests, and what a run of them says at its end, besides what pytest says."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from locus.testing.data import SOAK
from tests.baseline import kills

# The same examples in every run, however slow the machine is; with `LOCUS_SOAK=1` new ones are looked for.
settings.register_profile("repeatable", derandomize=True, deadline=None)
if not SOAK:
    settings.load_profile("repeatable")

# What is collected stays until the end, and it is a million objects: the garbage collector neither looks through them
# while they become more, nor ever again.
gc.disable()

# A shell lets what it starts in the background ignore Ctrl-C, and all that this starts in turn.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.servers.fixtures",
    "tests.servers.browser",
    "tests.servers.oci.fixtures",
    "tests.servers.oracle.fixtures",
]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that kills at lines fails if there are fewer of them than in the baseline."""
    result = yield
    told: dict[str, Any] = dict(pyfuncitem.user_properties)
    if "killed at" in told and not SOAK:
        kills.check(pyfuncitem.cls.__name__, str(pyfuncitem.callspec.params["step"]), told["killed at"])
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The campaigns of kills tell how many of them fell inside a save."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    told = [(report.nodeid, said) for report in reports for name, said in report.user_properties if name == "crash"]
    if told:
        terminalreporter.section("kills")
        for test, said in told:
            terminalreporter.line(f"{test.rpartition('/')[2]}: {said}")
