"""The laws of a store that outlives its process: several processes at once, and processes that are killed.

::

    class TestMyBackend(DurableContract):
        required = CheckpointerCapabilities(search=True, ...)

        @pytest.fixture
        def store(self, tmp_path: Path) -> DurableTestStore:
            return MyTestStore(tmp_path)

A backend that lacks a capability inherits `CoreContract`, the mixins of those it has, `OutageLaws` and
`DurableLaws`. The processes open the store with `get_checkpointer(store.url)`; a backend that is neither one
of ours nor declared as an entry point names, in `worker_modules`, the module that registers it. Needs `os.fork`.
"""

from __future__ import annotations

from locus.testing.contract import CheckpointerContract
from locus.testing.laws.crash import CrashLaws
from locus.testing.laws.outage import OutageLaws
from locus.testing.laws.processes import ProcessLaws

__all__ = ["CrashLaws", "DurableContract", "DurableLaws", "ProcessLaws"]


class DurableLaws(ProcessLaws, CrashLaws):
    """What must hold between processes, and after one of them was killed."""


class DurableContract(CheckpointerContract, OutageLaws, DurableLaws):
    """All laws, for a backend that can do everything, and that other processes can open."""
