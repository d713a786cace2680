"""CrewAI without its telemetry, and an empty store for each test.

CrewAI is not in `.venv`: `tests/integrations/test_crewai.py` runs these tests in an environment that has it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.backends.every_store import handle, store
from tests.integrations.suites import server_store

__all__ = ["handle", "server_store", "store"]

collect_ignore_glob = [] if find_spec("crewai") else ["test_*.py"]

if not collect_ignore_glob:
    # Before anybody imports it. Other processes inherit it; tests without CrewAI measure with OpenTelemetry.
    for name in (
        "CREWAI_DISABLE_TELEMETRY",
        "CREWAI_DISABLE_TRACKING",
        "CREWAI_DISABLE_VERSION_CHECK",
        "OTEL_SDK_DISABLED",
    ):
        os.environ[name] = "true"
    os.environ["CREWAI_TRACING_ENABLED"] = "false"

_strangers: list[str] = []


def _refuse_strangers(event: str, arguments: tuple[Any, ...]) -> None:
    """Tests talk to this machine only."""
    address = arguments[1] if event == "socket.connect" else None
    if isinstance(address, tuple) and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
        _strangers.append(str(address[0]))
        raise OSError(f"a test is not to connect to {address[0]}")


if not collect_ignore_glob:
    sys.addaudithook(_refuse_strangers)
    with warnings.catch_warnings():  # what it imports warns of its own affairs
        warnings.simplefilter("ignore")
        import crewai.flow  # noqa: F401


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CrewAI keeps what it keeps in the test's folder, and calls nobody."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crewai"))
    yield
    assert _strangers == []
