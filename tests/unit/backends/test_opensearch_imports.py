"""What the driver needs is imported before any thread asks it for something."""

from __future__ import annotations

from tests.unit.samples import run_script


def test_the_first_request_imports_nothing() -> None:
    """A process that forks in the middle of an import has children that wait for its end for ever."""
    run_script("""
import sys
from locus.errors import BackendUnavailableError
from locus.memory.backends import OpenSearchBackend

backend = OpenSearchBackend(["127.0.0.1:1"])
before = set(sys.modules)
try:
    backend.sync.exists("t")
except BackendUnavailableError:
    pass
else:
    raise AssertionError("nobody listens there")
assert set(sys.modules) == before, sorted(set(sys.modules) - before)
""")
