"""The contract suite, for anyone who writes a backend: one class to inherit, one fixture to provide.

::

    class TestMyBackend(CheckpointerContract):
        required = CheckpointerCapabilities(search=True, ...)

        @pytest.fixture
        def store(self, tmp_path: Path) -> TestStore:
            return MyTestStore(tmp_path)

Every law of the contract is then a test of that class. A backend that lacks a capability inherits
`CoreContract` and the mixins of those it has; the suite checks that these two agree. A backend that other
processes can open inherits `DurableContract`, which has the laws of outages, processes and crashes as well.

The suite needs pytest, pytest-asyncio and hypothesis: `pip install "locus-state[testing]"`. Properties are
tried with the same few examples on every run; `LOCUS_SOAK=1` tries many more, and other ones each time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from locus.extras import lazy_names

if TYPE_CHECKING:
    from locus.testing.contract import REQUIRED, CheckpointerContract, CoreContract, DurableContract, DurableLaws
    from locus.testing.laws.durability.outage import OutageLaws
    from locus.testing.laws.durability.stalls import StallLaws
    from locus.testing.laws.effects import EffectLaws, EffectOutageLaws, EffectProcessLaws, EffectStoreLaws
    from locus.testing.laws.handles.saver import SaverLaws
    from locus.testing.laws.long_term import LongTermLaws, LongTermOutageLaws, LongTermProcessLaws
    from locus.testing.laws.removal.expiry import ExpiryLaws
    from locus.testing.laws.saving.copies import CopyLaws
    from locus.testing.laws.search.metadata import MetadataLaws
    from locus.testing.laws.search.words import SearchLaws
    from locus.testing.sqlite import SQLiteTestStore
    from locus.testing.stateful import ThreadsMachine
    from locus.testing.stores import DurableTestStore, OutageTestStore, Stall, StallTestStore, TestStore

__all__ = [
    "REQUIRED",
    "CheckpointerContract",
    "CopyLaws",
    "CoreContract",
    "DurableContract",
    "DurableLaws",
    "DurableTestStore",
    "EffectLaws",
    "EffectOutageLaws",
    "EffectProcessLaws",
    "EffectStoreLaws",
    "ExpiryLaws",
    "LongTermLaws",
    "LongTermOutageLaws",
    "LongTermProcessLaws",
    "MetadataLaws",
    "OutageLaws",
    "OutageTestStore",
    "SQLiteTestStore",
    "SaverLaws",
    "SearchLaws",
    "Stall",
    "StallLaws",
    "StallTestStore",
    "TestStore",
    "ThreadsMachine",
]

# Only a process that runs tests has pytest loaded: the processes that the crash laws start must be quick.
if "pytest" in sys.modules:
    import pytest

    pytest.register_assert_rewrite(
        "locus.testing.contract",
        "locus.testing.framework_sessions",
        "locus.testing.processes.crash",
        "locus.testing.laws",
        "locus.testing.processes.ledger",
        "locus.testing.stateful",
    )


__getattr__ = lazy_names(
    __name__,
    {
        "contract": ("REQUIRED", "CheckpointerContract", "CoreContract", "DurableContract", "DurableLaws"),
        "laws.saving.copies": ("CopyLaws",),
        "stores": ("DurableTestStore", "OutageTestStore", "Stall", "StallTestStore", "TestStore"),
        "laws.removal.expiry": ("ExpiryLaws",),
        "laws.long_term": ("LongTermLaws", "LongTermOutageLaws", "LongTermProcessLaws"),
        "laws.search.metadata": ("MetadataLaws",),
        "laws.durability.outage": ("OutageLaws",),
        "laws.effects": ("EffectLaws", "EffectOutageLaws", "EffectProcessLaws", "EffectStoreLaws"),
        "sqlite": ("SQLiteTestStore",),
        "laws.handles.saver": ("SaverLaws",),
        "laws.search.words": ("SearchLaws",),
        "laws.durability.stalls": ("StallLaws",),
        "stateful": ("ThreadsMachine",),
    },
)
