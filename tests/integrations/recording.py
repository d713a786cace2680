"""Hooks for pytest that write down which laws of sessions passed, for `tests.integrations.table`.

A law that is tried in several ways has passed if all of them have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.integrations.suites import OnStores
from tests.integrations.table import Pass, shown_by

_results: dict[Pass, bool] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    suite = getattr(item, "cls", None)
    if isinstance(item, pytest.Function) and suite is not None and issubclass(suite, OnStores):
        params = item.callspec.params if hasattr(item, "callspec") else {}
        one = shown_by(suite, item.originalname, str(params.get("store", suite.backends[0])))
        if report.when == "call" or not report.passed:
            _results[one] = _results.get(one, True) and report.passed
    return report


def pytest_sessionfinish() -> None:
    with Path(os.environ["LOCUS_SEEN"]).open("a", encoding="utf-8") as seen:
        for one, ok in _results.items():
            seen.write(json.dumps([*one, ok]) + "\n")
